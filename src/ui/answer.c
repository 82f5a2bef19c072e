#include "ui/answer.h"

#include <isa-l/igzip_lib.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "ui/page_style.h"
#include "s3/sum/checksum.h"
#include "s3/uri.h"

#define TAG_BYTES   ((ANSWER_TAG_SIZE - 3) / 2)
#define WARNING_MAX 1000 /* maximum bytes of a warning, before it is percent-encoded */
#define PACKED_MIN  4096 /* bytes; a shorter body fits in a few packets and is not compressed */
/* Allows the page's own script, style, images and requests, and images that the page makes from
 * bytes. */
#define POLICY                                                                                     \
	"default-src 'none'; script-src 'self'; style-src " PAGE_STYLE                             \
	"; img-src 'self' blob: data:; "                                                           \
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

const char *param(const struct exchange *x, const char *name)
{
	const char *value = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);

	return value && *value ? value : NULL;
}

bool param_number(const struct exchange *x, const char *name, int64_t min, int64_t max,
	int64_t fallback, int64_t *out)
{
	const char *text = param(x, name);

	*out = fallback;
	return !text || str_to_i64(text, min, max, out);
}

const char *sent_header(const struct exchange *x, const char *name)
{
	return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

bool accepts_gzip(const struct exchange *x)
{
	const char *accepted = sent_header(x, "Accept-Encoding");

	return accepted && strstr(accepted, "gzip");
}

enum MHD_Result answer(struct exchange *x, unsigned status, struct MHD_Response *response)
{
	static const char *const headers[][2] = {
		{"Content-Security-Policy", POLICY},
		{"X-Content-Type-Options", "nosniff"},
		{"X-Frame-Options", "DENY"},
		{"Referrer-Policy", "no-referrer"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
		{"Cross-Origin-Resource-Policy", "same-origin"},
		/* A browser keeps its copy, and asks with the ETag if the copy is current. */
		{"Cache-Control", "no-cache, private"},
	};
	char number[24];
	enum MHD_Result sent;

	if (!response)
		return MHD_NO;
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
		MHD_add_response_header(response, headers[i][0], headers[i][1]);
	if (x->unreadable) {
		snprintf(number, sizeof(number), "%zu", x->unreadable);
		MHD_add_response_header(response, "X-Penstock-Unreadable", number);
	}
	if (x->warning)
		MHD_add_response_header(response, "X-Penstock-Warning", x->warning);
	sent = MHD_queue_response(x->connection, status, response);
	MHD_destroy_response(response);
	return sent;
}

static struct MHD_Response *response_of(const char *type, struct buf *body)
{
	size_t len = body->len;
	char *data = buf_failed(body) ? NULL : buf_take(body);
	struct MHD_Response *response = data ? MHD_create_response_from_buffer(
						       len, data, MHD_RESPMEM_MUST_FREE)
					     : NULL;

	if (response)
		MHD_add_response_header(response, "Content-Type", type);
	else
		free(data);
	return response;
}

enum MHD_Result answer_body(struct exchange *x, unsigned status, const char *type, struct buf *body)
{
	return answer(x, status, response_of(type, body));
}

/* Compresses a long body if the client accepts gzip. */
static void compress(const struct exchange *x, struct buf *body, struct MHD_Response **out)
{
	_cleanup_free_ uint8_t *level = NULL;
	struct isal_zstream stream;
	uint8_t *packed;

	if (!accepts_gzip(x) || body->len < PACKED_MIN)
		return;
	level = malloc(ISAL_DEF_LVL1_DEFAULT);
	packed = malloc(body->len);
	if (level && packed) {
		isal_deflate_stateless_init(&stream);
		stream.end_of_stream = 1;
		stream.gzip_flag = IGZIP_GZIP;
		stream.level = 1;
		stream.level_buf = level;
		stream.level_buf_size = ISAL_DEF_LVL1_DEFAULT;
		stream.next_in = (uint8_t *)body->data;
		stream.avail_in = (uint32_t)body->len;
		stream.next_out = packed;
		stream.avail_out = (uint32_t)body->len;
		if (isal_deflate_stateless(&stream) == COMP_OK)
			*out = MHD_create_response_from_buffer(
				stream.total_out, packed, MHD_RESPMEM_MUST_FREE);
	}
	if (*out)
		MHD_add_response_header(*out, "Content-Encoding", "gzip");
	else
		free(packed);
}

bool answer_tag(const struct exchange *x, const struct buf *body, char out[static ANSWER_TAG_SIZE])
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[2 * TAG_BYTES + 1];
	struct checksum sum;

	if (checksum_init(&sum, CHECKSUM_SHA256, NULL) < 0)
		return false;
	checksum_update(&sum, buf_str(body), body->len);
	/* The ETag covers the warning: after a 304 a browser keeps the headers of the earlier
	 * reply. */
	if (x->warning)
		checksum_update(&sum, x->warning, strlen(x->warning));
	checksum_final(&sum, digest);
	checksum_release(&sum);
	str_hex(digest, TAG_BYTES, hex);
	snprintf(out, ANSWER_TAG_SIZE, "\"%s\"", hex);
	return true;
}

enum MHD_Result answer_with_tag(
	struct exchange *x, const char *type, struct buf *body, const char *tag)
{
	const char *known = sent_header(x, "If-None-Match");
	struct MHD_Response *response = NULL;

	if (known && strcmp(known, tag) == 0) {
		response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
		if (response)
			MHD_add_response_header(response, "ETag", tag);
		return answer(x, MHD_HTTP_NOT_MODIFIED, response);
	}
	compress(x, body, &response);
	if (response)
		MHD_add_response_header(response, "Content-Type", type);
	else
		response = response_of(type, body);
	if (response) {
		MHD_add_response_header(response, "ETag", tag);
		MHD_add_response_header(response, "Vary", "Accept-Encoding");
	}
	return answer(x, MHD_HTTP_OK, response);
}

enum MHD_Result answer_tagged(struct exchange *x, const char *type, struct buf *body)
{
	char tag[ANSWER_TAG_SIZE];

	return answer_tag(x, body, tag) ? answer_with_tag(x, type, body, tag) : MHD_NO;
}

void answer_warn(struct exchange *x, const char *message)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(3 * WARNING_MAX);
	_cleanup_free_ char *text = strndup(message, WARNING_MAX);

	free(x->warning);
	x->warning = NULL;
	if (!text)
		return;
	str_make_utf8(text);
	/* A header has no line ends, and a browser reads bytes that are not ASCII as Latin-1. */
	uri_encode(&value, text, strlen(text), false);
	x->warning = buf_take(&value);
}

