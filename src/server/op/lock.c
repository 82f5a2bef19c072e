/* Object Lock: the configuration of a bucket, retentions and legal holds of versions. */
#include "server/op/op.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/date.h"
#include "s3/message/lock.h"
#include "server/access/access.h"
#include "server/request/lock.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* The longest default retention, as AWS documents it. */
#define YEARS_MAX 100
#define DAYS_MAX  36500

/* --- buckets --------------------------------------------------------------------------------- */

void op_object_lock(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_lock lock = {0};
	struct s3_object_lock document = {.enabled = "Enabled"};
	char number[16];
	enum store_status status = store_lock_get(req->server->store, req->bucket, &lock, &err);

	if (status == STORE_NO_SUCH_KEY) {
		reply_code(req, MHD_HTTP_NOT_FOUND, "ObjectLockConfigurationNotFoundError",
			"Object Lock configuration does not exist for this bucket");
		return;
	}
	if (!reply_unless_stored(req, status, &err))
		return;
	document.mode = lock_mode_name(lock.mode);
	snprintf(number, sizeof(number), "%u", lock.days ? lock.days : lock.years);
	*(lock.days ? &document.days : &document.years) = number;
	s3_object_lock_write(&xml, &document);
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Reads a number of days or years, 1 to `most`, unless `text` is NULL. Sets the reply and returns
 * false if the number is invalid. */
static bool read_period(struct request *req, const char *text, int64_t most, unsigned *out)
{
	int64_t n = 0;

	if (!text)
		return true;
	if (!str_to_i64(text, INT64_MIN, INT64_MAX, &n))
		return reply_error(req, S3_E_MALFORMED_XML);
	if (n < 1 || n > most)
		return reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidRetentionPeriod",
			       n < 1 ? "Default retention period must be a positive integer value"
				     : "Default retention period is too large"),
		       false;
	*out = (unsigned)n;
	return true;
}

/* Converts a document to a lock. Sets the reply and returns false if the document is invalid. */
static bool read_lock(
	struct request *req, const struct s3_object_lock *document, struct store_lock *out)
{
	*out = (struct store_lock){0};
	if (!document->enabled || strcmp(document->enabled, "Enabled") != 0)
		return reply_error(req, S3_E_MALFORMED_XML);
	if (!document->rule)
		return true;
	if (!document->mode || !document->days == !document->years)
		return reply_error(req, S3_E_MALFORMED_XML);
	out->mode = lock_mode_find(document->mode);
	if (out->mode == STORE_NOT_LOCKED)
		return reply_error(req, S3_E_MALFORMED_XML);
	return read_period(req, document->days, DAYS_MAX, &out->days) &&
	       read_period(req, document->years, YEARS_MAX, &out->years);
}

void op_put_object_lock(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_object_lock wanted = {0};
	struct store_lock lock;

	if (s3_object_lock_parse(buf_str(document), document->len, &wanted, &err) < 0) {
		reply_document_error(req, S3_E_MALFORMED_XML, &err);
		return;
	}
	if (read_lock(req, &wanted, &lock) &&
		reply_unless_stored(req,
			store_lock_set(
				req->server->store, req->bucket, req->bucket_id, &lock, &err),
			&err))
		reply_empty(req, MHD_HTTP_OK);
	s3_object_lock_release(&wanted);
}

/* --- retentions ------------------------------------------------------------------------------ */

/* Gets the version that the request names, in a bucket with Object Lock. Sets the reply and returns
 * NULL on failure. */
static struct store_object *find_version(struct request *req)
{
	struct store_lock lock;

	return lock_of_request(req, &lock)
		       ? reply_unless_found(req, req->bucket, req->key, req->version)
		       : NULL;
}

/* Checks access after the document was read, because a policy may depend on the document. Sets the
 * reply and returns false on failure. */
static bool may(struct request *req, const char *action, const struct access_subject *document)
{
	return access_check_subject(req, action, document) &&
	       (!lock_is_bypassed(req) ||
		       access_check_subject(req, "s3:BypassGovernanceRetention", document));
}

static bool may_retain(struct request *req, const struct op_note *note)
{
	return may(req, "s3:PutObjectRetention", note->subject);
}

static bool may_hold(struct request *req, const struct op_note *note)
{
	return may(req, "s3:PutObjectLegalHold", note->subject);
}

