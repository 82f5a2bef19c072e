/* The canonical form of a request: the text that the signature covers. */
#include "s3/sign/internal.h"

#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/uri.h"

/* Decodes `s` and encodes it again; `out` has room for 3 * n. Returns -1 for a '%' without two
 * digits. */
static int64_t reencode(char *out, const char *s, size_t n, bool keep_slash, bool plus_is_space)
{
	char *start = out;

	for (size_t i = 0, used; i < n; i += used) {
		char c;

		used = ascii_decode_byte(s + i, n - i, plus_is_space, &c);
		if (!used)
			return -1;
		out += ascii_encode_byte(out, (unsigned char)c, keep_slash);
	}
	return out - start;
}

enum sigv4_failure sigv4_buf_problem(const struct buf *b)
{
	return b->failure == BUF_NO_MEMORY ? SIGV4_NO_MEMORY : SIGV4_TOO_LARGE;
}

/* Appends `s`, which may have another encoding, in its canonical encoding. */
static enum sigv4_failure add_reencoded(
	struct buf *out, const char *s, size_t n, bool keep_slash, bool plus_is_space)
{
	char *room = buf_reserve(out, 3 * n);
	int64_t len;

	if (!room)
		return sigv4_buf_problem(out);
	len = reencode(room, s, n, keep_slash, plus_is_space);
	if (len < 0)
		return SIGV4_MALFORMED_URI;
	buf_grown(out, (size_t)len);
	return SIGV4_VALID;
}

/* Appends the path as services other than S3 require it: "." and ".." resolved, no empty segments,
 * and the already encoded path encoded again. */
static void add_normalized_path(struct buf *out, const char *path)
{
	size_t start = out->len;

	for (const char *p = path; *p;) {
		size_t n;

		while (*p == '/')
			p++;
		n = strcspn(p, "/");
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (out->len > start && out->data[out->len - 1] != '/')
				buf_truncate(out, out->len - 1);
			if (out->len > start)
				buf_truncate(out, out->len - 1);
		} else if (n > 0 && !(n == 1 && p[0] == '.')) {
			buf_add_char(out, '/');
			uri_encode(out, p, n, false);
		}
		p += n;
	}
	size_t n = strlen(path);

	if (out->len == start || (n > 0 && path[n - 1] == '/'))
		buf_add_char(out, '/');
}

static enum sigv4_failure add_path(struct sigv4 *ws, const char *path, struct buf *out)
{
	if (ws->generic) {
		add_normalized_path(out, path);
		return buf_failed(out) ? sigv4_buf_problem(out) : SIGV4_VALID;
	}
	if (*path == '\0')
		path = "/";
	return add_reencoded(out, path, strlen(path), true, false);
}

static int compare_parameters(
	const struct buf *text, const struct sigv4_order *a, const struct sigv4_order *b)
{
	size_t n = a->name_len < b->name_len ? a->name_len : b->name_len;
	int c = memcmp(text->data + a->name, text->data + b->name, n);

	if (c == 0 && a->name_len != b->name_len)
		c = a->name_len < b->name_len ? -1 : 1;
	if (c != 0)
		return c;
	n = a->value_len < b->value_len ? a->value_len : b->value_len;
	c = memcmp(text->data + a->name + a->name_len, text->data + b->name + b->name_len, n);
	return c != 0 ? c : (a->value_len > b->value_len) - (a->value_len < b->value_len);
}

/* Encodes every parameter into ws->text and lists them in ws->order; skips the signature. */
static enum sigv4_failure collect_parameters(struct sigv4 *ws, const char *query, size_t *count)
{
	struct sigv4_order *order = ws->order;
	struct span name, value;
	size_t n = 0;

	buf_clear(&ws->text);
	for (const char *at = query; uri_query_next(&at, &name, &value);) {
		struct sigv4_order *o = &order[n];
		enum sigv4_failure f;

		if (span_is(name, "X-Amz-Signature"))
			continue;
		if (n == LIMIT_SIGV4_PARAMETERS)
			return SIGV4_TOO_LARGE;
		o->name = (uint32_t)ws->text.len;
		f = add_reencoded(&ws->text, name.p, name.n, false, true);
		if (f)
			return f;
		o->name_len = (uint32_t)ws->text.len - o->name;
		f = value.p ? add_reencoded(&ws->text, value.p, value.n, false, true) : SIGV4_VALID;
		if (f)
			return f;
		o->value_len = (uint32_t)ws->text.len - o->name - o->name_len;
		n++;
	}
	*count = n;
	return SIGV4_VALID;
}

