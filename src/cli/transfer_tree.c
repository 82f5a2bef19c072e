#include "cli/transfer_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "transfer/compare.h"
#include "base/banned.h"

enum { OPEN_AT_A_TIME = 32 };

/* ---- streams ---- */

/* A pattern that ends in an asterisk leaves out all below what it matches. */
static bool leaves_out_all(const struct path_filter *filter, const char *directory)
{
	for (size_t i = 0; i < filter->exclude->n; i++) {
		const char *pattern = filter->exclude->items[i];

		if (str_ends(pattern, "*") && wildcard_match(pattern, directory))
			return true;
	}
	return false;
}

/* A directory is taken by its name without the slash, and not where all in it is left out. */
static bool filter_takes(const struct path_filter *filter, const char *path)
{
	_cleanup_free_ char *name = NULL;
	size_t len = strlen(path);

	if (!len || path[len - 1] != '/')
		return path_filter_takes(filter, path);
	name = strndup(path, len - 1);
	if (!name)
		abort();
	return !leaves_out_all(filter, path) && path_filter_takes(filter, name);
}

static bool takes(void *cookie, const char *path, bool directory)
{
	const struct tree_way *way = cookie;
	const struct place *source = way->source;
	_cleanup_free_ char *whole = NULL;

	(void)directory;
	if (!filter_takes(&way->t->filter, path))
		return false;
	if (!source->wildcard)
		return true;
	if (source->at.kind == LOCATION_OBJECT) {
		if (asprintf(&whole, "%s%s", source->base, path) < 0)
			abort();
	} else {
		/* The pattern is held against the path as it was given. */
		bool here = strcmp(source->base, ".") == 0 && !str_starts(source->at.key, "./");

		if (asprintf(&whole, "%s%s%s", here ? "" : source->base, here ? "" : "/", path) < 0)
			abort();
	}
	return wildcard_match(source->at.key, whole);
}

/* What is in a local directory may be taken, though the directory itself is not: see_directory() looks at that. */
static bool takes_file(void *cookie, const char *path, bool directory)
{
	const struct tree_way *way = cookie;

	return directory ? !leaves_out_all(&way->t->filter, path) : takes(cookie, path, false);
}

static int on_problem(void *cookie, const char *path, const struct penstock_error *problem)
{
	struct tree_way *way = cookie;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	error_set(&err, problem->code, "%s", problem->message ? problem->message : "");
	transfer_item_failed(way->t, path, &err);
	return 0;
}

int tree_way_open(struct tree_way *way, const struct place *place, struct object_client *client,
	struct entry_source **out, struct penstock_error *err)
{
	bool is_source = place == way->source;
	enum walk_links links = WALK_LINKS_KEEP;

	if (place->at.kind == LOCATION_OBJECT)
		return entry_source_objects(out, client, place->at.bucket, place->base,
			&(struct object_source_options){
				.takes = takes, .cookie = way, .cancel = way->t->remote.cancel},
			err);
	/*
	 * At a target a link is a link: what it leads to is not ours. Nor is it what a move may take away
	 * there: tree_way_take() looks at each link then.
	 */
	if (is_source)
		links = way->t->move && way->t->links == WALK_LINKS_FOLLOW ? WALK_LINKS_KEEP
									   : way->t->links;
	return entry_source_files(out, *place->base ? place->base : "/",
		&(struct walk_options){.links = links,
			.directories = true,
			.takes = takes_file,
			.on_problem = on_problem,
			.cookie = way,
			.cancel = way->t->remote.cancel},
		err);
}

/* ---- names that exclude each other ---- */

/*
 * Names come in byte order, so one that would have to be a directory of this one came before it, and is
 * among those that this one begins with.
 */
