#include "server/request/tags.h"

#include <string.h>

#include "base/cleanup.h"
#include "s3/message/tags.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

bool tags_acceptable(struct request *req, const struct s3_tagging *tags, size_t most)
{
	const char *message;
	enum s3_error problem = s3_tagging_check(tags, most, &message);

	return problem == S3_OK || reply_errorf(req, problem, "%s", message);
}

const char *tags_text(struct request *req, const struct s3_tagging *tags)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	const char *copy;

	s3_tagging_write_query(&text, tags);
	copy = buf_failed(&text) ? NULL : request_strdup(req, buf_str(&text));
	if (!copy)
		reply_error(req, S3_E_SLOW_DOWN);
	return copy;
}

const char *tags_of_document(struct request *req, const char *xml, size_t len, size_t most)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_tagging tags = {0};
	const char *text = NULL;

	if (s3_tagging_parse(xml, len, &tags, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return NULL;
	}
	if (tags_acceptable(req, &tags, most))
		text = tags_text(req, &tags);
	s3_tagging_release(&tags);
	return text;
}

/* Reads x-amz-tagging. Sets the reply and returns false if the value is invalid. */
static bool parse_header(struct request *req, const char *value, struct s3_tagging *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc = s3_tagging_parse_query(value, out, &err);

	penstock_error_release(&err);
	if (rc == -PENSTOCK_E_MEMORY)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (rc < 0 || s3_tagging_repeats(out))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL "
			"query parameters without tag name duplicates.");
	return tags_acceptable(req, out, S3_OBJECT_TAGS);
}

bool tags_add(struct request *req, struct buf *out)
{
	const char *value = request_header(req, "x-amz-tagging");
	struct s3_tagging tags = {0};
	const char *text = NULL;

	if (!value)
		return true;
	if (parse_header(req, value, &tags))
		text = tags_text(req, &tags);
	if (text && *text)
		store_header_add(out, TAGS_HEADER, text);
	s3_tagging_release(&tags);
	if (text && buf_failed(out))
		return reply_error(req, S3_E_SLOW_DOWN);
	return text != NULL;
}

void reply_tag_count(struct request *req, const char *text)
{
	size_t n = 1;

	for (const char *p = text; (p = strchr(p, '&')); p++)
		n++;
	reply_headerf(req, "x-amz-tagging-count", "%zu", n);
}
