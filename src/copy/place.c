#include "copy/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "net/http/http.h"
#include "s3/uri.h"
#include "transfer/http_fetch.h"

#define COMPONENT_MAX 255 /* bytes, the limit of Linux file systems */

/* Returns `text` with exactly one '/' at its end if `slash` is set, otherwise with none. */
static char *with_slash(const char *text, size_t len, bool slash)
{
	while (len && text[len - 1] == '/')
		len--;
	return str_printf("%.*s%s", (int)len, text, slash ? "/" : "");
}

/* Returns true if `name` ends in a slash; the query and the fragment of a URL do not count. */
static bool ends_in_slash(const char *name, bool url)
{
	size_t len = url ? strcspn(name, "?#") : strlen(name);

	return len && name[len - 1] == '/';
}

static int local_place(struct place *place, const struct location *at)
{
	size_t literal = location_literal_prefix(at);
	struct stat st;

	place->path = strdup(at->key);
	/* An existing file may have '*' or '?' in its name. */
	place->wildcard = place->wildcard && lstat(at->key, &st) < 0;
	place->directory = ends_in_slash(at->key, false) ||
			   (stat(at->key, &st) == 0 && S_ISDIR(st.st_mode));
	if (!place->wildcard)
		place->base = with_slash(at->key, strlen(at->key), false);
	else
		place->base = literal ? with_slash(at->key, literal, false) : strdup(".");
	return place->path && place->base ? 0 : -1;
}

static int object_place(struct place *place, const struct location *at)
{
	size_t len = strlen(at->key);

	memcpy(place->bucket, at->bucket, sizeof(place->bucket));
	place->key = strdup(at->key);
	place->directory = !len || ends_in_slash(at->key, false);
	if (place->wildcard)
		place->base = strndup(at->key, location_literal_prefix(at));
	else if (place->directory)
		place->base = strdup(at->key);
	else
		place->base = with_slash(at->key, len, true);
	return place->key && place->base ? 0 : -1;
}

/* Fills in the place of a URL. A query or a user name is often a secret, so `text` has neither. */
static int url_place(struct place *place, const struct location *at)
{
	struct buf shown = BUF_INIT(LIMIT_STRING);

	place->url = strdup(at->key);
	place->directory = ends_in_slash(at->key, true);
	place->base = with_slash(at->key, strlen(at->key), true);
	free(place->text);
	http_url_display(at->key, &shown);
	place->text = buf_take(&shown);
	return place->url && place->base && place->text ? 0 : -1;
}

int place_parse(struct place *out, const char *text, bool literal, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	struct place place = {.literal = literal};
	int r = location_parse(&at, text, err);

	if (r < 0)
		return r;
	at.literal = literal;
	place.kind = at.kind;
	place.google = at.google;
	place.wildcard = location_has_wildcard(&at);
	place.text = strdup(text);
	switch (place.text ? at.kind : LOCATION_STDIO) {
	case LOCATION_STDIO:
		r = place.text ? 0 : -1;
		break;
	case LOCATION_LOCAL:
		r = local_place(&place, &at);
		break;
	case LOCATION_OBJECT:
		r = object_place(&place, &at);
		break;
	case LOCATION_HTTP:
		r = url_place(&place, &at);
		break;
	}
	if (r < 0) {
		place_release(&place);
		return error_memory(err);
	}
	*out = place;
	return 0;
}

int place_of_directory(struct place *out, const char *path)
{
	struct place place = {.kind = LOCATION_LOCAL, .literal = true, .directory = true};

	place.text = strdup(path);
	place.path = strdup(path);
	place.base = with_slash(path, strlen(path), false);
	if (!place.text || !place.path || !place.base) {
		place_release(&place);
		return -1;
	}
	*out = place;
	return 0;
}

int place_of_prefix(struct place *out, const char *scheme, const char *bucket, const char *prefix)
{
	struct place place = {.kind = LOCATION_OBJECT, .literal = true, .directory = true};

	snprintf(place.bucket, sizeof(place.bucket), "%s", bucket);
	place.key = strdup(prefix);
	place.base = *prefix ? with_slash(prefix, strlen(prefix), true) : strdup("");
	place.text = str_printf("%s://%s/%s", scheme, bucket, prefix);
	if (!place.text || !place.key || !place.base) {
		place_release(&place);
		return -1;
	}
	*out = place;
	return 0;
}

