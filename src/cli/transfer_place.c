/* What operands of cp, mv and sync name, and where an item ends up. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "cli/transfer.h"
#include "net/http.h"
#include "s3/uri.h"
#include "transfer/http_fetch.h"
#include "transfer/tree.h"
#include "base/banned.h"

bool belongs_to_runs(const char *path)
{
	return str_starts(path, ".penstock/") || strstr(path, "/.penstock/");
}

/* ---- places ---- */

/* `text` with exactly one '/' at its end, or none. */
static char *with_slash(const char *text, size_t len, bool slash)
{
	char *out;

	while (len && text[len - 1] == '/')
		len--;
	return asprintf(&out, "%.*s%s", (int)len, text, slash ? "/" : "") < 0 ? NULL : out;
}

/* A '?' begins a URL's query, which says nothing of its path. */
static bool ends_in_slash(const struct location *at)
{
	size_t len = at->kind == LOCATION_HTTP ? strcspn(at->key, "?#") : strlen(at->key);

	return len && at->key[len - 1] == '/';
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_there(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static int local_place(struct place *place)
{
	const char *path = place->at.key;
	size_t literal = location_literal_prefix(&place->at);

	/* A file may well have such a name. */
	place->wildcard = place->wildcard && !is_there(path);
	place->directory = ends_in_slash(&place->at) || is_directory(path);
	if (!place->wildcard)
		place->base = with_slash(path, strlen(path), false);
	else
		place->base = literal ? with_slash(path, literal, false) : strdup(".");
	return place->base ? 0 : -1;
}

static int object_place(struct place *place)
{
	const char *key = place->at.key;
	size_t len = strlen(key);

	place->directory = !len || ends_in_slash(&place->at);
	if (place->wildcard)
		place->base = strndup(key, location_literal_prefix(&place->at));
	else if (place->directory)
		place->base = strdup(key);
	else
		place->base = with_slash(key, len, true);
	return place->base ? 0 : -1;
}

/* What stands in a query, or before the host, is often a secret. */
static int url_place(struct place *place)
{
	struct buf shown = BUF_INIT(LIMIT_STRING);

	place->directory = ends_in_slash(&place->at);
	place->base = with_slash(place->at.key, strlen(place->at.key), true);
	http_url_display(place->at.key, &shown);
	place->url = place->at.text;
	place->at.text = buf_take(&shown);
	return place->base && place->at.text ? 0 : -1;
}

int place_parse(struct place *out, const char *text, bool raw, struct penstock_error *err)
{
	struct place place = {0};
	int r = location_parse(&place.at, text, err);

	if (r < 0)
		return r;
	place.at.literal = raw;
	place.wildcard = location_has_wildcard(&place.at);
	switch (place.at.kind) {
	case LOCATION_STDIO:
		break;
	case LOCATION_LOCAL:
		r = local_place(&place);
		break;
	case LOCATION_OBJECT:
		r = object_place(&place);
		break;
	case LOCATION_HTTP:
		r = url_place(&place);
		break;
	}
	if (r < 0) {
		place_release(&place);
		return error_memory(err);
	}
	*out = place;
	return 0;
}

void place_release(struct place *place)
{
	location_release(&place->at);
	free(place->url);
	free(place->base);
	*place = (struct place){0};
}

char *place_name(const struct place *place)
{
	struct buf name = BUF_INIT(LIMIT_STRING);
	const char *text = place->at.key, *end = text + strlen(text), *from;

	if (place->at.kind == LOCATION_HTTP)
		return http_fetch_name(text, &name) < 0 ? NULL : buf_take(&name);
	if (place->at.kind == LOCATION_STDIO)
		return strdup("");
	for (from = end; from > text && from[-1] != '/';)
		from--;
	/* "." is what is in it. */
	if (place->at.kind == LOCATION_LOCAL && (strcmp(from, ".") == 0 || strcmp(from, "..") == 0))
		return strdup("");
	return strdup(from);
}

/* ---- targets of items ---- */

static int no_key(const char *key, const char *why, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"\"%.200s%s\" cannot be the key of an object: a key %s; rename it or leave it out",
		key, strlen(key) > 200 ? "..." : "", why);
}

static int aim_at_object(
	struct aim *aim, const struct place *target, const char *name, struct penstock_error *err)
{
	const char *problem;
	int n = name ? asprintf(&aim->key, "%s%s", target->base, name)
		     : asprintf(&aim->key, "%s", target->at.key);

	if (n < 0) {
		aim->key = NULL;
		return error_memory(err);
	}
	problem = s3_key_problem(aim->key, (size_t)n);
	return problem ? no_key(aim->key, problem, err) : 0;
}

static int aim_at_file(
	struct aim *aim, const struct place *target, const char *name, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	int r;

	if (!name) {
		aim->path = strdup(target->base);
		return aim->path ? 0 : error_memory(err);
	}
	buf_add_str(&path, target->base);
	buf_add_char(&path, '/');
	aim->path_root = path.len > 1 ? path.len - 1 : 1;
	r = *name ? tree_relative_path("", name, &path, err)
		  : error_set(err, PENSTOCK_E_INVALID, "there is no name for a file");
	if (r < 0)
		return r;
	aim->path = buf_take(&path);
	return aim->path ? 0 : error_memory(err);
}

static int aim_at_url(
	struct aim *aim, const struct place *target, const char *name, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	if (name) {
		buf_add_str(&url, target->base);
		uri_encode(&url, name, strlen(name), true);
	} else {
		buf_add_str(&url, target->at.key);
	}
	aim->url = buf_take(&url);
	return aim->url ? 0 : error_memory(err);
}

int aim_at(
	struct aim *out, const struct place *target, const char *name, struct penstock_error *err)
{
	struct aim aim = {0};
	int r = 0;

	switch (target->at.kind) {
	case LOCATION_OBJECT:
		r = aim_at_object(&aim, target, name, err);
		break;
	case LOCATION_LOCAL:
		r = aim_at_file(&aim, target, name, err);
		break;
	case LOCATION_HTTP:
		r = aim_at_url(&aim, target, name, err);
		break;
	case LOCATION_STDIO:
		break;
	}
	if (r < 0)
		aim_release(&aim);
	else
		*out = aim;
	return r;
}

void aim_release(struct aim *aim)
{
	free(aim->key);
	free(aim->path);
	free(aim->url);
	*aim = (struct aim){0};
}

void aim_item(const struct transfer *t, const struct aim *aim, const struct place *target,
	struct bulk_item *item)
{
	if (aim->key) {
		item->to_client = t->to;
		item->to_bucket = target->at.bucket;
		item->to_key = aim->key;
	} else if (aim->url) {
		item->to_url = aim->url;
	} else {
		item->path = aim->path;
		item->path_root = aim->path_root;
	}
}
