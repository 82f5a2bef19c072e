#include "metrics/read.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "metrics/internal.h"
#include "transfer/output_keys.h"

#define BLOCK (256 * KIB)

/* The arguments of a read, without the location of the files. */
struct reading {
	struct metrics *metrics;
	const atomic_int *cancel;
	metrics_note_fn note;
	void *cookie;
};

static int finish(struct metrics_feed *feed, const struct reading *reading, const char *path, int r,
	struct penstock_error *err)
{
	if (r == 0)
		r = metrics_feed_end(feed, err);
	if (r == 0 && *feed->problem && reading->note)
		reading->note(reading->cookie, path, feed->problem);
	metrics_feed_release(feed);
	return r;
}

/* The bytes on which a writer of SQLite holds an exclusive lock while it changes the file. */
#define SQLITE_SHARED_FIRST 0x40000002
#define SQLITE_SHARED_SIZE  510
#define LOCK_PAUSE_MS	    20
#define LOCK_TRIES	    50

/* Waits at most a second until no writer changes the database. Returns -1 with errno if a writer
 * is still changing the database. */
static int lock_database(int fd)
{
	struct flock range = {.l_type = F_RDLCK,
		.l_whence = SEEK_SET,
		.l_start = SQLITE_SHARED_FIRST,
		.l_len = SQLITE_SHARED_SIZE};

	for (int i = 0; fcntl(fd, F_OFD_SETLK, &range) < 0; i++) {
		/* On a file system without locks, writers cannot be detected. */
		if (errno != EAGAIN && errno != EACCES)
			return 0;
		if (i == LOCK_TRIES)
			return -1;
		clock_sleep_ms(LOCK_PAUSE_MS);
	}
	return 0;
}

static int read_all(struct metrics_feed *feed, const char *file, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_free_ char *block = malloc(BLOCK);
	ssize_t n = 0;
	int r = 0;

	if (!block)
		return error_memory(err);
	if (fd >= 0 && feed->format->locks && lock_database(fd) < 0)
		n = -1;
	while (fd >= 0 && n >= 0 && r == 0 && !feed->over && (n = read(fd, block, BLOCK)) > 0)
		r = metrics_feed_add(feed, block, (size_t)n, err);
	/* The other files are read even if this file cannot be read. A file that was removed
	 * meanwhile is not reported as a problem, and is not treated as an empty file. */
	if (fd < 0 && errno == ENOENT)
		feed->over = true;
	else if (fd < 0 || n < 0)
		metrics_problem(feed, feed->offset, "cannot be read: %s", strerror(errno));
	return r;
}

static int read_file(const struct reading *reading, const char *file, const char *path,
	struct penstock_error *err)
{
	struct metrics_feed feed;
	int r = metrics_feed_init(&feed, reading->metrics, path, err);

	if (r == 0 && feed.format)
		r = read_all(&feed, file, err);
	return finish(&feed, reading, path, r, err);
}

int metrics_read_file(struct metrics *metrics, const char *file, const char *path,
	metrics_note_fn note, void *cookie, struct penstock_error *err)
{
	return read_file(&(struct reading){.metrics = metrics, .note = note, .cookie = cookie},
		file, path, err);
}

int metrics_read_mlflow(struct metrics *metrics, const char *file, const char *group,
	const char *name, struct penstock_error *err)
{
	const struct reading reading = {.metrics = metrics};
	struct metrics_feed feed;
	int r = metrics_feed_init_mlflow(&feed, metrics, group, name, err);

	if (r == 0)
		r = read_all(&feed, file, err);
	return finish(&feed, &reading, file, r, err);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

int metrics_read_dir(struct metrics *metrics, const char *dir, metrics_note_fn note, void *cookie,
	struct penstock_error *err)
{
	const struct reading reading = {.metrics = metrics, .note = note, .cookie = cookie};
	_cleanup_free_ char *root = strdup(dir);
	char *const paths[] = {root, NULL};
	size_t len = strlen(dir);
	FTSENT *e;
	FTS *fts;
	int r = 0;

	if (!root)
		return error_memory(err);
	while (len > 1 && root[len - 1] == '/')
		root[--len] = '\0';
	len += root[len - 1] != '/'; /* the relative paths start after this slash */
	fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
	if (!fts)
		return error_errno(err, errno, "cannot list '%s'", dir);
	while (r == 0 && (e = fts_read(fts))) {
		if (e->fts_info == FTS_F && e->fts_pathlen > len)
			r = read_file(&reading, e->fts_path, e->fts_path + len, err);
		else if (e->fts_info == FTS_DNR && e->fts_pathlen > len && note)
			note(cookie, e->fts_path + len, strerror(e->fts_errno));
	}
	fts_close(fts);
	return r;
}

static int take_bytes(void *cookie, const void *data, size_t len, struct penstock_error *err)
{
	const struct metrics_feed *feed = cookie;
	int r = metrics_feed_add(cookie, data, len, err);

	return r == 0 && feed->over ? error_set(err, PENSTOCK_E_CANCELLED, "not needed") : r;
}

static int read_object(const struct reading *reading, struct object_ref at, const char *path,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct metrics_feed feed;
	int r = metrics_feed_init(&feed, reading->metrics, path, &e);

	if (r == 0 && feed.format)
		r = object_get_stream(at, &(struct object_get_options){.cancel = reading->cancel},
			take_bytes, &feed, NULL, &e);
	/* The object may have been removed since it was listed, such as the commit of an old
	 * checkpoint. */
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		feed.over = true;
	if (r < 0 && feed.over)
		r = 0;
	r = finish(&feed, reading, path, r, &e);
	return r < 0 ? error_move(err, &e) : 0;
}

int metrics_read_object(struct metrics *metrics, struct object_ref at, const char *path,
	const atomic_int *cancel, metrics_note_fn note, void *cookie, struct penstock_error *err)
{
	return read_object(&(struct reading){metrics, cancel, note, cookie}, at, path, err);
}

struct listing {
	const struct reading *reading;
	size_t prefix;
	struct output_keys keys;
	struct strlist paths; /* paths of objects with metrics */
	struct penstock_error *err;
	int r;
};

static int note_object(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	const char *path;
	struct metrics_feed feed;

	if (strlen(info->key) < l->prefix)
		return 0; /* a store may send keys of another prefix */
	path = info->key + l->prefix;
	if (!output_keys_take(&l->keys, path) || !info->size)
		return 0;
	l->r = metrics_feed_init(&feed, NULL, path, l->err);
	if (l->r == 0 && feed.format && !metrics_too_large(&feed, info->size) &&
		strlist_add(&l->paths, path) < 0)
		l->r = error_memory(l->err);
	if (feed.over && l->reading->note)
		l->reading->note(l->reading->cookie, path, feed.problem);
	metrics_feed_release(&feed);
	return l->r < 0;
}

int metrics_read_store(struct metrics *metrics, struct object_ref at, const atomic_int *cancel,
	metrics_note_fn note, void *cookie, struct penstock_error *err)
{
	const struct reading reading = {metrics, cancel, note, cookie};
	struct listing l = {.reading = &reading, .prefix = strlen(at.key), .err = err};
	int r = object_list(at, NULL, note_object, &l, cancel, err);

	if (r == 0)
		r = l.r;
	for (size_t i = 0; r == 0 && i < l.paths.n; i++) {
		_cleanup_free_ char *key = str_printf("%s%s", at.key, l.paths.items[i]);

		r = key ? read_object(&reading, object_at(at.client, at.bucket, key),
				  l.paths.items[i], err)
			: error_memory(err);
	}
	strlist_release(&l.paths);
	return r;
}
