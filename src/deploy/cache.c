/* Caches versions on this machine: fetches a version once for all replicas, verifies it, and limits
 * the size of all versions of a model. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "checkpoint/read.h"
#include "deploy/internal.h"
#include "s3/sum/checksum.h"

#define PART	  ".part" /* suffix of a version that is being fetched */
#define GONE	  ".gone" /* suffix of a version that is being removed */
#define LOCK_NAME ".lock"
enum { FETCHES = 8, ID_BYTES = 8, LOCK_POLL_MS = 20 };

void cached_release(struct cached *cached)
{
	free(cached->dir);
	if (cached->lock >= 0)
		close(cached->lock);
	*cached = (struct cached){.lock = -1};
}

char *model_name(const struct deploy_options *o)
{
	size_t end = strlen(o->prefix), begin;

	if (end == 0)
		return strdup(o->bucket);
	end--; /* excludes the slash */
	for (begin = end; begin > 0 && o->prefix[begin - 1] != '/'; begin--)
		;
	return strndup(o->prefix + begin, end - begin);
}

char *deploy_dir(const struct deploy_options *o, const char *kind, const char *text)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char id[2 * ID_BYTES + 1];

	if (checksum_of(CHECKSUM_SHA256, text, strlen(text), digest, NULL) < 0)
		return NULL;
	str_hex(digest, ID_BYTES, id);
	return str_printf("%s/%s/%s", o->home, kind, id);
}

/* Returns HOME/models/PLACE, where PLACE is the checksum of bucket and prefix. The address of the
 * store is not in the checksum: versions with the same content have the same files in every
 * store. */
static char *place_dir(const struct deploy_options *o)
{
	_cleanup_free_ char *text = str_printf("%s/%s", o->bucket, o->prefix);

	return text ? deploy_dir(o, DEPLOY_MODELS, text) : NULL;
}

char *model_dir(const struct deploy_options *o, const char *content)
{
	_cleanup_free_ char *place = place_dir(o);

	return place ? path_join(place, content) : NULL;
}

/* ---- the size limit ---- */

/* Returns true if `name` is the version `model` or an interrupted fetch of that version: both
 * names begin with the content of the version. */
static bool has_content(const json_t *model, const char *name)
{
	const char *content = json_string_value(json_object_get(model, "content"));

	return content && *content && str_starts(name, content);
}

/* Returns true if a process runs the deployment in `dir`, or servers of that deployment may still
 * run. */
static bool is_live(const char *dir, const json_t *state)
{
	_cleanup_free_ char *path = path_join(dir, DEPLOYMENT_LOCK);
	_cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	const char *boot_id = json_string_value(json_object_get(state, "boot_id"));
	char now[PROCESS_BOOT_ID_SIZE];
	json_t *server;
	size_t i;

	if (!path || (fd >= 0 && fs_lock_held(fd)))
		return true;
	process_boot_id(now);
	if (!boot_id || strcmp(boot_id, now) != 0)
		return false;
	json_array_foreach (json_object_get(state, "servers"), i, server) {
		if (json_is_object(server))
			return true;
	}
	return false;
}

/* The need that deployments have for a version, in ascending order. */
enum need {
	UNUSED,
	KEPT, /* recorded by a deployment that has ended, or recorded as the previous version */
	NEEDED /* a live deployment has or starts a server of the version */
};

static enum need need_of_one(const char *dir, const char *name)
{
	static const char *const members[] = {"last", "leaving", "again"};
	_cleanup_free_ char *path = path_join(dir, DEPLOYMENT_STATE);
	json_auto_t *root = path ? json_load_file(path, 0, NULL) : NULL;
	bool found = false;
	json_t *server;
	size_t i;

	if (!path)
		return NEEDED;
	if (!root) /* the state is missing or unreadable */
		return access(path, F_OK) == 0 && is_live(dir, NULL) ? NEEDED : UNUSED;
	json_array_foreach (json_object_get(root, "servers"), i, server)
		found = found || has_content(json_object_get(server, "model"), name);
	for (i = 0; i < ARRAY_SIZE(members); i++)
		found = found || has_content(json_object_get(root, members[i]), name);
	if (found)
		return is_live(dir, root) ? NEEDED : KEPT;
	return has_content(json_object_get(root, "previous"), name) ? KEPT : UNUSED;
}

/* Returns the greatest need that a deployment of this home has for the version `name`. */
static enum need need_of(const char *home, const char *name)
{
	_cleanup_free_ char *dir = path_join(home, DEPLOYMENTS);
	_cleanup_closedir_ DIR *d = dir ? opendir(dir) : NULL;
	enum need need = dir && (d || errno == ENOENT) ? UNUSED : NEEDED;
	struct dirent *e;

