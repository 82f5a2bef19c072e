/* The lifecycle configuration of a bucket, and the reply headers that depend on it. */
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/date.h"
#include "s3/bucket/lifecycle.h"
#include "s3/uri.h"
#include "server/bucket/access_log.h"
#include "server/bucket/configs.h"
#include "server/bucket/expiry.h"
#include "server/bucket/lifecycle.h"
#include "server/bucket/notifier.h"
#include "server/bucket/replicator.h"
#include "server/op/op.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "server/request/tags.h"
#include "store/header.h"

/* --- the configuration ----------------------------------------------------------------------- */

void op_bucket_lifecycle(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status = store_config_get(
		req->server->store, req->bucket, LIFECYCLE_CONFIG, &xml, &err);

	if (status == STORE_NO_SUCH_KEY)
		reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchLifecycleConfiguration",
			"The lifecycle configuration does not exist");
	else if (reply_unless_stored(req, status, &err)) {
		reply_xml(req, MHD_HTTP_OK, &xml);
		reply_header(req, MINIMUM_HEADER, MINIMUM_DEFAULT);
	}
}

bool op_name_rule(struct request *req, const char **id)
{
	unsigned char random[16];
	char text[2 * sizeof(random) + 1];

	if (*id)
		return true;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return reply_error(req, S3_E_INTERNAL_ERROR);
	str_hex(random, sizeof(random), text);
	*id = request_strdup(req, text);
	return *id || reply_error(req, S3_E_SLOW_DOWN);
}

bool op_rules_fit(struct request *req)
{
	return req->body.document.len <= LIMIT_S3_RULES ||
	       reply_error(req, S3_E_MAX_MESSAGE_LENGTH_EXCEEDED);
}

bool op_update_rules(struct request *req)
{
	struct server *server = req->server;
	bool ok = configs_update(server->expiry, req->bucket);

	ok = access_log_update(server->access_log, req->bucket) && ok;
	ok = notifier_update(server->notify, req->bucket) && ok;
	ok = replicator_update(server->replicator, req->bucket) && ok;
	return ok || reply_error(req, S3_E_SLOW_DOWN);
}

/* Returns true if the account of the bucket may have a configuration of this length. Requests that
 * are checked at the same time may exceed the limit, by one document each. Sets the reply and
 * returns false on failure. */
static bool account_may_have(struct request *req, const char *name, size_t len)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint64_t size = len + LIMIT_SERVER_RULES_EACH, own, others;
	struct store_config_sizes sizes;

	if (!reply_unless_stored(req,
		    store_config_sizes(req->server->store, req->bucket, name,
			    LIMIT_SERVER_RULES_EACH, &sizes, &err),
		    &err))
		return false;
	own = sizes.owner - sizes.bucket + size;
	others = sizes.all - sizes.owner;
	return size <= sizes.bucket || 2 * own + others <= LIMIT_SERVER_RULES ||
	       reply_errorf(req, S3_E_INVALID_REQUEST,
		       "The %s configurations of the buckets of this account are too long together",
		       name);
}

bool op_set_rules(struct request *req, const char *name, const struct buf *xml)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (xml && buf_failed(xml))
		return reply_error(req, xml->failure == BUF_NO_MEMORY
						? S3_E_SLOW_DOWN
						: S3_E_MAX_MESSAGE_LENGTH_EXCEEDED);
	return (!xml || account_may_have(req, name, xml->len)) &&
	       reply_unless_stored(req,
		       store_config_set(req->server->store, req->bucket, req->bucket_id, name,
			       xml ? xml->data : NULL, xml ? xml->len : 0, &err),
		       &err) &&
	       op_update_rules(req);
}

/* Gives each rule a name. Sets the reply and returns false on failure. */
static bool name_rules(struct request *req, struct s3_lifecycle *rules)
{
	for (size_t i = 0; i < rules->n; i++)
		if (!op_name_rule(req, &rules->rules[i].id))
			return false;
	return true;
}

static void set_rules(struct request *req, struct s3_lifecycle *rules)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_S3_RULES);

	if (!name_rules(req, rules))
		return;
	s3_lifecycle_write(&xml, rules);
	if (!op_set_rules(req, LIFECYCLE_CONFIG, &xml))
		return;
	lifecycle_wake(req->server->lifecycle);
	reply_empty(req, MHD_HTTP_OK);
	reply_header(req, MINIMUM_HEADER, MINIMUM_DEFAULT);
}

void op_put_bucket_lifecycle(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_lifecycle rules = {0};

	if (!op_rules_fit(req))
		return;
	if (s3_lifecycle_parse(buf_str(document), document->len, &rules, &err) == 0)
		set_rules(req, &rules);
	else
		reply_refusal(req, &rules.refusal, &err);
	s3_lifecycle_release(&rules);
}

void op_delete_bucket_lifecycle(struct request *req)
{
	if (!op_set_rules(req, LIFECYCLE_CONFIG, NULL))
		return;
	lifecycle_wake(req->server->lifecycle);
	reply_empty(req, MHD_HTTP_NO_CONTENT);
}

/* --- headers --------------------------------------------------------------------------------- */

void op_reply_end(struct request *req, const struct op_ended *object)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct expiry_note note;
	char date[DATE_HTTP_SIZE];

	if (!configs_any(req->server->expiry) ||
		!expiry_of_object(req->server->expiry, req->bucket,
			&(struct s3_lifecycle_object){.key = req->key,
				.size = object->size,
				.modified_ns = object->modified_ns,
				.tags = store_header_find(
					object->headers, object->headers_len, TAGS_HEADER)},
			&note))
		return;
	date_format_http(note.at_ns / NS_PER_S, date);
	buf_printf(&value, "expiry-date=\"%s\", rule-id=\"", date);
	uri_encode(&value, note.id, strlen(note.id), false);
	buf_add_char(&value, '"');
	req->no_memory = req->no_memory || buf_failed(&value);
	reply_header(req, "x-amz-expiration", buf_str(&value));
}

void op_reply_put_end(struct request *req)
{
	const struct store_put *put = &req->put;

	op_reply_end(req, &(struct op_ended){.size = put->size,
				  .modified_ns = put->modified_ns,
				  .headers = put->headers,
				  .headers_len = put->headers_len});
}

void op_reply_upload_end(struct request *req, int64_t started_ns)
{
	_cleanup_(buf_release) struct buf id = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct expiry_note note;
	char date[DATE_HTTP_SIZE];

	if (!expiry_of_upload(req->server->expiry, req->bucket, req->key, started_ns, &note))
		return;
	date_format_http(note.at_ns / NS_PER_S, date);
	uri_encode(&id, note.id, strlen(note.id), false);
	req->no_memory = req->no_memory || buf_failed(&id);
	reply_header(req, "x-amz-abort-date", date);
	reply_header(req, "x-amz-abort-rule-id", buf_str(&id));
}
