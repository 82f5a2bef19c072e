/*
 * Percent-encoding as AWS signs it, query strings as on the wire, s3:// URLs, and the rules for
 * names of buckets and keys. A text that may contain arbitrary bytes is passed as a pointer and a
 * length.
 */
#ifndef S3_URI_H
#define S3_URI_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/buf.h"

struct penstock_error;

/* A piece of a text; the span does not own the text. */
struct span {
	const char *p;
	size_t n;
};

static inline bool span_is(struct span s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

/* Encodes everything but A-Z a-z 0-9 - . _ ~ (and '/' if kept) as %XX in upper case. Returns 0, or
 * -1 on failure (see buf_error()). */
int uri_encode(struct buf *out, const char *s, size_t n, bool keep_slash);

enum uri_plus { URI_PLUS_LITERAL, URI_PLUS_SPACE };
/* Appends the decoded text to `out`. '+' means a space in queries, and itself in paths. Returns -1,
 * with `out` unchanged, if a '%' lacks two hexadecimal digits, if there is a NUL, encoded or not,
 * or if `out` is full or out of memory. */
int uri_decode(struct buf *out, const char *s, size_t n, enum uri_plus plus);

/*
 * Walks "a=1&b&c=", still encoded: gets the name and value of the next parameter. A parameter
 * without '=' has a value with p == NULL. Empty pieces ("&&") are skipped. Returns false at the
 * end.
 *
 *	struct span name, value;
 *
 *	for (const char *at = query; uri_query_next(&at, &name, &value);)
 *		...
 */
bool uri_query_next(const char **at, struct span *name, struct span *value);
/*
 * Appends the decoded value of the first parameter called `name` to `out`; if `out` is NULL, only
 * checks that the parameter exists. Returns 1 if the parameter exists, 0 if not, -1 if its value
 * cannot be decoded or is too long for `out`. `query` may be NULL.
 */
int uri_query_get(const char *query, const char *name, struct buf *out);
/* Returns true if all names and values can be decoded. `query` may be NULL. */
bool uri_query_is_valid(const char *query);
/* Appends "&name=value" ("name=value" to an empty buffer), both encoded. Appends only the name if
 * `value` is NULL. */
int uri_query_add(struct buf *query, const char *name, const char *value);

/* "s3://bucket/key": the key is everything after the first '/', taken literally (no decoding). */
struct s3_url {
	char bucket[64];
	char *key; /* owned; "" for the bucket itself */
};
bool s3_url_is(const char *text); /* returns true if `text` begins with "s3://" */
int s3_url_parse(const char *text, struct s3_url *out, struct penstock_error *err);
void s3_url_release(struct s3_url *url);
int s3_url_format(struct buf *out, const char *bucket, const char *key);

/* Returns NULL if the name is valid, else the reason, such as "must be 3 to 63 characters long". */
const char *s3_bucket_problem(const char *name);
/* Returns NULL if the key is valid (1 to 1,024 bytes of well-formed UTF-8 without NUL), else the
 * reason. */
const char *s3_key_problem(const char *key, size_t n);

#endif