static enum MHD_Result answer_value(struct exchange *x, unsigned status, json_t *value)
{
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_UI_REPLY);
	_cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	if (!text || buf_add_str(&body, text) < 0)
		return MHD_NO;
	return answer_body(x, status, "application/json", &body);
}

enum MHD_Result answer_json(struct exchange *x, json_t *value)
{
	return answer_value(x, MHD_HTTP_OK, value);
}

/* Returns a JSON string with the text, after replacing invalid UTF-8 in the text. */
static json_t *text_value(char *text)
{
	str_make_utf8(text);
	return json_string(text);
}

enum MHD_Result answer_error(struct exchange *x, unsigned status, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text = str_vprintf(fmt, ap);
	va_end(ap);
	return text ? answer_value(x, status, json_pack("{s:o}", "error", text_value(text)))
		    : MHD_NO;
}

enum MHD_Result answer_failure(struct exchange *x, struct penstock_error *err)
{
	unsigned status = err->code == PENSTOCK_E_NOT_FOUND	? MHD_HTTP_NOT_FOUND
			  : err->code == PENSTOCK_E_INVALID	? MHD_HTTP_BAD_REQUEST
			  : err->code == PENSTOCK_E_EXISTS	? MHD_HTTP_CONFLICT
			  : err->code == PENSTOCK_E_NO_SPACE	? MHD_HTTP_INSUFFICIENT_STORAGE
			  : err->code == PENSTOCK_E_UNAVAILABLE ? MHD_HTTP_SERVICE_UNAVAILABLE
			  : err->code == PENSTOCK_E_PERMISSION	? MHD_HTTP_FORBIDDEN
								: MHD_HTTP_INTERNAL_SERVER_ERROR;
	enum MHD_Result sent = answer_error(x, status, "%s", err->message);

	penstock_error_release(err);
	return sent;
}

enum MHD_Result answer_verb_failed(struct exchange *x, int code, const char *message)
{
	_cleanup_free_ char *text = strdup(message);
	unsigned status = MHD_HTTP_INTERNAL_SERVER_ERROR;

	switch (code) {
	case 64:
		status = MHD_HTTP_BAD_REQUEST;
		break;
	case 65:
		status = MHD_HTTP_UNPROCESSABLE_CONTENT;
		break;
	case 66:
		status = MHD_HTTP_NOT_FOUND;
		break;
	case 69:
		status = MHD_HTTP_SERVICE_UNAVAILABLE;
		break;
	case 73:
		status = MHD_HTTP_CONFLICT;
		break;
	case 77:
		status = MHD_HTTP_FORBIDDEN;
		break;
	default:
		break;
	}
	return text ? answer_value(x, status,
			      json_pack("{s:o, s:i}", "error", text_value(text), "code", code))
		    : MHD_NO;
}