static enum sigv4_failure add_query(struct sigv4 *ws, const char *query, struct buf *out)
{
	struct sigv4_order *order = ws->order;
	size_t n = 0;
	enum sigv4_failure f = collect_parameters(ws, query, &n);

	if (f)
		return f;
	for (size_t i = 1; i < n; i++) {
		struct sigv4_order moving = order[i];
		size_t k = i;

		for (; k > 0 && compare_parameters(&ws->text, &order[k - 1], &moving) > 0; k--)
			order[k] = order[k - 1];
		order[k] = moving;
	}
	for (size_t i = 0; i < n; i++) {
		const char *text = ws->text.data + order[i].name;

		if (i > 0)
			buf_add_char(out, '&');
		buf_add(out, text, order[i].name_len);
		buf_add_char(out, '=');
		buf_add(out, text + order[i].name_len, order[i].value_len);
	}
	return buf_failed(out) ? sigv4_buf_problem(out) : SIGV4_VALID;
}

/* Appends the value, trimmed, with runs of white space replaced by one space. */
static void add_header_value(struct buf *out, const char *value)
{
	size_t n = strlen(value);
	char *room = buf_reserve(out, n);
	char *start = room;

	if (!room)
		return;
	for (; *value; value++) {
		if (!ascii_space(*value))
			*room++ = *value;
		else if (room > start && room[-1] != ' ')
			*room++ = ' ';
	}
	if (room > start && room[-1] == ' ')
		room--;
	buf_grown(out, (size_t)(room - start));
}

/* Appends "name:value,value\n" for one signed header. Returns SIGV4_HEADER_ABSENT if the request
 * lacks the header. */
static enum sigv4_failure add_header(
	const struct sigv4_request *req, const char *name, size_t name_len, struct buf *out)
{
	bool found = false;

	buf_add(out, name, name_len);
	buf_add_char(out, ':');
	for (size_t i = 0; i < req->n_headers; i++) {
		const char *have = req->headers[i].name;

		if (ascii_lower(have[0]) != name[0] || strlen(have) != name_len)
			continue;
		size_t k = 0;

		while (k < name_len && ascii_lower(have[k]) == name[k])
			k++;
		if (k < name_len)
			continue;
		if (found)
			buf_add_char(out, ',');
		add_header_value(out, req->headers[i].value);
		found = true;
	}
	buf_add_char(out, '\n');
	return found ? SIGV4_VALID : SIGV4_HEADER_ABSENT;
}

static enum sigv4_failure add_headers(
	const struct sigv4_request *req, const char *signed_headers, struct buf *out)
{
	unsigned count = 0;

	for (const char *p = signed_headers; *p;) {
		size_t n = strcspn(p, ";");
		enum sigv4_failure f;

		if (++count > LIMIT_SIGV4_PARAMETERS)
			return SIGV4_TOO_LARGE;
		f = add_header(req, p, n, out);
		if (f)
			return f;
		p += n;
		p += *p == ';';
	}
	return buf_failed(out) ? sigv4_buf_problem(out) : SIGV4_VALID;
}

enum sigv4_failure sigv4_build_canonical(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, const char *payload_hash, struct buf *out)
{
	enum sigv4_failure f;

	buf_add_str(out, req->method);
	buf_add_char(out, '\n');
	f = add_path(ws, req->path, out);
	if (f)
		return f;
	buf_add_char(out, '\n');
	if (req->query && *req->query) {
		f = add_query(ws, req->query, out);
		if (f)
			return f;
	}
	buf_add_char(out, '\n');
	f = add_headers(req, signed_headers, out);
	if (f)
		return f;
	buf_add_char(out, '\n');
	buf_add_str(out, signed_headers);
	buf_add_char(out, '\n');
	buf_add_str(out, payload_hash);
	return buf_failed(out) ? sigv4_buf_problem(out) : SIGV4_VALID;
}

int sigv4_canonical_request(struct sigv4 *ws, const struct sigv4_request *req,
	const char *signed_headers, struct buf *out)
{
	const char *hash = req->payload_hash ? req->payload_hash : SIGV4_UNSIGNED_PAYLOAD;

	return sigv4_build_canonical(ws, req, signed_headers, hash, out) ? -1 : 0;
}
