/* The directory or prefix that gets the shards. */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "dataset/pack/internal.h"
#include "dataset/source/source.h"
#include "net/credentials/credentials.h"
#include "transfer/listing.h"

void pack_name(const struct pack *p, size_t shard, char out[static PACK_NAME_SIZE])
{
	snprintf(out, PACK_NAME_SIZE, "shard-%06zu.%s%s", shard, p->format->suffix,
		p->options->zstd ? ".zstd" : "");
}

static char *path_of(const struct pack *p, const char *name)
{
	return p->client ? str_printf("%s%s", p->prefix, name) : path_join(p->prefix, name);
}

static int remove_one(const struct pack *p, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_of(p, name);

	if (!path)
		return error_memory(err);
	if (p->client)
		return object_delete(object_at(p->client, p->at.bucket, path), NULL, err);
	if (unlink(path) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove '%s'", path);
	return 0;
}

/* Returns true for names of files that an earlier call may have written. */
static bool is_ours(const char *name)
{
	return !strchr(name, '/') &&
	       (str_starts(name, "shard-") || strcmp(name, "index.json") == 0);
}

static int refuse(const struct pack *p, const char *name, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot write to '%s': '%s' exists there; name an empty place, or remove earlier shards "
		"with --force",
		p->at.text, name);
}

static int clear_objects(const struct pack *p, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	struct entry entry;
	int r = entry_source_objects(&entries, object_at(p->client, p->at.bucket, p->prefix),
		&(struct object_source_options){.cancel = p->options->cancel}, err);

	while (r >= 0 && (r = entry_source_next(entries, &entry, err)) > 0) {
		if (!p->options->force)
			return refuse(p, entry.path, err);
		if (is_ours(entry.path))
			r = remove_one(p, entry.path, err);
	}
	return r;
}

static int clear_files(const struct pack *p, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = opendir(p->prefix);
	struct dirent *e;
	int r = 0;

	if (!dir)
		return error_errno(err, errno, "cannot open '%s'", p->prefix);
	while (r == 0 && (e = fs_next_entry(dir))) {
		if (!p->options->force)
			return refuse(p, e->d_name, err);
		if (is_ours(e->d_name))
			r = remove_one(p, e->d_name, err);
	}
	if (r == 0 && errno)
		r = error_errno(err, errno, "cannot list '%s'", p->prefix);
	return r;
}

/* Returns the real path of a directory, or of its nearest parent that exists if the directory does
 * not exist yet. */
static char *nearest(const char *path, bool *exists, struct penstock_error *err)
{
	_cleanup_free_ char *up = strdup(path);
	const char *at = up;
	char *real = NULL;

	*exists = true;
	while (up && !(real = realpath(at, NULL)) && errno == ENOENT) {
		*exists = false;
		at = dirname(up);
	}
	if (!real && up)
		error_errno(err, errno, "cannot write to '%s'", path);
	else if (!real)
		error_memory(err);
	return real;
}

static bool is_below(const char *place, const char *above)
{
	size_t len = strlen(above);

	return strncmp(place, above, len) == 0 &&
	       (!place[len] || place[len] == '/' || above[len - 1] == '/');
}

/* Refuses a target that overlaps with the source: the shards of the source must not be removed
 * before they are read, and the shards of the target must not become files of the source. */
static int check_overlap(const struct pack *p, struct penstock_error *err)
{
	const struct source *source = dataset_source(p->set);
	_cleanup_free_ char *from = source_identity(source);
	_cleanup_free_ char *to = NULL;
	bool exists = true;

	if (!from)
		return error_memory(err);
	if (p->client) {
		to = str_printf("%s %s/%s", object_client_settings(p->client)->endpoint_url,
			p->at.bucket, p->prefix);
		if (!to)
			return error_memory(err);
	} else {
		to = nearest(p->prefix, &exists, err);
		if (!to)
			return -(int)PENSTOCK_E_IO;
	}
	if (exists && is_below(from, to))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write to '%s': it contains the source; name another place",
			p->at.text);
	if (!source_is_single(source) && is_below(to, from))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write to '%s': it is in the source '%s', and the new shards would "
			"become files of the source; name another place",
			p->at.text, source_url(source));
	return 0;
}