	while (d && need < NEEDED && (e = fs_next_entry(d))) {
		_cleanup_free_ char *path = path_join(dir, e->d_name);
		enum need one = path ? need_of_one(path, name) : NEEDED;

		if (one > need)
			need = one;
	}
	return d && need < NEEDED && errno ? NEEDED : need;
}

bool deploy_needs(const char *home, const char *name)
{
	return need_of(home, name) == NEEDED;
}

bool deploy_remove_version(const char *home, const char *place, const char *name)
{
	_cleanup_free_ char *path = path_join(place, name);
	_cleanup_free_ char *gone = str_printf("%s/%s" GONE, place, name);
	_cleanup_free_ char *lock_path = str_printf(
		"%s/%.*s" LOCK_NAME, place, MODEL_CONTENT_SIZE - 1, name);
	_cleanup_close_ int lock = -1;

	if (!path || !gone || !lock_path)
		return false;
	lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || fs_lock(lock) != 0 || !fs_is_named(lock, lock_path) ||
		deploy_needs(home, name))
		return false;
	fs_remove_tree(gone, NULL);
	if (rename(path, gone) < 0 || fs_remove_tree(gone, NULL) < 0)
		return false;
	unlink(lock_path);
	return true;
}

struct kept {
	char name[MODEL_CONTENT_SIZE + sizeof(PART)];
	uint64_t bytes;
	struct timespec used;
	enum need need;
};

