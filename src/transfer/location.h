/*
 * Places that bytes come from or go to, as people name them:
 *
 *	s3://bucket/key    gs://bucket/key    http(s)://host/path    dir/file    -
 *
 *	_cleanup_(location_release) struct location at = { 0 };
 *
 *	location_parse(&at, "s3://bucket/2024-*", err);
 *	at.kind == LOCATION_OBJECT, at.bucket "bucket", at.key "2024-*", location_has_wildcard(&at)
 *
 * Keys are taken literally (no %-decoding). In keys and local paths '*' stands for any characters, '/'
 * too, and '?' for one; nothing else is special.
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
	char *text;	 /* as it was given; owned */
	bool google;	 /* an object of Google Cloud Storage: gs:// */
	bool literal;	 /* '*', '?' and a "/" at the end are ordinary; for whoever says so */
	char bucket[64]; /* of an object */
	const char
		*key; /* of an object, "" for the bucket; else the path or URL. Points into text */
};

/* PENSTOCK_E_INVALID: empty, an unknown scheme, or no bucket name. */
int location_parse(struct location *out, const char *text, struct penstock_error *err);
void location_release(struct location *location);
/* "s3" or "gs", of an object. */
static inline const char *location_scheme(const struct location *location)
{
	return location->google ? "gs" : "s3";
}

/* Whether the key or path holds '*' or '?'. */
bool location_has_wildcard(const struct location *location);
/* The key up to the last '/' before the first wildcard: what a listing begins with. Its length. */
size_t location_literal_prefix(const struct location *location);

/* '*': any characters; '?': one; the rest is literal. */
bool wildcard_match(const char *pattern, const char *text);

/* What --include and --exclude say; both lists are borrowed. */
struct path_filter {
	const struct strlist *include; /* patterns; empty: everything */
	const struct strlist *exclude;
};
/* Whether a path, relative to its source, matches one of `include` and none of `exclude`. */
bool path_filter_takes(const struct path_filter *filter, const char *path);

#endif
