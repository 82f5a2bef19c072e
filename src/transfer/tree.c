/* Everything below a prefix into a directory: list, check, then fetch with several threads. */
#include "transfer/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/arena.h"
#include "transfer/listing.h"
#include "transfer/objects_internal.h"
#include "transfer/tree_journal.h"
#include "base/banned.h"

#define DEFAULT_PARALLEL 16
#define MAX_PARALLEL	 64
#define POLL_MS		 50 /* between looks at the caller's cancel flag */

struct item {
	const char *key;
	const char *path; /* relative; points into the key where it can */
	const char *etag;
	uint64_t size;
	int64_t modified_ns;
	bool directory;
	bool there; /* already, from an earlier call */
};

struct download {
	struct object_client *client;
	const char *bucket;
	const char *prefix;
	const char *dir;
	const struct tree_download_options *options;
	struct tree_download_stats stats;
	struct arena arena;
	struct item *items;
	size_t n;
	size_t cap;
	struct tree_journal *journal;
	atomic_size_t next;
	atomic_int stop; /* the cancel flag of every request */

	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned running;
	struct penstock_error error; /* the first */
};

/* ---- listing ---- */

static bool excluded(const struct download *d, const char *path)
{
	for (const char *const *e = d->options->exclude; e && *e; e++) {
		if (str_starts(path, *e))
			return true;
	}
	return false;
}

static int add_item(struct download *d, const struct object_info *info, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	size_t key_len = strlen(info->key);
	struct item *item;
	int r = tree_relative_path(d->prefix, info->key, &path, err);

	if (r < 0 || path.len == 0 || excluded(d, buf_str(&path)))
		return r;
	if (strcmp(buf_str(&path), TREE_JOURNAL_NAME) == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"the object \"%s\" has the name of penstock's own journal; rename it",
			info->key);
	if (d->n == LIMIT_TREE_OBJECTS)
		return error_set(err, PENSTOCK_E_LIMIT,
			"there are more than %d objects below s3://%s/%s", LIMIT_TREE_OBJECTS,
			d->bucket, d->prefix);
	if (d->n == d->cap) {
		size_t cap = d->cap ? d->cap * 2 : 1024;
		struct item *grown = realloc(d->items, cap * sizeof(*grown));

		if (!grown)
			return error_memory(err);
		d->items = grown;
		d->cap = cap;
	}
	item = &d->items[d->n];
	*item = (struct item){.size = info->size, .modified_ns = info->modified_ns};
	item->key = arena_copy(&d->arena, info->key, key_len);
	item->etag = arena_copy(&d->arena, info->etag, strlen(info->etag));
	if (!item->key || !item->etag)
		return error_memory(err);
	/* The path is the end of the key. */
	item->path = item->key + key_len - path.len;
	item->directory = path.data[path.len - 1] == '/';
	d->n++;
	return 0;
}

/* Several requests at a time: a data set has many pages. */
static int list_below(struct download *d, const char *prefix, struct penstock_error *err)
{
	_cleanup_(entry_source_freep) struct entry_source *source = NULL;
	struct entry entry;
	int r = entry_source_objects(&source, d->client, d->bucket, prefix,
		&(struct object_source_options){.whole_keys = true, .cancel = d->options->cancel},
		err);

	while (r == 0 && (r = entry_source_next(source, &entry, err)) > 0) {
		struct object_info info = {.key = (char *)entry.key,
			.size = entry.size,
			.modified_ns = entry.mtime_ns};

		object_etag_copy(info.etag, entry.etag);
		r = add_item(d, &info, err);
	}
	return r;
}

/* The object that is the prefix itself. */
static int list_exact(struct download *d, const char *key, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

	if (object_head(d->client, d->bucket, key, &info, &own) < 0) {
		if (own.code == PENSTOCK_E_NOT_FOUND)
			return 0;
		return error_move(err, &own);
	}
	info.key = strdup(key);
	return info.key ? add_item(d, &info, err) : error_memory(err);
}

static int list_all(struct download *d, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(LIMIT_STRING);
	const char *p = d->prefix;
	int r;

	while (*p == '/')
		p++;
	buf_add_str(&prefix, p);
	while (prefix.len && prefix.data[prefix.len - 1] == '/')
		buf_truncate(&prefix, prefix.len - 1);
	if (buf_failed(&prefix))
		return buf_error(&prefix, "the prefix", err);
	if (prefix.len) {
		_cleanup_free_ char *exact = strdup(buf_str(&prefix));

		buf_add_char(&prefix, '/');
		r = list_below(d, buf_str(&prefix), err);
		if (r == 0)
			r = exact ? list_exact(d, exact, err) : error_memory(err);
	} else {
		r = list_below(d, "", err);
	}
	return r;
}

