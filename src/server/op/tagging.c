/* Tags of objects and buckets. */
#include "server/op/op.h"

#include <string.h>

#include "base/cleanup.h"
#include "s3/message/tags.h"
#include "server/access/access.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"

static void reply_tags(struct request *req, const char *text)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_tagging tags = {0};

	if (s3_tagging_parse_query(text, &tags, &err) < 0) {
		reply_failure(req, &err);
		return;
	}
	s3_tagging_write(&xml, &tags);
	reply_xml(req, MHD_HTTP_OK, &xml);
	s3_tagging_release(&tags);
}

static const char *read_tags(struct request *req, size_t most)
{
	const struct buf *document = &req->body.document;

	return tags_of_document(req, buf_str(document), document->len, most);
}

/* --- objects --------------------------------------------------------------------------------- */

void op_tagging(struct request *req)
{
	_cleanup_(store_object_unrefp) struct store_object *object = reply_unless_found(
		req, req->bucket, req->key, req->version);

	if (!object)
		return;
	reply_tags(req, store_object_header(object, TAGS_HEADER));
	reply_version(req, object);
}

static bool may_tag(struct request *req, const struct op_note *note)
{
	return access_check_subject(req, "s3:PutObjectTagging", note->subject);
}

void op_put_tagging(struct request *req)
{
	const char *text = read_tags(req, S3_OBJECT_TAGS);
	const struct access_subject subject = {
		.bucket = req->bucket, .key = req->key, .version = req->version, .tags = text};
	const struct op_note note = {.name = TAGS_HEADER,
		.value = text && *text ? text : NULL,
		.may = may_tag,
		.subject = &subject,
		.status = MHD_HTTP_OK};

	/* Access is checked after the tags were read, because a policy may depend on the tags. */
	if (text && may_tag(req, &note))
		op_annotate(req, &note);
}

void op_delete_tagging(struct request *req)
{
	op_annotate(req, &(struct op_note){.name = TAGS_HEADER, .status = MHD_HTTP_NO_CONTENT});
}

/* --- buckets --------------------------------------------------------------------------------- */

void op_bucket_tagging(struct request *req)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, TAGS_CONFIG, &text, &err);

	if (status == STORE_NO_SUCH_KEY)
		reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchTagSet", "The TagSet does not exist");
	else if (reply_unless_stored(req, status, &err))
		reply_tags(req, buf_str(&text));
}

/* Stores the tags of a bucket, or removes them if `text` is NULL; then replies. */
static void set_bucket_tags(struct request *req, const char *text)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (reply_unless_stored(req,
		    store_config_set(req->server->store, req->bucket, req->bucket_id, TAGS_CONFIG,
			    text, text ? strlen(text) : 0, &err),
		    &err))
		reply_empty(req, MHD_HTTP_NO_CONTENT);
}

void op_put_bucket_tagging(struct request *req)
{
	const char *text = read_tags(req, S3_BUCKET_TAGS);

	if (text)
		set_bucket_tags(req, *text ? text : NULL);
}

void op_delete_bucket_tagging(struct request *req)
{
	set_bucket_tags(req, NULL);
}