int pack_open_target(struct pack *p, const struct pack_target *target, struct penstock_error *err)
{
	int r = location_parse(&p->at, target->url, err);
	size_t len;

	if (r < 0)
		return r;
	if (p->at.kind != LOCATION_LOCAL && p->at.kind != LOCATION_OBJECT)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write to '%s': expected s3://BUCKET/…, gs://BUCKET/… or a directory",
			target->url);
	len = strlen(p->at.key);
	if (p->at.kind == LOCATION_OBJECT) {
		p->prefix = str_printf(
			"%s%s", p->at.key, len && p->at.key[len - 1] != '/' ? "/" : "");
		r = target->open(target->cookie, p->at.google, &p->client, err);
	} else {
		p->prefix = strdup(p->at.key);
	}
	if (r == 0 && !p->prefix)
		r = error_memory(err);
	if (r == 0)
		r = check_overlap(p, err);
	if (r == 0 && !p->client)
		r = fs_mkdirs(p->prefix, 0777, err);
	/* Remove the index first: without an index, the remaining shards are not a data set. */
	if (r == 0 && p->options->force)
		r = remove_one(p, INDEX_NAME, err);
	if (r < 0)
		return r;
	return p->client ? clear_objects(p, err) : clear_files(p, err);
}

int pack_put(const struct pack *p, const char *name, const void *data, size_t len,
	struct pack_done *done, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_of(p, name);
	struct object_info info = {0};
	struct stat st;
	int r;

	if (!path)
		return error_memory(err);
	done->begun = true;
	if (p->client) {
		r = object_put(object_at(p->client, p->at.bucket, path), data, len,
			&(struct object_put_options){.cancel = p->options->cancel}, &info, err);
		if (r < 0)
			return r;
		done->etag = strdup(info.etag);
		object_info_release(&info);
		r = done->etag ? 0 : error_memory(err);
	} else {
		r = fs_write_atomic(path, data, len, 0644, err);
		if (r == 0 && stat(path, &st) < 0)
			r = error_errno(err, errno, "cannot read '%s'", path);
		if (r == 0)
			done->mtime_ns = source_mtime_ns(&st);
	}
	done->size = len;
	return r;
}

static bool remove_objects(const struct pack *p, const struct strlist *names)
{
	_cleanup_(strlist_release) struct strlist keys = {0};

	for (size_t i = 0; i < names->n; i++) {
		_cleanup_free_ char *key = path_of(p, names->items[i]);

		if (!key || strlist_add(&keys, key) < 0)
			return false;
	}
	return object_delete_many(&(struct object_deletion){.client = p->client,
					  .bucket = p->at.bucket,
					  .keys = &keys,
					  .tidies_up = true},
		       NULL, NULL) == 0;
}

bool pack_undo(const struct pack *p)
{
	_cleanup_(strlist_release) struct strlist names = {0};
	char name[PACK_NAME_SIZE];
	/* The index may exist although its write has failed: the reply of the store was lost, or
	 * the directory could not be synced. */
	bool good = strlist_add(&names, INDEX_NAME) == 0;

	for (size_t i = 0; good && i < p->n; i++) {
		pack_name(p, i, name);
		if (p->done[i].begun)
			good = strlist_add(&names, name) == 0;
	}
	if (good && p->format == &pack_mds)
		good = strlist_add(&names, "index.json") == 0;
	if (p->client)
		return good && remove_objects(p, &names);
	for (size_t i = 0; i < names.n; i++)
		good &= remove_one(p, names.items[i], NULL) == 0;
	return good;
}