/* ---- checks, before anything is written ---- */

static size_t path_length(const struct item *item)
{
	return strlen(item->path) - (item->directory ? 1 : 0);
}

/* By path, without the slash of a directory. */
static int compare_items(const void *a, const void *b)
{
	const struct item *x = a;
	const struct item *y = b;
	size_t nx = path_length(x);
	size_t ny = path_length(y);
	int r = memcmp(x->path, y->path, nx < ny ? nx : ny);

	return r ? r : (nx > ny) - (nx < ny);
}

/* A file whose path is the first `len` bytes of `path`. */
static const struct item *find_file(const struct download *d, const char *path, size_t len)
{
	size_t low = 0;
	size_t high = d->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct item *item = &d->items[middle];
		size_t n = path_length(item);
		int r = memcmp(item->path, path, n < len ? n : len);

		if (r == 0)
			r = (n > len) - (n < len);
		if (r == 0)
			return item->directory ? NULL : item;
		if (r < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static int clash(const struct item *a, const struct item *b, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"the objects \"%s\" and \"%s\" cannot both become files; rename one or leave its "
		"prefix out",
		a->key, b->key);
}

static int check_clashes(struct download *d, struct penstock_error *err)
{
	if (d->n)
		qsort(d->items, d->n, sizeof(*d->items), compare_items);
	for (size_t i = 0; i < d->n; i++) {
		const struct item *item = &d->items[i];

		if (i && compare_items(item - 1, item) == 0)
			return clash(item - 1, item, err);
		for (const char *slash = strchr(item->path, '/'); slash;
			slash = strchr(slash + 1, '/')) {
			const struct item *file = find_file(
				d, item->path, (size_t)(slash - item->path));

			if (file && file != item)
				return clash(file, item, err);
		}
	}
	return 0;
}

/* What an earlier call left is counted and skipped. */
static void count(struct download *d, uint64_t *missing, uint64_t *missing_bytes)
{
	*missing = 0;
	*missing_bytes = 0;
	for (size_t i = 0; i < d->n; i++) {
		struct item *item = &d->items[i];

		if (item->directory) {
			d->stats.directories++;
			continue;
		}
		d->stats.objects++;
		d->stats.bytes += item->size;
		item->there = tree_journal_has(d->journal, item->path, item->size, item->etag);
		if (item->there) {
			d->stats.skipped_objects++;
			continue;
		}
		++*missing;
		*missing_bytes += item->size;
	}
}

/* ---- fetching ---- */

/* Creates the directories above a path one by one; a link among them would lead out of the tree. */
static int make_parents(struct download *d, const char *path, struct penstock_error *err)
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		_cleanup_free_ char *parent = NULL;
		struct stat st;

		if (asprintf(&parent, "%s/%.*s", d->dir, (int)(slash - path), path) < 0) {
			parent = NULL;
			return error_memory(err);
		}
		if (mkdir(parent, 0777) == 0)
			continue;
		if (errno != EEXIST || lstat(parent, &st) < 0)
			return error_errno(err, errno, "cannot create %s", parent);
		if (!S_ISDIR(st.st_mode))
			return error_set(err, PENSTOCK_E_EXISTS,
				"%s is in the way of a directory; remove it", parent);
	}
	return 0;
}

static int make_empty(const char *path, struct penstock_error *err)
{
	return fs_write_atomic(path, "", 0, 0666, err);
}

static int fetch_item(struct download *d, struct item *item, struct penstock_error *err)
{
	struct object_info known = {.size = item->size};
	struct object_get_options options = {.known = &known,
		.relaxed = true,
		.progress = d->options->progress,
		.cookie = d->options->cookie,
		.cancel = &d->stop};
	_cleanup_free_ char *path = path_join(d->dir, item->path);
	int r = path ? make_parents(d, item->path, err) : error_memory(err);

	if (r < 0 || item->directory)
		return r;
	object_etag_copy(known.etag, item->etag);
	if (item->size == 0)
		r = make_empty(path, err);
	else
		r = object_get_file(d->client, d->bucket, item->key, path, &options, NULL, err);
	if (r == 0)
		r = tree_journal_add(d->journal, item->path, item->size, item->etag, err);
	return r;
}

