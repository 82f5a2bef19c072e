/*
 * Replies, and the parameters of a request.
 *
 *	const char *run = param(x, "run");
 *
 *	if (!run)
 *		return answer_error(x, MHD_HTTP_BAD_REQUEST, "'run' is missing");
 *	return answer_json(x, json_pack("{s:s}", "run", run));
 *
 * All replies have the headers that keep a browser from running or framing their contents.
 */
#ifndef UI_ANSWER_H
#define UI_ANSWER_H

#include <jansson.h>
#include <stdint.h>

#include "ui/internal.h"

struct buf;
struct penstock_error;

/* Returns a parameter of the URL; NULL if it is missing or "". */
const char *param(const struct exchange *x, const char *name);
/* Reads a number, or uses `fallback` if the parameter is missing. Returns false if the parameter is
 * invalid. */
bool param_number(const struct exchange *x, const char *name, int64_t min, int64_t max,
	int64_t fallback, int64_t *out);
/* Returns a header of the request, or NULL if it is missing. */
const char *sent_header(const struct exchange *x, const char *name);
/* Returns true if the client accepts a reply that is compressed by gzip. */
bool accepts_gzip(const struct exchange *x);

/* Sends a response, which may have headers of its own, and releases it. `response` is NULL if out
 * of memory. */
enum MHD_Result answer(struct exchange *x, unsigned status, struct MHD_Response *response);
/* Sends the contents of `body`, which are moved. */
enum MHD_Result answer_body(
	struct exchange *x, unsigned status, const char *type, struct buf *body);
#define ANSWER_TAG_SIZE 19 /* 16 digits, quotes and NUL */
/* Writes the ETag of a body. Returns false if out of memory. */
bool answer_tag(const struct exchange *x, const struct buf *body, char out[static ANSWER_TAG_SIZE]);
/* Like answer_body(), with an ETag; sends 304 if the browser has the body of this ETag. */
enum MHD_Result answer_with_tag(
	struct exchange *x, const char *type, struct buf *body, const char *tag);
/* Like answer_with_tag(), with the ETag of the body. */
enum MHD_Result answer_tagged(struct exchange *x, const char *type, struct buf *body);
/* Sends `value`, and releases the reference. */
enum MHD_Result answer_json(struct exchange *x, json_t *value);
/* Adds a warning to the reply, in the header X-Penstock-Warning. */
void answer_warn(struct exchange *x, const char *message);
/* Sends {"error": "…"}. */
enum MHD_Result answer_error(struct exchange *x, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Like answer_error(), with the message and a status for `err`. Releases `err`. */
enum MHD_Result answer_failure(struct exchange *x, struct penstock_error *err);
/* Sends {"error": "…", "code": 66}: the message and exit code of a verb. */
enum MHD_Result answer_verb_failed(struct exchange *x, int code, const char *message);

#endif
