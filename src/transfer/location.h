/*
 * Sources and targets of bytes, as users write them:
 *
 *	s3://bucket/key    gs://bucket/key    http(s)://host/path    dir/file    -
 *
 *	_cleanup_(location_release) struct location at = { 0 };
 *
 *	location_parse(&at, "s3://bucket/2024-*", err);
 *	... at.kind is LOCATION_OBJECT, at.bucket "bucket", at.key "2024-*", and
 *	... location_has_wildcard(&at) is true
 *
 * Keys are literal (no %-decoding). In keys and local paths '*' matches any characters including
 * '/', and '?' matches one; nothing else is special.
 */
#ifndef TRANSFER_LOCATION_H
#define TRANSFER_LOCATION_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct penstock_error;

enum location_kind { LOCATION_LOCAL, LOCATION_STDIO, LOCATION_OBJECT, LOCATION_HTTP };

struct location {
	enum location_kind kind;
	char *text; /* as given; owned */
	bool google; /* an object of Google Cloud Storage: gs:// */
	bool literal; /* '*', '?' and a trailing "/" are ordinary characters; set by the caller */
	char bucket[64]; /* bucket of an object */
	/* key of an object, "" for the bucket; else the path or URL. Points into `text` */
	const char *key;
};

/* Returns true for s3:// and gs://. */
static inline bool location_is_object(const char *text)
{
	return str_starts(text, "s3://") || str_starts(text, "gs://");
}

/* Fails with PENSTOCK_E_INVALID if `text` is empty, has an unknown scheme, or has no valid bucket
 * name. */
int location_parse(struct location *out, const char *text, struct penstock_error *err);
void location_release(struct location *location);
/* Returns "s3" or "gs"; for objects only. */
static inline const char *location_scheme(const struct location *location)
{
	return location->google ? "gs" : "s3";
}

/* Returns the prefix of everything below a key, a path or a URL: `key` with a slash at its end, ""
 * for "". Returns NULL if out of memory; free() the prefix. */
char *location_prefix(const char *key);
/* Returns true if `text` has a slash, which no name of a run has, and is the path of an existing
 * directory. */
bool location_is_dir(const char *text);
/* Returns true if the key or path contains '*' or '?', unless the location is literal. */
bool location_has_wildcard(const struct location *location);
/* Returns the length of the prefix to list: the key or path up to and including the last '/' before
 * the first wildcard, or all of it if there is no wildcard. */
size_t location_literal_prefix(const struct location *location);

/* '*' matches any characters, '?' one; everything else is literal. */
bool wildcard_match(const char *pattern, const char *text);

/* The patterns of --include and --exclude; both lists are borrowed. */
struct path_filter {
	const struct strlist *include; /* empty to take everything */
	const struct strlist *exclude;
};
/* Returns true if `path`, relative to its source, matches one of `include` and none of
 * `exclude`. */
bool path_filter_takes(const struct path_filter *filter, const char *path);

#endif
