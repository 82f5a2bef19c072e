/*
 * Evaluates If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since and If-Range, in the
 * order of RFC 9110 section 13.2.2, which is also S3's.
 *
 * ETags are compared as in S3: quoted or not (many clients send the bare hash), "*" matches any
 * existing object, and a comma-separated list matches if one of its tags does. A weak tag (W/"…")
 * never satisfies If-Match and may satisfy If-None-Match. An invalid date counts as absent.
 */
#ifndef S3_CONDITIONS_H
#define S3_CONDITIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Header values as received, each NULL if absent. */
struct conditions {
	const char *if_match;
	const char *if_none_match;
	const char *if_modified_since;
	const char *if_unmodified_since;
};

enum condition_result {
	CONDITION_PASS,
	CONDITION_NOT_MODIFIED, /* 304; only for reads */
	CONDITION_FAILED, /* 412 */
};

static inline bool conditions_any(const struct conditions *c)
{
	return c->if_match || c->if_none_match || c->if_modified_since || c->if_unmodified_since;
}

/* The current state of the object. */
struct condition_state {
	bool exists;
	const char *etag; /* with or without quotes; NULL if the object does not exist */
	int64_t modified; /* seconds since 1970 */
};

/*
 * `read` is true for GET and HEAD. If `read` is false, as for a write, If-None-Match gives
 * CONDITION_FAILED instead of 304, and If-Modified-Since has no effect. A write with If-Match to a
 * missing object gives CONDITION_FAILED; S3 replies to such a write with 404 NoSuchKey, so the
 * caller also checks `exists`. For the source of a copy use conditions_evaluate_copy_source().
 */
enum condition_result conditions_evaluate(
	const struct conditions *c, const struct condition_state *state, bool read);
/* Evaluates the x-amz-copy-source-if-… headers like the conditions of a read, but returns
 * CONDITION_FAILED instead of CONDITION_NOT_MODIFIED. */
enum condition_result conditions_evaluate_copy_source(
	const struct conditions *c, const struct condition_state *state);

/* Returns true if a Range may be honoured: If-Range is absent, or is a matching strong ETag or
 * date. */
bool condition_if_range(const char *if_range, const struct condition_state *state);

/* Returns true if one of the comma-separated ETags of `list` equals `etag` or is "*" without
 * quotes. Weak ETags (W/"…") count only if `weak_allowed` is set. */
bool etag_list_matches(const char *list, const char *etag, bool weak_allowed);

#endif
