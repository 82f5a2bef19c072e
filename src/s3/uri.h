/*
 * Percent-encoding as AWS signs it, query strings in wire form, s3:// URLs, and which names buckets
 * and keys may have. Texts are pointer and length where bytes other than NUL must get through.
 */
#ifndef S3_URI_H
#define S3_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct penstock_error;

/* A piece of somebody else's text. */
struct span {
	const char *p;
	size_t n;
};

/* Everything but A-Z a-z 0-9 - . _ ~ (and '/' if kept) becomes %XX in upper case. 0 or -1 (`out`
 * says why). */
int uri_encode(struct buf *out, const char *s, size_t n, bool keep_slash);

enum uri_plus { URI_PLUS_LITERAL, URI_PLUS_SPACE };
/* Strict: -1 for a '%' without two hexadecimal digits, for a decoded or raw NUL, or where `out` is
 * full. In queries '+' means a space, in paths itself. Appends. */
int uri_decode(struct buf *out, const char *s, size_t n, enum uri_plus plus);

/*
 * Walks "a=1&b&c=", still encoded: name and value of the next parameter. A parameter without '='
 * has a value with p == NULL. Empty pieces ("&&") are skipped. False: no more.
 *
 *	struct span name, value;
 *
 *	for (const char *at = query; uri_query_next(&at, &name, &value);)
 */
bool uri_query_next(const char **at, struct span *name, struct span *value);
/*
 * The decoded value of the first parameter called `name`, appended to `out` (NULL: only look).
 * 1: there, 0: not there, -1: not decodable or too long for `out`. `query` may be NULL.
 */
int uri_query_get(const char *query, const char *name, struct buf *out);
/* Appends "&name=value" ("name=value" to an empty buffer), both encoded; `value` NULL: only name.
 */
int uri_query_add(struct buf *query, const char *name, const char *value);

/* "s3://bucket/key": the key is what follows the first '/', taken literally (no decoding). */
struct s3_url {
	char bucket[64];
	char *key; /* owned; "" for the bucket itself */
};
bool s3_url_is(const char *text); /* begins with "s3://" */
int s3_url_parse(const char *text, struct s3_url *out, struct penstock_error *err);
void s3_url_release(struct s3_url *url);
int s3_url_format(struct buf *out, const char *bucket, const char *key);

/* NULL: a valid name; else why not, as "must be 3 to 63 characters long". */
const char *s3_bucket_problem(const char *name);
/* NULL: a valid key: 1 to 1,024 bytes of well-formed UTF-8 without NUL; else why not. */
const char *s3_key_problem(const char *key, size_t n);

#endif
