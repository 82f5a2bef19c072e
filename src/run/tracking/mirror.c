#include "run/tracking/mirror.h"

#include <errno.h>
#include <fcntl.h>
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
#include "base/log.h"
#include "base/str.h"

enum {
	PAUSE_MS = 15000, /* time without requests after a failure */
	/* time after which a metric that may have new points at lower steps is read again */
	AGAIN_MS = 60000,
};
#define INDEX_FILE  "index.json"
#define INDEX_LIMIT (64 * MIB) /* bytes; LIMIT_METRICS_SERIES names of 4 KiB fit */

/*
 * The index: {"run": ID, "tried": time of the last failure, "failure": its message,
 * "metrics": {NAME: METRIC}}. A METRIC has
 *	"file"	the number of its file
 *	"last"	[step, time, value]: the last point when the history was read
 *	"read"	the time of that reading
 *	"token"	the token of the last page, which is read again: it may have grown
 *	"kept"	bytes of the file before that page
 *	"size"	bytes of the file
 * All times are wall clock in ms.
 */

static int64_t number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value ? value : "";
}

static int set(json_t *object, const char *key, json_t *value, struct penstock_error *err)
{
	return json_object_set_new(object, key, value) < 0 ? error_memory(err) : 0;
}

/* ---- opening ---- */

static json_t *read_index(const char *dir, const char *run)
{
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(INDEX_LIMIT);
	_cleanup_free_ char *path = path_join(dir, INDEX_FILE);
	json_t *index = path && fs_read(path, &bytes, NULL) == 0
				? json_loadb(buf_str(&bytes), bytes.len, 0, NULL)
				: NULL;

	if (json_is_object(json_object_get(index, "metrics")) &&
		strcmp(text(index, "run"), run) == 0)
		return index;
	json_decref(index);
	return json_pack("{s:s, s:{}}", "run", run, "metrics");
}

int mlflow_mirror_open(
	struct mlflow_mirror *mirror, const char *dir, const char *run, struct penstock_error *err)
{
	_cleanup_free_ char *lock = path_join(dir, "lock");
	int r = lock && str_copy(&mirror->dir, dir) ? fs_mkdirs(dir, 0700, err) : error_memory(err);

	if (r < 0)
		return r;
	mirror->lock = fs_lock_file(lock, err);
	if (mirror->lock < 0)
		return mirror->lock;
	mirror->index = read_index(dir, run);
	return mirror->index ? 0 : error_memory(err);
}

void mlflow_mirror_release(struct mlflow_mirror *mirror)
{
	json_decref(mirror->index);
	if (mirror->lock >= 0)
		close(mirror->lock);
	free(mirror->dir);
	*mirror = (struct mlflow_mirror)MLFLOW_MIRROR_INIT;
}

