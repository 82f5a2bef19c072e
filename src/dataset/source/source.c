#include "dataset/source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/cache/cache.h"
#include "dataset/source/internal.h"
#include "net/credentials/credentials.h"
#include "transfer/listing.h"

/* ---- the list of shards ---- */

static bool is_hidden(const char *path)
{
	return path[0] == '.' || strstr(path, "/.");
}

static int add_all(struct source *s, struct entry_source *entries, struct penstock_error *err)
{
	struct entry entry;
	int r;

	while ((r = entry_source_next(entries, &entry, err)) > 0) {
		if (entry.kind != ENTRY_FILE || is_hidden(entry.path))
			continue;
		r = source_add(s, &entry, err);
		if (r < 0)
			return r;
	}
	return r;
}

int source_listed(struct source *s, const struct source_place *place, struct penstock_error *err)
{
	struct source_list list = {0};
	int r = place->listed ? place->listed(place->listed_cookie, s, &list, err) : 0;

	if (r <= 0)
		return r;
	if (list.objects == source_is_local(s)) {
		r = source_adopt(s, &list, err);
		return r < 0 ? r : 1;
	}
	source_borrow(s, &list);
	return 1;
}

/* A relative path may be a URL for which the user forgot s3://. */
static int not_found(const struct source *s, struct penstock_error *err)
{
	bool local = source_is_local(s);

	if (local && access(s->prefix, F_OK) == 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot open '%s': the directory has no files, apart from hidden files",
			s->url);
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		local ? "cannot open '%s': there is no such file or directory%s"
		      : "cannot open '%s': there is no such object, and nothing is below it%s",
		s->url,
		local && s->prefix[0] != '/' && s->prefix[0] != '.'
			? "; for a store use s3://BUCKET/PREFIX/"
			: "");
}

/* ---- local files ---- */

static int open_local(
	struct source *s, const struct source_place *place, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	const char *slash = strrchr(s->prefix, '/');
	struct stat st;
	int r;

	if (stat(s->prefix, &st) < 0)
		return errno == ENOENT ? not_found(s, err)
				       : error_errno(err, errno, "cannot open '%s'", s->url);
	if (S_ISREG(st.st_mode)) {
		s->single = true;
		return source_add(s,
			&(struct entry){.path = slash ? slash + 1 : s->prefix,
				.size = (uint64_t)st.st_size,
				.mtime_ns = source_mtime_ns(&st)},
			err);
	}
	if (!S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': it is neither a file nor a directory", s->url);
	r = source_listed(s, place, err);
	if (r)
		return r < 0 ? r : 0;
	r = entry_source_files(&entries, s->prefix,
		&(struct walk_options){.links = WALK_LINKS_FOLLOW, .cancel = place->cancel}, err);
	return r < 0 ? r : add_all(s, entries, err);
}

/* ---- objects ---- */

static int open_object(struct source *s, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	const char *slash = strrchr(s->prefix, '/');
	int r = object_head(object_at(s->client, s->bucket, s->prefix), &info, err);

	if (r < 0)
		return r;
	s->single = true;
	return source_add(s,
		&(struct entry){.path = slash ? slash + 1 : s->prefix,
			.size = info.size,
			.etag = info.etag},
		err);
}

static int open_objects(
	struct source *s, const struct source_place *place, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	size_t len = strlen(s->prefix);
	char *below;
	int r;

	if (len && s->prefix[len - 1] != '/') {
		r = open_object(s, &own);
		if (r == 0)
			return 0;
		if (own.code != PENSTOCK_E_NOT_FOUND || own.repeats)
			return error_move(err, &own);
		below = str_printf("%s/", s->prefix);
		if (!below)
			return error_memory(err);
		free(s->prefix);
		s->prefix = below;
	}
	r = source_listed(s, place, err);
	if (r)
		return r < 0 ? r : 0;
	r = entry_source_objects(&entries, object_at(s->client, s->bucket, s->prefix),
		&(struct object_source_options){.cancel = place->cancel}, err);
	return r < 0 ? r : add_all(s, entries, err);
}

/* ---- open ---- */

int source_open(struct source **out, const struct source_place *place, struct penstock_error *err)
{
	_cleanup_(location_release) struct location location = {0};
	struct source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_memory(err);
	packed_init(s);
	buf_init(&s->text, LIMIT_DATASET_NAMES);
	s->url = strdup(place->url);
	r = s->url ? location_parse(&location, place->url, err) : error_memory(err);
	if (r == 0 && location.kind == LOCATION_STDIO)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot open '%s': expected s3://BUCKET/…, gs://BUCKET/…, http(s)://… or a "
			"path",
			place->url);
	if (r == 0 && location.kind != LOCATION_HTTP) {
		memcpy(s->bucket, location.bucket, sizeof(s->bucket));
		s->prefix = strdup(location.key);
		r = s->prefix ? 0 : error_memory(err);
	}
	s->open = place->open;
	s->open_web = place->open_web;
	s->cookie = place->cookie;
	s->google = location.google;
	if (r == 0 && location.kind == LOCATION_OBJECT) {
		r = s->open(s->cookie, s->google, &s->client, err);
		if (r == 0) {
			object_client_patience(s->client, LIMIT_OPEN_PATIENCE_MS, NULL);
			r = open_objects(s, place, err);
			object_client_patience(s->client, 0, NULL);
		}
	} else if (r == 0 && location.kind == LOCATION_HTTP) {
		r = source_open_web(s, place, err);
	} else if (r == 0) {
		r = open_local(s, place, err);
	}
	if (r == 0 && s->n == 0)
		r = not_found(s, err);
	if (r == 0 && !source_is_local(s) && place->cache)
		r = block_cache_new(&s->cache,
			&(struct block_cache_options){
				.dir = place->cache, .size = place->cache_size, .shards = s->n},
			err);
	if (r < 0) {
		source_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void source_opened(struct source *s)
{
	s->opened = true;
}

void source_free(struct source *s)
{
	if (!s)
		return;
	packed_release(s);
	block_cache_free(s->cache);
	if (!s->borrowed) {
		buf_release(&s->text);
		free(s->shards);
	}
	free(s->prefix);
	free(s->pattern);
	free(s->query);
	free(s->url);
	free(s);
}

int source_after_fork(struct source *s, struct penstock_error *err)
{
	packed_after_fork(s);
	block_cache_after_fork(s->cache);
	if (s->engine)
		return s->open_web(s->cookie, &s->engine, err);
	return s->client ? s->open(s->cookie, s->google, &s->client, err) : 0;
}

const char *source_url(const struct source *s)
{
	return s->url;
}

bool source_is_single(const struct source *s)
{
	return s->single;
}

char *source_identity(const struct source *s)
{
	if (source_is_local(s))
		return realpath(s->prefix, NULL);
	if (s->engine)
		return str_printf("%s%s%s", s->prefix, s->pattern, s->query);
	return str_printf(
		"%s %s/%s", object_client_settings(s->client)->endpoint_url, s->bucket, s->prefix);
}
