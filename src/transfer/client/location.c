#include "transfer/location.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "s3/uri.h"

static int parse_object(struct location *at, struct penstock_error *err)
{
	const char *bucket = at->text + strlen("s3://"); /* "gs://" has the same length */
	const char *slash = strchrnul(bucket, '/');
	size_t len = (size_t)(slash - bucket);
	const char *problem;

	if (len >= sizeof(at->bucket))
		return error_set(err, PENSTOCK_E_INVALID, "invalid bucket name in '%s': it %s",
			at->text, "must be 3 to 63 characters long");
	memcpy(at->bucket, bucket, len);
	at->bucket[len] = '\0';
	at->key = *slash ? slash + 1 : slash;
	if (!len)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid URL '%s': the name of the bucket is missing", at->text);
	problem = s3_bucket_problem(at->bucket);
	if (problem)
		return error_set(err, PENSTOCK_E_INVALID, "invalid bucket name in '%s': it %s",
			at->text, problem);
	return 0;
}

int location_parse(struct location *out, const char *text, struct penstock_error *err)
{
	struct location at = {.text = strdup(text)};
	const char *scheme = strstr(text, "://");
	int r = 0;

	if (!at.text)
		return error_memory(err);
	at.key = at.text;
	if (!*text) {
		r = error_set(err, PENSTOCK_E_INVALID, "empty path or URL");
	} else if (strcmp(text, "-") == 0) {
		at.kind = LOCATION_STDIO;
	} else if (location_is_object(text)) {
		at.kind = LOCATION_OBJECT;
		at.google = *text == 'g';
		r = parse_object(&at, err);
	} else if (str_starts(text, "http://") || str_starts(text, "https://")) {
		at.kind = LOCATION_HTTP;
		r = log_redact_user(text) < 0 ? error_memory(err) : 0;
	} else if (scheme && scheme > text && !memchr(text, '/', (size_t)(scheme - text))) {
		r = error_set(err, PENSTOCK_E_INVALID,
			"invalid URL '%s': '%.*s://' is not s3://, gs://, http:// or https://; write "
			"'./%s' for a local file of that name",
			text, (int)(scheme - text), text, text);
	}
	if (r < 0) {
		location_release(&at);
		return r;
	}
	*out = at;
	return 0;
}

void location_release(struct location *location)
{
	free(location->text);
	*location = (struct location){0};
}

bool location_has_wildcard(const struct location *location)
{
	return !location->literal &&
	       (location->kind == LOCATION_OBJECT || location->kind == LOCATION_LOCAL) &&
	       strpbrk(location->key, "*?");
}

size_t location_literal_prefix(const struct location *location)
{
	size_t len = strcspn(location->key, "*?");

	if (location->literal)
		return strlen(location->key);
	if (!location->key[len])
		return len;
	while (len && location->key[len - 1] != '/')
		len--;
	return len;
}

/* After a mismatch, only the last '*' is tried again, so the time is quadratic at worst. */
bool wildcard_match(const char *pattern, const char *text)
{
	const char *star = NULL, *from = text;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			from = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}

static bool matches_any(const struct strlist *patterns, const char *path)
{
	for (size_t i = 0; i < patterns->n; i++) {
		if (wildcard_match(patterns->items[i], path))
			return true;
	}
	return false;
}

bool path_filter_takes(const struct path_filter *filter, const char *path)
{
	return (!filter->include->n || matches_any(filter->include, path)) &&
	       !matches_any(filter->exclude, path);
}

char *location_prefix(const char *key)
{
	return str_printf("%s%s", key, *key && !str_ends(key, "/") ? "/" : "");
}

bool location_is_dir(const char *text)
{
	struct stat st;

	return strchr(text, '/') && stat(text, &st) == 0 && S_ISDIR(st.st_mode);
}