static int save(const struct mlflow_mirror *mirror, struct penstock_error *err)
{
	_cleanup_close_ int dir = open(mirror->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *bytes = json_dumps(mirror->index, JSON_COMPACT);

	if (!bytes)
		return error_memory(err);
	if (dir < 0 || fs_write_text_at(dir, INDEX_FILE, bytes, 0600) < 0)
		return error_errno(err, errno, "cannot write '%s/" INDEX_FILE "'", mirror->dir);
	return 0;
}

/* ---- one metric ---- */

static char *file_of(const struct mlflow_mirror *mirror, const json_t *metric)
{
	return str_printf("%s/%lld", mirror->dir, (long long)number(metric, "file"));
}

static int add_line(void *cookie, const char *name, const struct mlflow_point *point)
{
	(void)name;
	/* A failure is reported after the page. */
	buf_printf(cookie, "%lld %.17g %lld\n", (long long)point->time_ms, point->value,
		(long long)point->step);
	return 0;
}

static uint64_t size_of(json_t *metrics)
{
	uint64_t size = 0;
	const char *name;
	json_t *metric;

	json_object_foreach (metrics, name, metric)
		size += (uint64_t)number(metric, "size");
	return size;
}

/* Replaces the file from offset `kept` on with the page. */
static int write_page(json_t *metric, int fd, int64_t kept, const char *token,
	const struct buf *lines, struct penstock_error *err)
{
	int r;

	if (ftruncate(fd, kept) < 0 || fs_pwrite_all(fd, buf_str(lines), lines->len, kept) < 0)
		return error_errno(err, errno, "cannot write a copy of the metrics");
	r = set(metric, "token", json_string(token), err);
	if (r == 0)
		r = set(metric, "kept", json_integer(kept), err);
	return r < 0 ? r : set(metric, "size", json_integer(kept + (int64_t)lines->len), err);
}

/* The history of a metric that is read from its last page on. */
struct reading {
	struct mlflow_mirror *mirror;
	struct mlflow_talk *talk;
	const char *name;
	json_t *metric;
	int fd;
	int64_t kept;
	struct buf token;
};

/* Reads one page. Returns 1 if another page follows. */
static int read_page(struct reading *h, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf lines = BUF_INIT(2 * LIMIT_TRACKING_REPLY);
	_cleanup_(buf_release) struct buf next = BUF_INIT(LIMIT_STRING);
	const json_t *index = h->mirror->index;
	int r = mlflow_talk_history(h->talk,
		&(struct mlflow_page){text(index, "run"), h->name, buf_str(&h->token)}, add_line,
		&lines, &next, err);

	if (r == 0 && buf_failed(&lines))
		r = buf_error(&lines, "a page of metrics", err);
	if (r == 0)
		r = write_page(h->metric, h->fd, h->kept, buf_str(&h->token), &lines, err);
	/* Stop at an empty page: a server that repeats one would never end the list. */
	if (r < 0 || !next.len || !lines.len)
		return r;
	if (size_of(json_object_get(index, "metrics")) > LIMIT_TRACKING_MIRROR)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the metrics of the tracked run have more than %d MiB",
			(int)(LIMIT_TRACKING_MIRROR / MIB));
	h->kept += (int64_t)lines.len;
	buf_clear(&h->token);
	buf_add_str(&h->token, buf_str(&next));
	return 1;
}

static int read_pages(struct reading *h, struct penstock_error *err)
{
	struct stat st;
	int r;

	h->kept = number(h->metric, "kept");
	buf_add_str(&h->token, text(h->metric, "token"));
	/* After a crash the copy may be incomplete: read the metric from its first page. */
	if (fstat(h->fd, &st) < 0 || st.st_size != number(h->metric, "size")) {
		h->kept = 0;
		buf_clear(&h->token);
	}
	do {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;

		r = read_page(h, &e);
		if (h->token.len && error_expected(r, PENSTOCK_E_INVALID, &e)) {
			h->kept = 0;
			buf_clear(&h->token);
			r = 1;
		}
		if (r < 0)
			return error_move(err, &e);
	} while (r == 1);
	return 0;
}

/* ---- all metrics ---- */

struct update {
	struct mlflow_mirror *mirror;
	json_t *metrics, *stale; /* names with their last points */
	int64_t now_ms, started_ms, ended_ms;
};

static bool is_current(const struct update *u, const json_t *metric, const json_t *last)
{
	int64_t read_ms = number(metric, "read");

	if (!json_equal(json_object_get(metric, "last"), last))
		return false;
	if (json_integer_value(json_array_get(last, 1)) >= u->started_ms)
		return true;
	return read_ms > (u->ended_ms ? u->ended_ms : u->now_ms - AGAIN_MS) && read_ms <= u->now_ms;
}

static int see_last(void *cookie, const char *name, const struct mlflow_point *point)
{
	struct update *u = cookie;
	const json_t *metric = json_object_get(u->metrics, name);
	json_auto_t *last = json_pack("[I, I, o]", (json_int_t)point->step,
		(json_int_t)point->time_ms, json_sprintf("%.17g", point->value));
	size_t n = json_object_size(u->metrics) + json_object_size(u->stale);

	if (!last)
		return -(int)PENSTOCK_E_MEMORY;
	if (metric ? is_current(u, metric, last) : n >= LIMIT_METRICS_SERIES)
		return 0;
	return json_object_set(u->stale, name, last) < 0 ? -(int)PENSTOCK_E_MEMORY : 0;
}

