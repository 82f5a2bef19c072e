/* One object: its description, errors about it, HEAD and DELETE. */
#include "transfer/client/internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/date.h"

int object_error(struct penstock_error *err, enum penstock_code code, const char *verb,
	struct object_ref at, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list args;

	va_start(args, fmt);
	buf_vprintf(&text, fmt, args);
	va_end(args);
	return error_set(err, code, "%s %s://%s%s%s: %s", verb, object_client_scheme(at.client),
		at.bucket, at.key ? "/" : "", at.key ? at.key : "", buf_str(&text));
}

int object_replaced(struct object_ref at, struct penstock_error *err)
{
	return object_error(
		err, PENSTOCK_E_CHANGED, "GET", at, "the object was replaced meanwhile");
}

int object_corrupt(struct object_ref at, enum checksum_kind kind, struct penstock_error *err)
{
	return object_error(err, PENSTOCK_E_CORRUPT, "GET", at,
		"the bytes do not match the stored checksum (%s)", checksum_name(kind));
}

int object_info_pass(int r, struct object_info *found, struct object_info *out)
{
	if (r == 0 && out)
		*out = *found;
	else
		object_info_release(found);
	return r;
}

int object_info_from_reply(
	const struct http_reply *reply, struct object_info *out, struct penstock_error *err)
{
	static const char meta[] = "x-amz-meta-";
	const char *modified = http_reply_header(reply, "Last-Modified");
	const char *served = http_reply_header(reply, "Date");
	const char *version = http_reply_header(reply, "x-amz-version-id");
	int64_t seconds;

	out->size = reply->total_size == HTTP_LENGTH_UNKNOWN ? 0 : reply->total_size;
	object_etag_copy(out->etag, http_reply_header(reply, "ETag"));
	if (modified && date_parse_http(modified, &seconds))
		out->modified_ns = seconds * NS_PER_S;
	if (served && date_parse_http(served, &seconds))
		out->served_ns = seconds * NS_PER_S;
	if (version && strcmp(version, "null") != 0) {
		out->version_id = strdup(version);
		if (!out->version_id)
			return error_memory(err);
	}
	for (size_t i = 0; i < reply->headers.n; i++) {
		const char *line = reply->headers.items[i];
		const char *colon = strchr(line, ':');
		_cleanup_free_ char *name = NULL;

		if (!colon || strncasecmp(line, meta, strlen(meta)) != 0)
			continue;
		name = strndup(line + strlen(meta), (size_t)(colon - line) - strlen(meta));
		for (char *c = name; c && *c; c++)
			*c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
		colon++;
		while (*colon == ' ')
			colon++;
		if (!name || strlist_addf(&out->metadata, "%s=%s", name, colon) < 0)
			return error_memory(err);
	}
	return 0;
}

int s3_op_head(struct s3_op *op, struct object_ref at, const char *if_match, bool sums,
	const atomic_int *cancel, struct object_info *info, struct penstock_error *err)
{
	int r;

	s3_op_init(op, "HEAD", at);
	s3_op_header(op, "if-match", if_match);
	s3_op_header(op, "x-amz-checksum-mode", sums ? "ENABLED" : NULL);
	s3_op_cancel(op, cancel);
	op->request.on_headers = s3_op_check_etag;
	op->request.resend_ms = LIMIT_HTTP_RESEND_MS;
	r = s3_op_perform(op, err);
	return r == 0 && info ? object_info_from_reply(&op->reply, info, err) : r;
}

/* Copies a header of the reply. `*out` stays NULL if the header is missing. */
static int take_header(
	const struct http_reply *reply, const char *name, char **out, struct penstock_error *err)
{
	const char *value = http_reply_header(reply, name);

	if (!value)
		return 0;
	*out = strdup(value);
	return *out ? 0 : error_memory(err);
}

/* Copies the properties that object_info_from_reply() leaves out. */
static int take_details(
	const struct http_reply *reply, struct object_info *out, struct penstock_error *err)
{
	const char *until = http_reply_header(reply, "x-amz-object-lock-retain-until-date");
	const char *hold = http_reply_header(reply, "x-amz-object-lock-legal-hold");
	int r = take_header(reply, "Content-Type", &out->content_type, err);

	if (r == 0)
		r = take_header(reply, "x-amz-storage-class", &out->storage_class, err);
	if (r == 0 && !out->storage_class)
		r = take_header(reply, "x-goog-storage-class", &out->storage_class, err);
	if (r == 0)
		r = take_header(reply, "x-amz-object-lock-mode", &out->retention, err);
	if (until && !date_parse_iso_end(until, &out->retained_until_ns))
		out->retained_until_ns = 0;
	out->legal_hold = hold && strcmp(hold, "ON") == 0;
	return r;
}

int object_head(struct object_ref at, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	struct object_info found = {0};
	int r = s3_op_head(&op, at, NULL, false, NULL, &found, err);

	if (r == 0)
		r = take_details(&op.reply, &found, err);
	return object_info_pass(r, &found, info);
}

/* Sends a DELETE. `if_match` and `bypass` are values of headers, or NULL. */
static int delete (
	struct object_ref at, const char *if_match, const char *bypass, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	s3_op_init(&op, "DELETE", at);
	s3_op_header(&op, "if-match", if_match);
	s3_op_header(&op, "x-amz-bypass-governance-retention", bypass);
	op.request.fresh_connection = if_match != NULL;
	r = s3_op_perform(&op, &own);
	if (r < 0 && (op.error == S3_E_NO_SUCH_KEY ||
			     (own.http_status == 404 && op.error != S3_E_NO_SUCH_BUCKET)))
		return 0;
	/* A condition that fails after a lost reply means that the delete was done. */
	if (r < 0 && own.http_status == 412 && op.reply.sent_before &&
		object_head(at, NULL, NULL) == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	return r < 0 ? error_move(err, &own) : 0;
}

int object_delete(struct object_ref at, const char *if_match, struct penstock_error *err)
{
	return delete (at, if_match, NULL, err);
}

int object_delete_retained(struct object_ref at, struct penstock_error *err)
{
	return delete (at, NULL, "true", err);
}
