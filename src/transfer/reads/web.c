/* Reads ranges of web resources. */
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/range.h"
#include "transfer/reads/internal.h"
#include "transfer/web/request.h"

static int changed(const char *url, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

	http_url_display(url, &shown);
	return error_set(err, PENSTOCK_E_CHANGED, "GET %s: the resource was replaced meanwhile",
		buf_str(&shown));
}

static bool is_etag(const char *version)
{
	return *version == '"' || str_starts(version, "W/");
}

int reads_web_request(
	struct http_request *request, const struct object_read *read, struct penstock_error *err)
{
	/* If-Range needs a strong ETag; reads_web_check() compares a weak one. */
	bool conditional = read->etag && *read->etag && !str_starts(read->etag, "W/");

	request->range = (struct http_range){
		.wanted = true, .offset = read->offset, .length = read->length};
	return web_request(request, read->key, conditional ? read->etag : NULL, err);
}

int reads_web_check(
	const struct object_read *read, const struct http_reply *reply, struct penstock_error *err)
{
	const char *version = read->etag ? read->etag : "";
	const char *now = http_reply_header(reply, is_etag(version) ? "ETag" : "Last-Modified");

	if (web_is_replaced(reply))
		return changed(read->key, err);
	/* A reply to If-Range may omit headers that the client knows. */
	if (now ? *version && strcmp(now, version) != 0 : str_starts(version, "W/"))
		return changed(read->key, err);
	return 0;
}

/* ---- finding ---- */

static int on_found(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	(void)cookie;
	if (reply->status == 206 ? reply->total_size != HTTP_LENGTH_UNKNOWN
				 : reply->content_length == 0)
		return 0;
	return error_set(err, PENSTOCK_E_UNSUPPORTED,
		"the server does not send ranges; fetch the file first with 'penstock cp'");
}

/* Returns true for the reply to a range of an empty resource. */
static bool is_empty(const struct http_reply *reply)
{
	const char *text = http_reply_header(reply, "Content-Range");
	struct byte_range range;
	uint64_t size;
	bool satisfied;

	return reply->status == 416 && text &&
	       range_parse_content(text, &range, &size, &satisfied) && !satisfied && size == 0;
}

static int take_version(
	struct web_info *out, const struct http_reply *reply, struct penstock_error *err)
{
	const char *etag = http_reply_header(reply, "ETag");
	const char *modified = http_reply_header(reply, "Last-Modified");
	const char *version = etag && *etag == '"' ? etag : modified ? modified : etag;

	if (!version || strlen(version) >= sizeof(out->version))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the server sends no ETag or Last-Modified of less than %zu bytes, so a "
			"change would go unnoticed; fetch the file first with 'penstock cp'",
			sizeof(out->version));
	memcpy(out->version, version, strlen(version) + 1);
	return 0;
}

int web_find(struct http_engine *engine, const char *url, const atomic_int *cancel,
	struct web_info *out, struct penstock_error *err)
{
	const struct object_read first = {.key = url, .length = 1};
	struct http_request request = {.on_headers = on_found,
		.resend_ms = LIMIT_HTTP_RESEND_MS,
		.patience_ms = LIMIT_OPEN_PATIENCE_MS,
		.cancel = cancel};
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);
	struct web_info found = {0};
	int r = reads_web_request(&request, &first, &own);

	request.range.full_is_fine = true;
	if (r == 0)
		r = http_perform(engine, &request, &reply, &own);
	strlist_release(&request.headers);
	if (r == 0)
		found.size = reply.status == 206 ? reply.total_size : 0;
	else if (is_empty(&reply))
		r = 0;
	if (r == 0 && found.size)
		r = take_version(&found, &reply, &own);
	if (r < 0) {
		http_url_display(url, &shown);
		error_prefix(&own, "cannot open '%s'", buf_str(&shown));
		return error_move(err, &own);
	}
	*out = found;
	return 0;
}