static int check_clash(struct tree_way *way, const char *name, struct penstock_error *err)
{
	struct strlist *shorter = &way->shorter;
	const char *clash = NULL;

	while (shorter->n && !str_starts(name, shorter->items[shorter->n - 1])) {
		free(shorter->items[--shorter->n]);
		shorter->items[shorter->n] = NULL;
	}
	for (size_t i = 0; i < shorter->n; i++) {
		if (name[strlen(shorter->items[i])] == '/')
			clash = shorter->items[i];
	}
	if (clash)
		return error_set(err, PENSTOCK_E_INVALID,
			"\"%s\" is an object, too, and cannot become both a file and a directory; "
			"rename one or leave it out with --exclude",
			clash);
	return strlist_add(shorter, name) < 0 ? error_memory(err) : 0;
}

/* ---- directories ---- */

/* Through no link: it would lead out of the tree. Returns a descriptor. */
static int make_directories(const struct aim *aim, struct penstock_error *err)
{
	_cleanup_free_ char *root = strndup(aim->path, aim->path_root);
	_cleanup_close_ int at = -1;
	size_t failed = 0;
	int fd;

	if (!root)
		return error_memory(err);
	at = open(*root ? root : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0)
		return error_errno(err, errno, "cannot open the directory %s", root);
	fd = fs_open_below(
		at, aim->path + aim->path_root, strlen(aim->path + aim->path_root), true, &failed);
	if (fd < 0)
		return error_errno(err, errno, "cannot make the directory %.*s",
			(int)(aim->path_root + failed), aim->path);
	return fd;
}

/* What --preserve kept of it; an object that says nothing is fine. */
static int restore_directory(int fd, const struct object_info *info)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	char self[32];
	mode_t mode;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (bulk_kept_mode(&info->metadata, &mode) && S_ISDIR(mode) && chmod(self, mode & 0777) < 0)
		return -1;
	if (!bulk_kept_time(&info->metadata, &times[1]))
		return 0;
	return utimensat(AT_FDCWD, self, times, 0);
}

/* An object "a/" is a directory here. */
static int take_marker(struct tree_way *way, const struct entry *entry, const struct aim *aim,
	struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	struct transfer *t = way->t;
	_cleanup_close_ int fd = -1;
	int r = 0;

	if (entry->size)
		return error_set(err, PENSTOCK_E_INVALID,
			"it has %" PRIu64 " bytes, and its name is that of a directory here; fetch "
			"it to another name, or leave it out with --exclude",
			entry->size);
	if (t->dry_run)
		return 0;
	fd = make_directories(aim, err);
	if (fd < 0)
		return fd;
	if (t->preserve) {
		r = object_head(t->from, way->source->at.bucket, entry->key, &info, err);
		if (r == 0 && restore_directory(fd, &info) < 0)
			r = error_errno(err, errno, "cannot set mode and time of %s", aim->path);
	}
	if (r == 0 && t->move)
		r = object_delete(t->from, way->source->at.bucket, entry->key, entry->etag, err);
	return r;
}