static json_t *metric_of(struct update *u, const char *name)
{
	json_t *metric = json_object_get(u->metrics, name);

	if (metric)
		return metric;
	metric = json_pack("{s:I}", "file", (json_int_t)json_object_size(u->metrics));
	return json_object_set_new(u->metrics, name, metric) < 0 ? NULL : metric;
}

static int read_metric(struct update *u, struct mlflow_talk *talk, const char *name, json_t *last,
	struct penstock_error *err)
{
	json_t *metric = metric_of(u, name);
	_cleanup_free_ char *path = metric ? file_of(u->mirror, metric) : NULL;
	_cleanup_close_ int fd = -1;
	struct reading h = {.mirror = u->mirror,
		.talk = talk,
		.name = name,
		.metric = metric,
		.token = BUF_INIT(LIMIT_STRING)};
	int r;

	if (!path)
		return error_memory(err);
	h.fd = fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot write '%s'", path);
	r = read_pages(&h, err);
	buf_release(&h.token);
	if (r == 0)
		r = set(metric, "last", json_incref(last), err);
	return r < 0 ? r : set(metric, "read", json_integer(u->now_ms), err);
}

static int read_metrics(
	struct update *u, const struct mlflow_server *server, struct penstock_error *err)
{
	_cleanup_(mlflow_talk_freep) struct mlflow_talk *talk = NULL;
	const char *name;
	json_t *last;
	int r = mlflow_talk_new(&talk, server, err);

	if (r == 0)
		r = mlflow_talk_last(talk, text(u->mirror->index, "run"), see_last, u, err);
	if (r < 0)
		return r == -(int)PENSTOCK_E_MEMORY ? error_memory(err) : r;
	json_object_foreach (u->stale, name, last) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		bool away = read_metric(u, talk, name, last, &e) < 0 && error_is_retryable(&e);

		/* Continue after a failure: another metric may be readable, such as one with a
		 * shorter history. */
		if (e.code && r == 0)
			r = error_move(err, &e);
		if (away)
			break;
	}
	return r;
}

static int note_failure(
	struct mlflow_mirror *mirror, int64_t now_ms, const struct penstock_error *failure)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

	log_redact_into(&shown, failure->message);
	return set(mirror->index, "failure", json_string(buf_str(&shown)), NULL) < 0
		       ? -1
		       : set(mirror->index, "tried", json_integer(now_ms), NULL);
}

int mlflow_mirror_update(struct mlflow_mirror *mirror, const struct mlflow_server *server,
	int64_t started_ms, int64_t ended_ms, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int64_t now = clock_wall_ns() / NS_PER_MS, tried = number(mirror->index, "tried");
	struct update u = {.mirror = mirror,
		.metrics = json_object_get(mirror->index, "metrics"),
		.now_ms = now,
		.started_ms = started_ms,
		.ended_ms = ended_ms};
	bool failed = json_object_get(mirror->index, "failure") != NULL;
	json_auto_t *stale = json_object();
	int r, saved = 0;

	if (failed && tried <= now && now - tried < PAUSE_MS)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "%s", text(mirror->index, "failure"));
	if (!stale)
		return error_memory(err);
	u.stale = stale;
	r = read_metrics(&u, server, &e);
	if (r < 0)
		note_failure(mirror, now, &e);
	else
		json_object_del(mirror->index, "failure");
	if (r < 0 || failed || json_object_size(stale))
		saved = save(mirror, r < 0 ? NULL : &e);
	return r < 0 || saved < 0 ? error_move(err, &e) : 0;
}

int mlflow_mirror_each(struct mlflow_mirror *mirror,
	int (*fn)(void *cookie, const char *name, const char *file, struct penstock_error *err),
	void *cookie, struct penstock_error *err)
{
	const char *name;
	json_t *metric;
	int r = 0;

	json_object_foreach (json_object_get(mirror->index, "metrics"), name, metric) {
		_cleanup_free_ char *file = file_of(mirror, metric);

		/* Until its first page is stored, a metric may still have the file of an earlier
		 * run. */
		if (r == 0 && number(metric, "size") > 0)
			r = file ? fn(cookie, name, file, err) : error_memory(err);
	}
	return r;
}
