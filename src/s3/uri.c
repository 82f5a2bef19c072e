#include "s3/uri.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"

int uri_encode(struct buf *out, const char *s, size_t n, bool keep_slash)
{
	char *room = buf_reserve(out, 3 * n);

	if (!room) {
		/* Three times the length is the worst case; if only the worst case exceeds the
		 * limit, encode byte by byte. */
		if (out->failure != BUF_OVER_LIMIT)
			return -1;
		out->failure = 0;
		for (size_t i = 0; i < n; i++) {
			char three[3];
			size_t len = ascii_encode_byte(three, (unsigned char)s[i], keep_slash);

			if (buf_add(out, three, len) < 0)
				return -1;
		}
		return 0;
	}
	buf_grown(out, ascii_encode(room, s, n, keep_slash));
	return 0;
}

int uri_decode(struct buf *out, const char *s, size_t n, enum uri_plus plus)
{
	size_t before = out->len;

	for (size_t i = 0, used; i < n; i += used) {
		char c;

		used = ascii_decode_byte(s + i, n - i, plus == URI_PLUS_SPACE, &c);
		if (!used || c == '\0' || buf_add_char(out, c) < 0) {
			buf_truncate(out, before);
			return -1;
		}
	}
	return 0;
}

bool uri_query_next(const char **at, struct span *name, struct span *value)
{
	const char *p = *at;

	if (!p)
		return false;
	while (*p == '&')
		p++;
	if (*p == '\0') {
		*at = p;
		return false;
	}
	size_t n = strcspn(p, "&");
	const char *equals = memchr(p, '=', n);

	name->p = p;
	name->n = equals ? (size_t)(equals - p) : n;
	value->p = equals ? equals + 1 : NULL;
	value->n = equals ? n - name->n - 1 : 0;
	*at = p + n;
	return true;
}

/* Returns true if the encoded `name` decodes to `want`. */
static bool name_is(const struct span *name, const char *want)
{
	size_t i = 0;

	for (size_t used; i < name->n && *want; i += used, want++) {
		char c;

		used = ascii_decode_byte(name->p + i, name->n - i, true, &c);
		if (!used || c != *want)
			return false;
	}
	return i == name->n && !*want;
}

int uri_query_get(const char *query, const char *name, struct buf *out)
{
	struct span n, v;

	for (const char *at = query; uri_query_next(&at, &n, &v);) {
		if (!name_is(&n, name))
			continue;
		if (out && v.p && uri_decode(out, v.p, v.n, URI_PLUS_SPACE) < 0)
			return -1;
		return 1;
	}
	return 0;
}

bool uri_query_is_valid(const char *query)
{
	size_t n = query ? strlen(query) : 0;

	for (size_t i = 0, used; i < n; i += used) {
		char c;

		used = ascii_decode_byte(query + i, n - i, true, &c);
		if (!used || c == '\0')
			return false;
	}
	return true;
}

int uri_query_add(struct buf *query, const char *name, const char *value)
{
	if (query->len > 0)
		buf_add_char(query, '&');
	uri_encode(query, name, strlen(name), false);
	if (value) {
		buf_add_char(query, '=');
		uri_encode(query, value, strlen(value), false);
	}
	return buf_failed(query) ? -1 : 0;
}

bool s3_url_is(const char *text)
{
	return str_starts(text, "s3://");
}

int s3_url_parse(const char *text, struct s3_url *out, struct penstock_error *err)
{
	if (!s3_url_is(text))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid URL '%s'; expected s3://BUCKET/KEY", text);
	const char *bucket = text + strlen("s3://");
	size_t n = strcspn(bucket, "/");
	struct s3_url url = {.key = NULL};

	if (n == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid URL '%s': no bucket; expected s3://BUCKET/KEY", text);
	if (n >= sizeof(url.bucket))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid bucket name in '%s': it must be 3 to 63 characters long", text);
	memcpy(url.bucket, bucket, n);
	url.bucket[n] = '\0';
	const char *problem = s3_bucket_problem(url.bucket);

	if (problem)
		return error_set(err, PENSTOCK_E_INVALID, "invalid bucket name in '%s': it %s",
			text, problem);
	const char *key = bucket[n] == '/' ? bucket + n + 1 : "";

	problem = *key ? s3_key_problem(key, strlen(key)) : NULL;
	if (problem)
		return error_set(err, PENSTOCK_E_INVALID, "the key in '%s' %s", text, problem);
	url.key = strdup(key);
	if (!url.key)
		return error_memory(err);
	*out = url;
	return 0;
}

void s3_url_release(struct s3_url *url)
{
	free(url->key);
	url->key = NULL;
}

int s3_url_format(struct buf *out, const char *bucket, const char *key)
{
	buf_add_str(out, "s3://");
	buf_add_str(out, bucket);
	if (*key) {
		buf_add_char(out, '/');
		buf_add_str(out, key);
	}
	return buf_failed(out) ? -1 : 0;
}

static bool is_ipv4(const char *s)
{
	int dots = 0, digits = 0;

	for (; *s; s++) {
		if (*s == '.') {
			if (digits == 0)
				return false;
			dots++;
			digits = 0;
		} else if (*s >= '0' && *s <= '9' && digits < 3) {
			digits++;
		} else {
			return false;
		}
	}
	return dots == 3 && digits > 0;
}

const char *s3_bucket_problem(const char *name)
{
	size_t n = strlen(name);

	if (n < 3 || n > 63)
		return "must be 3 to 63 characters long";
	for (size_t i = 0; i < n; i++) {
		char c = name[i];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

		if (!alnum && c != '-' && c != '.')
			return "may contain only lower-case letters, digits, '-' and '.'";
		if (!alnum && (i == 0 || i == n - 1))
			return "must begin and end with a letter or digit";
		if (c == '.' && name[i + 1] == '.')
			return "must not contain two consecutive dots";
	}
	if (is_ipv4(name))
		return "must not look like an IP address";
	if (str_starts(name, "xn--"))
		return "must not begin with 'xn--'";
	if (str_ends(name, "-s3alias"))
		return "must not end with '-s3alias'";
	return NULL;
}

const char *s3_key_problem(const char *key, size_t n)
{
	if (n == 0)
		return "must not be empty";
	if (n > LIMIT_S3_KEY)
		return "must not be longer than 1024 bytes";
	if (memchr(key, '\0', n))
		return "must not contain a NUL byte";
	if (!str_is_utf8(key, n))
		return "must be UTF-8";
	return NULL;
}