/* An empty directory is kept as an object "a/", as s3fs does. */
static int put_marker(struct tree_way *way, struct penstock_error *err)
{
	_cleanup_free_ char *relative = take_pointer(way->empty), *path = NULL, *name = NULL;
	_cleanup_(strlist_release) struct strlist metadata = {0};
	_cleanup_(aim_release) struct aim aim = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	struct transfer *t = way->t;
	struct object_put_options put = t->put;
	struct stat st;
	int r = 0;

	if (!relative)
		return 0;
	if (asprintf(&path, "%s/%s", way->source->base, relative) < 0 ||
		asprintf(&name, "%s%s", way->under, relative) < 0)
		abort();
	for (size_t i = 0; put.metadata && i < put.metadata->n; i++)
		r |= strlist_add(&metadata, put.metadata->items[i]);
	if (lstat(path, &st) < 0)
		return 0; /* gone meanwhile */
	r |= strlist_addf(
		&metadata, "mtime=%lld.%09ld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	r |= strlist_addf(&metadata, "mode=0%o", (unsigned)st.st_mode);
	if (r < 0)
		return error_memory(err);
	put.metadata = &metadata;
	put.content_type = "application/x-directory";
	put.cancel = t->remote.cancel;
	put.if_none_match |= t->no_clobber;
	r = aim_at(&aim, way->target, name, &own);
	if (r == 0 && !t->dry_run)
		r = object_put(t->to, way->target->at.bucket, aim.key, "", 0, &put, NULL, &own);
	if (r == -(int)PENSTOCK_E_PRECONDITION && t->no_clobber)
		return 0;
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return error_move(err, &own);
	if (r < 0)
		transfer_item_failed(t, path, &own);
	return 0;
}

/* Of a local source, in order; `wanted`: a directory is not at the target yet. */
static int see_directory(
	struct tree_way *way, const char *path, bool wanted, struct penstock_error *err)
{
	int r = way->empty && !str_starts(path, way->empty) ? put_marker(way, err) : 0;

	if (r < 0 || !way->t->preserve || way->target->at.kind != LOCATION_OBJECT)
		return r;
	free(way->empty);
	wanted = wanted && str_ends(path, "/") && takes(way, path, true);
	way->empty = wanted ? strdup(path) : NULL;
	return wanted && !way->empty ? error_memory(err) : 0;
}

int tree_way_same(struct tree_way *way, const struct entry *entry, struct penstock_error *err)
{
	if (way->source->at.kind == LOCATION_LOCAL)
		return see_directory(way, entry->path, false, err);
	if (way->target->at.kind == LOCATION_LOCAL &&
		check_clash(way, entry->path, NULL) == -(int)PENSTOCK_E_MEMORY)
		return error_memory(err);
	return 0;
}

/* ---- items ---- */

static void source_side(const struct tree_way *way, const struct entry *entry,
	const struct object_info *known, char **path, struct bulk_item *item)
{
	if (way->source->at.kind == LOCATION_OBJECT) {
		item->from_client = way->t->from;
		item->from_bucket = way->source->at.bucket;
		item->from_key = entry->key;
		item->known = known->etag[0] ? known : NULL;
		return;
	}
	if (asprintf(path, "%s/%s", way->source->base, entry->path) < 0)
		abort();
	item->path = *path;
}

static char *shown(const struct tree_way *way, const struct entry *entry)
{
	char *path;

	if (entry->key)
		return object_text(way->t->from_google, way->source->at.bucket, entry->key);
	if (asprintf(&path, "%s/%s", way->source->base, entry->path) < 0)
		abort();
	return path;
}

static int push(struct tree_way *way, const struct entry *entry, const struct aim *aim,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct object_info known = {.size = entry->size, .modified_ns = entry->mtime_ns};
	struct bulk_item item = {.remove_source = way->t->move};
	bool from_store = way->source->at.kind == LOCATION_OBJECT;

	if (entry->etag && strlen(entry->etag) < sizeof(known.etag))
		memcpy(known.etag, entry->etag, strlen(entry->etag) + 1);
	item.kind = !from_store ? BULK_UPLOAD : aim->path ? BULK_DOWNLOAD : BULK_COPY;
	source_side(way, entry, &known, &path, &item);
	aim_item(way->t, aim, way->target, &item);
	return transfer_push(way->t, &item, entry->size, err);
}

/* The same bucket of the same store on both sides, and the name is one that was made by this very verb. */
static bool is_made_here(const struct tree_way *way, const struct entry *entry)
{
	return way->source->wildcard && way->t->from && way->t->from == way->t->to &&
	       strcmp(way->source->at.bucket, way->target->at.bucket) == 0 &&
	       strlen(way->target->base) > strlen(way->source->base) &&
	       str_starts(entry->key, way->target->base);
}

/*
 * What is moved up a level may get a name below the source: then it is moved once more, or written over and
 * removed with what had the name before.
 */
static int check_moved_into_source(
	const struct tree_way *way, const char *key, struct penstock_error *err)
{
	const struct place *source = way->source, *target = way->target;
	bool below_target = source->wildcard && strlen(target->base) > strlen(source->base) &&
			    str_starts(key, target->base); /* see is_made_here() */

	if (!way->t->move || source->at.kind != LOCATION_OBJECT || !str_starts(key, source->base) ||
		strcmp(source->at.bucket, target->at.bucket) != 0 ||
		(source->wildcard && !wildcard_match(source->at.key, key)) || below_target ||
		!way->t->same_store)
		return 0;
	return error_set(err, PENSTOCK_E_INVALID,
		"its new name \"%s\" is one of those that are moved; move it by itself", key);
}

/* A link's content may be moved where it is a file: then the link goes, and the file stays. */
static int check_link(
	const struct tree_way *way, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	struct stat st;

	if (entry->kind != ENTRY_LINK || way->t->preserve)
		return 0;
	path = shown(way, entry);
	if (stat(path, &st) < 0)
		return error_errno(err, errno, "cannot follow the link %s", path);
	if (S_ISDIR(st.st_mode))
		return error_set(err, PENSTOCK_E_INVALID,
			"%s leads to a directory, from which nothing is moved; --preserve moves "
			"the "
			"link, --no-follow-symlinks leaves it",
			path);
	return 0;
}

int tree_way_take(struct tree_way *way, const struct entry *entry, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	_cleanup_(aim_release) struct aim aim = {0};
	_cleanup_free_ char *name = NULL, *from = NULL;
	bool local = way->source->at.kind == LOCATION_LOCAL;
	int r = 0;

	if (local && (r = see_directory(way, entry->path, true, err)) < 0)
		return r;
	if (entry->kind == ENTRY_DIRECTORY && (local || way->target->at.kind == LOCATION_HTTP))
		return 0;
	if (entry->key && is_made_here(way, entry))
		return 0;
	if (way->t->move && !way->t->force && belongs_to_runs(entry->path)) {
		way->spared++;
		return 0;
	}
	way->entries++;
	if (asprintf(&name, "%s%s", way->under, entry->path) < 0)
		abort();
	r = check_link(way, entry, &own);
	if (r == 0)
		r = aim_at(&aim, way->target, name, &own);
	if (r == 0 && aim.path)
		r = check_clash(way, entry->path, &own);
	if (r == 0 && aim.key)
		r = check_moved_into_source(way, aim.key, &own);
	if (r == 0 && aim.path && entry->kind == ENTRY_DIRECTORY)
		r = take_marker(way, entry, &aim, &own);
	else if (r == 0)
		return push(way, entry, &aim, err);
	if (r == -(int)PENSTOCK_E_CANCELLED)
		return error_move(err, &own);
	if (r < 0) {
		from = shown(way, entry);
		transfer_item_failed(way->t, from, &own);
	}
	return 0;
}

int tree_way_end(struct tree_way *way, struct penstock_error *err)
{
	return way->empty ? put_marker(way, err) : 0;
}

void tree_way_release(struct tree_way *way)
{
	strlist_release(&way->shorter);
	free(way->empty);
	way->empty = NULL;
}

int tree_way_go(struct tree_way *way, struct object_client *client, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *entries = NULL;
	struct entry entry;
	int r = tree_way_open(way, way->source, client, &entries, err);

	while (r == 0 && (r = entry_source_next(entries, &entry, err)) > 0)
		r = tree_way_take(way, &entry, err);
	return r < 0 ? r : tree_way_end(way, err);
}

/* ---- what a move leaves ---- */

static _Thread_local const char *kept_root;

static int remove_if_empty(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	if (type == FTW_DP && (!kept_root || strcmp(path, kept_root) != 0))
		rmdir(path); /* one that is not empty stays */
	return 0;
}

void remove_empty_directories(const char *path, bool itself)
{
	kept_root = itself ? NULL : path;
	nftw(path, remove_if_empty, OPEN_AT_A_TIME, FTW_DEPTH | FTW_PHYS);
	kept_root = NULL;
}