static void reply_not_locked(struct request *req)
{
	reply_code(req, MHD_HTTP_NOT_FOUND, "NoSuchObjectLockConfiguration",
		"The specified object does not have a ObjectLock configuration");
}

void op_retention(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(store_object_unrefp) struct store_object *object = find_version(req);
	struct store_retention retention;
	char until[DATE_ISO_SIZE];

	if (!object)
		return;
	retention = store_object_retention(object);
	if (retention.mode == STORE_NOT_LOCKED) {
		reply_not_locked(req);
		return;
	}
	date_format_iso(retention.until_ns, until);
	s3_retention_write(&xml,
		&(struct s3_retention){.mode = lock_mode_name(retention.mode), .until = until});
	reply_xml(req, MHD_HTTP_OK, &xml);
}

/* Converts a document to a retention; an empty document removes the retention. Sets the reply and
 * returns false if the document is invalid. */
static bool read_retention(
	struct request *req, const struct s3_retention *document, struct store_retention *out)
{
	*out = (struct store_retention){0};
	if (document->mode)
		out->mode = lock_mode_find(document->mode);
	if (!document->mode != !document->until ||
		(document->mode && out->mode == STORE_NOT_LOCKED))
		return reply_error(req, S3_E_MALFORMED_XML);
	return !document->until || lock_until(req, document->until, &out->until_ns);
}

static bool may_become(struct request *req, const struct store_object *object, const void *arg)
{
	const struct store_retention old = store_object_retention(object);

	return store_retention_may_become(&old, arg, clock_wall_ns(), lock_is_bypassed(req)) ||
	       reply_error(req, S3_E_OBJECT_LOCKED);
}

void op_put_retention(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_retention wanted = {0};
	struct store_retention retention;
	struct store_lock lock;
	char text[STORE_RETENTION_SIZE];
	int rc = s3_retention_parse(buf_str(document), document->len, &wanted, &err);
	const struct access_subject subject = {.bucket = req->bucket,
		.key = req->key,
		.version = req->version,
		.locks = true,
		.lock_mode = wanted.mode,
		.lock_until = wanted.until};
	struct op_note note = {.name = STORE_RETENTION_HEADER,
		.allowed = may_become,
		.arg = &retention,
		.may = may_retain,
		.subject = &subject,
		.status = MHD_HTTP_OK};

	if (may_retain(req, &note) && lock_of_request(req, &lock)) {
		if (rc < 0) {
			reply_document_error(req, S3_E_MALFORMED_XML, &err);
		} else if (read_retention(req, &wanted, &retention)) {
			store_retention_format(&retention, text);
			note.value = retention.mode == STORE_NOT_LOCKED ? NULL : text;
			op_annotate(req, &note);
		}
	}
	penstock_error_release(&err);
	s3_retention_release(&wanted);
}

/* --- legal holds ----------------------------------------------------------------------------- */

void op_legal_hold(struct request *req)
{
	_cleanup_(buf_release) struct buf xml = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_(store_object_unrefp) struct store_object *object = find_version(req);
	const char *status = object ? store_object_header(object, STORE_HOLD_HEADER) : NULL;

	if (!object)
		return;
	if (!status) {
		reply_not_locked(req);
		return;
	}
	s3_legal_hold_write(&xml, &(struct s3_legal_hold){.status = status});
	reply_xml(req, MHD_HTTP_OK, &xml);
}

void op_put_legal_hold(struct request *req)
{
	const struct buf *document = &req->body.document;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct s3_legal_hold wanted = {0};
	struct store_lock lock;
	int rc = s3_legal_hold_parse(buf_str(document), document->len, &wanted, &err);
	const struct access_subject subject = {.bucket = req->bucket,
		.key = req->key,
		.version = req->version,
		.locks = true,
		.lock_hold = wanted.status};
	const struct op_note note = {.name = STORE_HOLD_HEADER,
		.value = wanted.status,
		.may = may_hold,
		.subject = &subject,
		.status = MHD_HTTP_OK};

	if (may_hold(req, &note) && lock_of_request(req, &lock)) {
		if (rc < 0)
			reply_document_error(req, S3_E_MALFORMED_XML, &err);
		else if (!wanted.status || !lock_hold_is_valid(wanted.status))
			reply_error(req, S3_E_MALFORMED_XML);
		else
			op_annotate(req, &note);
	}
	penstock_error_release(&err);
	s3_legal_hold_release(&wanted);
}