/* Sorts by need, then by the time of the last use: unused versions first. */
static int by_use(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	if (x->need != y->need)
		return x->need < y->need ? -1 : 1;
	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

/* Lists the versions of a model and interrupted fetches, except names that begin with `except`.
 * Completes interrupted removals. */
static int list_kept(const char *home, const char *place, const char *except, struct kept **out,
	size_t *n, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *d = opendir(place);
	struct dirent *e;

	if (!d)
		return error_errno(err, errno, "cannot read '%s'", place);
	while ((e = fs_next_entry(d))) {
		_cleanup_free_ char *path = path_join(place, e->d_name);
		struct kept *items, *k;
		struct stat st;

		if (!path)
			return error_memory(err);
		if (str_ends(e->d_name, GONE))
			fs_remove_tree(path, NULL);
		if (strlen(e->d_name) >= sizeof(k->name) || str_starts(e->d_name, except) ||
			lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		items = array_grow(*out, *n, sizeof(*items));
		if (!items)
			return error_memory(err);
		*out = items;
		k = &items[(*n)++];
		*k = (struct kept){.used = st.st_mtim};
		snprintf(k->name, sizeof(k->name), "%s", e->d_name);
		k->need = need_of(home, k->name);
		k->bytes = fs_disk_bytes(path);
	}
	return 0;
}

/* Removes versions that no live deployment needs, in the order of by_use(), until the new version
 * fits. Removes nothing if the new version cannot fit. */
static int make_room(const struct deploy_options *o, const char *place, const struct model *model,
	struct penstock_error *err)
{
	_cleanup_free_ struct kept *kept = NULL;
	uint64_t bytes = model->size, needed = model->size;
	char need[STR_SIZE_SIZE], bound[STR_SIZE_SIZE];
	size_t n = 0;
	int r = list_kept(o->home, place, model->content, &kept, &n, err);

	if (r < 0)
		return r;
	if (n)
		qsort(kept, n, sizeof(*kept), by_use);
	for (size_t i = 0; i < n; i++) {
		bytes += kept[i].bytes;
		needed += kept[i].need == NEEDED ? kept[i].bytes : 0;
	}
	for (size_t i = 0; i < n && needed <= o->cache_size && bytes > o->cache_size; i++) {
		if (kept[i].need != NEEDED && deploy_remove_version(o->home, place, kept[i].name))
			bytes -= kept[i].bytes;
	}
	if (bytes <= o->cache_size)
		return 0;
	str_format_size(needed > o->cache_size ? needed : bytes, need);
	str_format_size(o->cache_size, bound);
	return error_set(err, PENSTOCK_E_LIMIT,
		"cannot fetch version '%s': this version and the versions in use need %s, and the cache "
		"may have %s; raise --cache-size",
		model->name, need, bound);
}

/* ---- fetching ---- */

struct fetch {
	const struct deploy_options *o;
	const struct model *model;
	const char *root; /* the directory that gets the files */
	const atomic_int *cancel;
	uint64_t *crcs;
};

static int make_parent(const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *dir = strndup(path, (size_t)(strrchr(path, '/') - path));

	return dir ? fs_mkdirs(dir, 0700, err) : error_memory(err);
}

static int fetch_file(void *cookie, size_t i, struct penstock_error *err)
{
	const struct fetch *f = cookie;
	const struct model_file *file = &f->model->files[i];
	_cleanup_free_ char *key = str_printf("%s%s", f->o->prefix, file->path);
	_cleanup_free_ char *path = path_join(f->root, file->path);
	struct object_info known = {.size = file->size};
	_cleanup_close_ int fd = -1;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	struct stat st;
	int r;

	if (!key || !path)
		return error_memory(err);
	snprintf(known.etag, sizeof(known.etag), "%s", file->etag);
	r = make_parent(path, err);
	/* A file of the right size is complete: a fetch gives a file its name at the end. */
	if (r == 0 && (lstat(path, &st) < 0 || (uint64_t)st.st_size != file->size))
		r = object_get_file(object_at(f->o->client, f->o->bucket, key), path,
			&(struct object_get_options){
				.known = &known, .resume = true, .cancel = f->cancel},
			NULL, err);
	if (r < 0)
		return error_prefix(err, "%s", key);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", path);
	r = checksum_of_file(fd, CHECKSUM_CRC64NVME, 0, file->size, f->cancel, digest, err);
	f->crcs[i] = commit_crc(digest);
	return r;
}

/* Verifies a version against the commit that was published with it. */
static int check_commit(const struct fetch *f, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *commit = NULL;
	_cleanup_free_ char *dir = path_join(f->root, f->model->directory);
	int r;

	if (!dir)
		return error_memory(err);
	r = commit_open(&commit, dir, err);
	return r < 0 ? r
		     : commit_verify(commit, true, (const volatile int *)(uintptr_t)f->cancel, err);
}

/* Writes a commit of all files, against which later uses of this directory are verified. */
static int write_commit(
	const struct fetch *f, const char *part, const char *name, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *commit = commit_new();
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_free_ char *path = path_join(part, COMMIT_NAME);
	int r;

	if (!commit || !path || !str_copy(&commit->run, f->model->name))
		return error_memory(err);
	commit->attempt = 1;
	commit->world_size = 1;
	for (size_t i = 0; i < f->model->n; i++) {
		const struct model_file *file = &f->model->files[i];
		_cleanup_free_ char *at = path_join(name, file->path);

		if (!at || commit_add_file(commit, at, file->size, f->crcs[i]) < 0)
			return error_memory(err);
	}
	r = commit_sort_files(commit, err);
	if (r == 0)
		r = commit_format(commit, &text, err);
	return r < 0 ? r : fs_write_atomic(path, text.data, text.len, 0600, err);
}

static int fetch(const struct deploy_options *o, const struct model *model, const char *dir,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_free_ char *part = str_printf("%s" PART, dir);
	_cleanup_free_ char *name = model_name(o);
	_cleanup_free_ char *root = part && name ? path_join(part, name) : NULL;
	_cleanup_free_ uint64_t *crcs = calloc(model->n + 1, sizeof(*crcs));
	struct fetch f = {.o = o, .model = model, .root = root, .cancel = cancel, .crcs = crcs};
	atomic_int stop = 0;
	int r;

	if (!root || !crcs)
		return error_memory(err);
	for (size_t i = 0; i < model->n; i++) {
		if (!commit_name_is_good(model->files[i].path) &&
			strcmp(model->files[i].path, COMMIT_NAME) != 0)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot fetch version '%s': '%s' is not a valid file name",
				model->name, model->files[i].path);
	}
	r = fs_mkdirs(root, 0700, err);
	if (r == 0)
		r = thread_each(&(struct thread_work){.name = "model",
					.n = model->n,
					.parallel = FETCHES,
					.fn = fetch_file,
					.cookie = &f,
					.cancel = cancel,
					.stop = &stop},
			err);
	if (r == 0 && atomic_load(&stop))
		return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	if (r == 0 && model->committed)
		r = check_commit(&f, err);
	if (r == 0)
		r = write_commit(&f, part, name, err);
	if (r == 0 && rename(part, dir) < 0)
		r = error_errno(err, errno, "cannot rename '%s'", part);
	else if (r == -(int)PENSTOCK_E_CORRUPT || r == -(int)PENSTOCK_E_CHANGED)
		fs_remove_tree(part, NULL);
	return r;
}

/* ---- uses ---- */

/* Several deployments may use a version at a time; only one may change it. */
enum lock { LOCK_SHARED, LOCK_ALONE, LOCK_ALONE_IF_MISSING };

/* Waits for the lock. Returns 1 without the lock if `how` is LOCK_ALONE_IF_MISSING and another
 * deployment has fetched the version in the meantime: that deployment may hold its lock for a long
 * time. */
static int lock_version(const char *dir, enum lock how, const atomic_int *cancel,
	struct cached *out, struct penstock_error *err)
{
	_cleanup_free_ char *path = str_printf("%s" LOCK_NAME, dir);
	int r;

	*out = (struct cached){.dir = strdup(dir), .lock = -1};
	if (!path || !out->dir)
		return error_memory(err);
	for (;;) {
		out->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (out->lock < 0)
			return error_errno(err, errno, "cannot open '%s'", path);
		r = how == LOCK_SHARED ? fs_lock_shared(out->lock) : fs_lock(out->lock);
		if (r < 0)
			return error_errno(err, errno, "cannot lock '%s'", path);
		if (r == 0 && fs_is_named(out->lock, path))
			return 0;
		close(out->lock);
		out->lock = -1;
		if (r > 0 && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
		if (r > 0 && how == LOCK_ALONE_IF_MISSING && access(dir, F_OK) == 0)
			return 1;
		if (r > 0)
			clock_sleep_ms(LOCK_POLL_MS);
	}
}

/* Verifies a version and updates its time of last use. Fails with PENSTOCK_E_NOT_FOUND if the
 * version is missing, PENSTOCK_E_CORRUPT if it is damaged. */
static int verify(const char *dir, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(commit_freep) struct commit *commit = NULL;
	int r = commit_open(&commit, dir, err);

	if (r == 0)
		r = commit_verify(commit, true, (const volatile int *)(uintptr_t)cancel, err);
	if (r == 0)
		utimensat(AT_FDCWD, dir, NULL, 0);
	return r;
}

int model_find(const struct deploy_options *o, const char *content, const atomic_int *cancel,
	struct cached *out, struct penstock_error *err)
{
	_cleanup_free_ char *dir = model_dir(o, content);
	int r;

	*out = (struct cached){.lock = -1};
	if (!dir)
		return error_memory(err);
	if (access(dir, F_OK) < 0)
		return error_errno(err, errno, "cannot open '%s'", dir);
	r = lock_version(dir, LOCK_SHARED, cancel, out, err);
	if (r == 0)
		r = verify(dir, cancel, err);
	if (r < 0)
		cached_release(out);
	return r;
}

/* Fetches a version that is missing or damaged, unless another deployment has just fetched it. */
static int fetch_locked(const struct deploy_options *o, const struct model *model, const char *dir,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *place = place_dir(o);
	char size[STR_SIZE_SIZE];
	int r;

	if (!place)
		return error_memory(err);
	r = verify(dir, cancel, &why);
	if (r == -(int)PENSTOCK_E_CORRUPT) {
		log_warn("version '%s' is damaged on this machine, fetching it again: %s",
			model->name, why.message);
		fs_remove_tree(dir, NULL);
	} else if (r != -(int)PENSTOCK_E_NOT_FOUND) {
		return r < 0 ? error_move(err, &why) : 0;
	}
	str_format_size(model->size, size);
	log_info("fetching version '%s': %zu file%s, %s", model->name, model->n,
		model->n == 1 ? "" : "s", size);
	r = make_room(o, place, model, err);
	return r < 0 ? r : fetch(o, model, dir, cancel, err);
}

int model_fetch(const struct deploy_options *o, const struct model *model, const atomic_int *cancel,
	struct cached *out, struct penstock_error *err)
{
	_cleanup_free_ char *dir = model_dir(o, model->content);
	int r;

	*out = (struct cached){.lock = -1};
	if (!dir)
		return error_memory(err);
	do {
		_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
		int found = model_find(o, model->content, cancel, out, &why);

		if (found == 0)
			return 0;
		if (found != -(int)PENSTOCK_E_CORRUPT && found != -(int)PENSTOCK_E_NOT_FOUND)
			return error_move(err, &why);
		r = make_parent(dir, err);
		if (r == 0)
			r = lock_version(dir,
				found == -(int)PENSTOCK_E_CORRUPT ? LOCK_ALONE
								  : LOCK_ALONE_IF_MISSING,
				cancel, out, err);
		if (r == 1)
			cached_release(out);
	} while (r == 1);
	if (r == 0)
		r = fetch_locked(o, model, dir, cancel, err);
	if (r == 0 && fs_lock_shared(out->lock) != 0)
		r = error_errno(err, errno, "cannot lock '%s'", dir);
	if (r < 0)
		cached_release(out);
	return r;
}