void place_release(struct place *place)
{
	free(place->text);
	free(place->key);
	free(place->path);
	free(place->url);
	free(place->base);
	*place = (struct place){0};
}

int place_matches(const struct place *place, const char *path)
{
	const char *pattern = place->kind == LOCATION_OBJECT ? place->key : place->path;
	/* If the base is ".", the path begins with "./" only if the pattern does. */
	bool local = place->kind == LOCATION_LOCAL;
	bool here = local && strcmp(place->base, ".") == 0 && !str_starts(pattern, "./");
	_cleanup_free_ char *whole = str_printf(
		"%s%s%s", here ? "" : place->base, local && !here ? "/" : "", path);

	return whole ? wildcard_match(pattern, whole) : -1;
}

char *place_name(const struct place *place)
{
	struct buf name = BUF_INIT(LIMIT_STRING);
	const char *text = place->key ? place->key : place->path, *from;

	if (place->kind == LOCATION_HTTP)
		return http_fetch_name(place->url, &name) < 0 ? NULL : buf_take(&name);
	if (place->kind == LOCATION_STDIO)
		return strdup("");
	for (from = text + strlen(text); from > text && from[-1] != '/';)
		from--;
	/* A source "." or ".." gets no directory of its own at the target. */
	if (place->path && (strcmp(from, ".") == 0 || strcmp(from, "..") == 0))
		return strdup("");
	return strdup(from);
}

/* ---- targets ---- */

static int resolve_key(struct target *target, const struct place *place, const char *name,
	struct penstock_error *err)
{
	const char *problem;

	target->key = name ? str_printf("%s%s", place->base, name) : strdup(place->key);
	if (!target->key)
		return error_memory(err);
	problem = s3_key_problem(target->key, strlen(target->key));
	return problem ? error_set(err, PENSTOCK_E_INVALID,
				 "cannot use '%.200s%s' as the key of an object: a key %s; rename "
				 "it or leave it out",
				 target->key, strlen(target->key) > 200 ? "..." : "", problem)
		       : 0;
}

static int refuse_file(const char *name, const char *problem, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot create a file for '%s': %s; rename the object or leave it out", name,
		problem);
}

int place_check_file_name(const char *name, struct penstock_error *err)
{
	if (!*name)
		return error_set(err, PENSTOCK_E_INVALID, "cannot create a file without a name");
	for (const char *at = name; *at;) {
		size_t len = strcspn(at, "/");

		if (len == 0)
			return refuse_file(name,
				at == name ? "its path is absolute" : "its path has an empty part",
				err);
		if ((len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.'))
			return refuse_file(name, "its path contains '.' or '..'", err);
		if (len > COMPONENT_MAX)
			return refuse_file(
				name, "a part of its path is longer than 255 bytes", err);
		at += len;
		if (*at == '/')
			at++;
	}
	return 0;
}

static int resolve_path(struct target *target, const struct place *place, const char *name,
	struct penstock_error *err)
{
	int r = name ? place_check_file_name(name, err) : 0;

	if (r < 0)
		return r;
	target->path_root = !name ? 0 : *place->base ? strlen(place->base) : 1;
	target->path = str_printf("%s%s%s", place->base, name ? "/" : "", name ? name : "");
	return target->path ? 0 : error_memory(err);
}

static int resolve_url(struct target *target, const struct place *place, const char *name,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	buf_add_str(&url, name ? place->base : place->url);
	if (name)
		uri_encode(&url, name, strlen(name), true);
	target->url = buf_take(&url);
	return target->url ? 0 : error_memory(err);
}

int target_resolve(
	struct target *out, const struct place *place, const char *name, struct penstock_error *err)
{
	struct target target = {0};
	int r = 0;

	switch (place->kind) {
	case LOCATION_OBJECT:
		r = resolve_key(&target, place, name, err);
		break;
	case LOCATION_LOCAL:
		r = resolve_path(&target, place, name, err);
		break;
	case LOCATION_HTTP:
		r = resolve_url(&target, place, name, err);
		break;
	case LOCATION_STDIO:
		break;
	}
	if (r < 0)
		target_release(&target);
	else
		*out = target;
	return r;
}

void target_release(struct target *target)
{
	free(target->key);
	free(target->path);
	free(target->url);
	*target = (struct target){0};
}