static void report(struct download *d, const struct item *item)
{
	struct object_info info = {
		.key = (char *)item->key, .size = item->size, .modified_ns = item->modified_ns};

	if (item->directory)
		return;
	object_etag_copy(info.etag, item->etag);
	LOCK_SCOPE(&d->lock);
	if (!item->there) {
		d->stats.fetched_objects++;
		d->stats.fetched_bytes += item->size;
	}
	if (d->options->on_object)
		d->options->on_object(d->options->cookie, item->path, &info);
}

static void *worker_main(void *arg)
{
	struct download *d = arg;

	while (!atomic_load(&d->stop)) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		size_t i = atomic_fetch_add(&d->next, 1);

		if (i >= d->n)
			break;
		if (d->items[i].there || fetch_item(d, &d->items[i], &err) == 0) {
			report(d, &d->items[i]);
			continue;
		}
		pthread_mutex_lock(&d->lock);
		if (d->error.code)
			penstock_error_release(&err);
		else
			error_move(&d->error, &err);
		pthread_mutex_unlock(&d->lock);
		atomic_store(&d->stop, 1);
	}
	pthread_mutex_lock(&d->lock);
	d->running--;
	pthread_cond_signal(&d->ended);
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

/* Waits for the workers and passes the caller's wish to stop on. */
static void watch_workers(struct download *d)
{
	pthread_mutex_lock(&d->lock);
	while (d->running) {
		if (d->options->cancel && atomic_load(d->options->cancel) &&
			!atomic_exchange(&d->stop, 1) && !d->error.code)
			error_set(&d->error, PENSTOCK_E_CANCELLED, "cancelled");
		clock_cond_wait_ms(&d->ended, &d->lock, POLL_MS);
	}
	pthread_mutex_unlock(&d->lock);
}

static int fetch_all(struct download *d, struct penstock_error *err)
{
	pthread_t threads[MAX_PARALLEL];
	size_t wanted = d->options->parallel ? d->options->parallel : DEFAULT_PARALLEL;
	unsigned started = 0;

	if (wanted > MAX_PARALLEL)
		wanted = MAX_PARALLEL;
	if (wanted > d->n)
		wanted = d->n;
	for (; started < wanted; started++) {
		pthread_mutex_lock(&d->lock);
		d->running++;
		pthread_mutex_unlock(&d->lock);
		if (pthread_create(&threads[started], NULL, worker_main, d) != 0) {
			pthread_mutex_lock(&d->lock);
			d->running--;
			pthread_mutex_unlock(&d->lock);
			break;
		}
	}
	if (wanted && !started)
		return error_set(err, PENSTOCK_E_MEMORY, "cannot start a thread");
	watch_workers(d);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return d->error.code ? error_move(err, &d->error) : 0;
}

/* All files at once: one sync of the file system instead of one per file. */
static int sync_tree(const struct download *d, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || syncfs(fd) < 0)
		return error_errno(err, errno, "cannot sync %s", d->dir);
	return 0;
}

static int download_run(struct download *d, struct penstock_error *err)
{
	uint64_t missing;
	uint64_t bytes;
	int r = list_all(d, err);

	if (r == 0)
		r = check_clashes(d, err);
	if (r == 0)
		r = fs_mkdirs(d->dir, 0777, err);
	if (r == 0)
		r = tree_journal_open(&d->journal, d->dir, d->bucket, d->prefix, err);
	if (r < 0)
		return r;
	count(d, &missing, &bytes);
	if (d->options->on_size)
		r = d->options->on_size(d->options->cookie, missing, bytes, err);
	if (r == 0)
		r = fetch_all(d, err);
	/* Also what an earlier call left: the journal is there because that one did not come this far. */
	if (r == 0 && (d->stats.fetched_objects || d->stats.skipped_objects))
		r = sync_tree(d, err);
	if (r == 0)
		tree_journal_finish(d->journal);
	tree_journal_close(d->journal);
	return r;
}

int transfer_download_tree(struct object_client *client, const char *bucket, const char *prefix,
	const char *dir, const struct tree_download_options *options,
	struct tree_download_stats *stats, struct penstock_error *err)
{
	static const struct tree_download_options none;
	struct download d = {.client = client,
		.bucket = bucket,
		.prefix = prefix,
		.dir = dir,
		.options = options ? options : &none};
	int r;

	pthread_mutex_init(&d.lock, NULL);
	clock_cond_init(&d.ended);
	r = download_run(&d, err);
	if (stats)
		*stats = d.stats;
	penstock_error_release(&d.error);
	pthread_cond_destroy(&d.ended);
	pthread_mutex_destroy(&d.lock);
	arena_release(&d.arena);
	free(d.items);
	return r;
}
