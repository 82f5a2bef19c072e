/* Passes the bytes of a file to the parser of its format. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "checkpoint/commit.h"
#include "metrics/internal.h"

static bool matches(const char *pattern, const char *base)
{
	return fnmatch(pattern, base, FNM_PERIOD) == 0;
}

/* Returns NAME of "…/mlruns/E/R/metrics/NAME"; NULL if the path has another form. */
static const char *mlflow_name(const char *path)
{
	const char *at = str_starts(path, "mlruns/") ? path : strstr(path, "/mlruns/");

	if (!at)
		return NULL;
	at += *at == '/';
	for (int i = 0; i < 3; i++) {
		at = strchr(at, '/');
		if (!at)
			return NULL;
		at++;
	}
	return str_starts(at, "metrics/") && at[strlen("metrics/")] ? at + strlen("metrics/")
								    : NULL;
}

static const struct metrics_format *format_of(const char *path, const char *base)
{
	if (strstr(base, "tfevents"))
		return &metrics_events;
	if (matches("metrics*.jsonl", base) || matches("log*.jsonl", base) ||
		matches("*history*.jsonl", base))
		return &metrics_lines;
	if (matches("metrics.csv", base) || str_ends(base, ".usage"))
		return &metrics_table;
	if (commit_is_name(base))
		return &metrics_commit;
	if (strcmp(base, "mlflow.db") == 0)
		return &metrics_mlflow_db;
	return mlflow_name(path) ? &metrics_mlflow : NULL;
}

/* Removes the last component of the path. */
static void cut(char *path)
{
	char *slash = strrchr(path, '/');

	*(slash ? slash : path) = '\0';
}

int metrics_feed_init(struct metrics_feed *feed, struct metrics *metrics, const char *path,
	struct penstock_error *err)
{
	const char *base = path_last(path), *name;

	*feed = (struct metrics_feed){.metrics = metrics, .format = format_of(path, base)};
	buf_init(&feed->pending, LIMIT_METRICS_PENDING);
	if (!feed->format)
		return 0;
	feed->group = strdup(path);
	if (!feed->group)
		return error_memory(err);
	name = feed->format == &metrics_mlflow ? mlflow_name(path) : NULL;
	if (name) {
		feed->name = strdup(name);
		feed->group[name - path - strlen("/metrics/")] = '\0';
		return feed->name ? 0 : error_memory(err);
	}
	cut(feed->group);
	/* COMMIT.json is inside the directory of its checkpoint. */
	if (feed->format == &metrics_commit && strcmp(base, COMMIT_NAME) == 0)
		cut(feed->group);
	return 0;
}

int metrics_feed_init_mlflow(struct metrics_feed *feed, struct metrics *metrics, const char *group,
	const char *name, struct penstock_error *err)
{
	*feed = (struct metrics_feed){.metrics = metrics, .format = &metrics_mlflow};
	buf_init(&feed->pending, LIMIT_METRICS_PENDING);
	feed->group = strdup(group);
	feed->name = strdup(name);
	return feed->group && feed->name ? 0 : error_memory(err);
}

void metrics_feed_release(struct metrics_feed *feed)
{
	buf_release(&feed->pending);
	strlist_release(&feed->columns);
	free(feed->group);
	free(feed->name);
}

static int pass_on(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	size_t skipped = feed->skip < len ? (size_t)feed->skip : len;
	ssize_t taken;

	feed->skip -= skipped;
	feed->offset += skipped;
	if (!feed->format || feed->over || (skipped == len && !end))
		return 0;
	if (feed->pending.len) {
		if (buf_add(&feed->pending, data + skipped, len - skipped) < 0)
			return buf_error(&feed->pending, "a record of metrics", err);
		data = feed->pending.data;
		len = feed->pending.len;
		skipped = 0;
	}
	taken = feed->format->take(feed, data + skipped, len - skipped, end, err);
	if (taken < 0)
		return (int)taken;
	feed->offset += (uint64_t)taken;
	if (feed->pending.len)
		buf_consume(&feed->pending, (size_t)taken);
	else if (buf_add(&feed->pending, data + skipped + taken, len - skipped - (size_t)taken) < 0)
		return buf_error(&feed->pending, "a record of metrics", err);
	return 0;
}

int metrics_feed_add(
	struct metrics_feed *f, const void *data, size_t len, struct penstock_error *err)
{
	return pass_on(f, data, len, false, err);
}

int metrics_feed_end(struct metrics_feed *f, struct penstock_error *err)
{
	int r = pass_on(f, "", 0, true, err);

	if (r == 0 && f->format && !f->over && (f->pending.len || f->skip))
		metrics_problem(f, f->offset, "the file ends within a record");
	return r;
}
