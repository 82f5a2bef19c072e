/*
 * Bulk transfers from the command line, for tests:
 *
 *	bulktool up DIR BUCKET PREFIX | down BUCKET PREFIX DIR
 *	bulktool copy BUCKET PREFIX BUCKET PREFIX | remove BUCKET PREFIX
 *	bulktool up-url DIR URL | down-url URL DIR < NAMES
 *
 * Prints a summary as one line of JSON, and on stderr a line for each item that failed. The exit
 * status is the code of the first error. MOVE=1 moves, KNOWN=0 does not use the listed sizes and
 * ETags, PRESERVE=1 keeps times and modes, SIGINT cancels.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/bulk.h"

static struct http_engine *engine;
static struct object_client *s3;
static struct bulk *bulk;
static struct penstock_error err = PENSTOCK_ERROR_INIT;
static atomic_int cancel;

static bool option(const char *name)
{
	const char *value = getenv(name);

	return value && strcmp(value, "1") == 0;
}

static void on_done(void *cookie, const struct bulk_item *item, const struct object_info *info,
	const struct penstock_error *error)
{
	(void)cookie;
	(void)item;
	(void)info;
	if (error)
		fprintf(stderr, "%s\n", error->message ? error->message : "out of memory");
}

static void on_signal(int number)
{
	(void)number;
	atomic_store(&cancel, 1);
}

/* ---- up ---- */

struct up {
	const char *dir, *bucket, *prefix, *url;
};

static int push_file(const struct up *up, const char *path)
{
	_cleanup_free_ char *to = NULL;
	const char *relative = path + strlen(up->dir) + 1;

	if (asprintf(&to, "%s%s", up->url ? up->url : up->prefix, relative) < 0)
		abort();
	return bulk_push(bulk,
		&(struct bulk_item){.kind = BULK_UPLOAD,
			.path = path,
			.path_root = strlen(up->dir),
			.to = object_at(s3, up->bucket, up->url ? NULL : to),
			.to_url = up->url ? to : NULL,
			.remove_source = option("MOVE")},
		&err);
}

static int push_directory(const struct up *up, const char *path)
{
	_cleanup_closedir_ DIR *dir = opendir(path);
	const struct dirent *e;
	int r = 0;

	if (!dir)
		abort();
	while (r == 0 && (e = readdir(dir))) {
		_cleanup_free_ char *below = NULL;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (asprintf(&below, "%s/%s", path, e->d_name) < 0)
			abort();
		r = e->d_type == DT_DIR ? push_directory(up, below) : push_file(up, below);
	}
	return r;
}

/* ---- down, copy, remove ---- */

struct listed {
	enum bulk_kind kind;
	const char *bucket, *prefix, *to_bucket, *to; /* `to`: a directory or a prefix */
	int result;
};

static int push_listed(void *cookie, const struct object_info *info)
{
	struct listed *l = cookie;
	_cleanup_free_ char *to = NULL;
	const char *known = getenv("KNOWN");
	struct bulk_item item = {.kind = l->kind,
		.from = object_at(s3, l->bucket, info->key),
		.known = known && strcmp(known, "0") == 0 ? NULL : info,
		.remove_source = option("MOVE")};

	if (asprintf(&to, "%s%s%s", l->to ? l->to : "", l->kind == BULK_DOWNLOAD ? "/" : "",
		    info->key + strlen(l->prefix)) < 0)
		abort();
	if (l->kind == BULK_DOWNLOAD) {
		item.path = to;
		item.path_root = l->to ? strlen(l->to) : 0;
	} else if (l->kind == BULK_COPY) {
		item.to = object_at(s3, l->to_bucket, to);
	}
	l->result = bulk_push(bulk, &item, &err);
	return l->result < 0;
}

static int push_list(struct listed *l)
{
	int r = object_list(
		object_at(s3, l->bucket, l->prefix), NULL, push_listed, l, &cancel, &err);

	return r < 0 ? r : l->result;
}

static int push_urls(const char *url, const char *dir)
{
	char name[PATH_MAX];
	int r = 0;

	while (r == 0 && fgets(name, sizeof(name), stdin)) {
		_cleanup_free_ char *from = NULL, *path = NULL;

		name[strcspn(name, "\n")] = '\0';
		if (asprintf(&from, "%s%s", url, name) < 0 ||
			asprintf(&path, "%s/%s", dir, name) < 0)
			abort();
		r = bulk_push(bulk,
			&(struct bulk_item){.kind = BULK_DOWNLOAD,
				.from_url = from,
				.path = path,
				.path_root = strlen(dir)},
			&err);
	}
	return r;
}

static int run(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (strcmp(verb, "up") == 0 && argc == 5)
		return push_directory(&(struct up){argv[2], argv[3], argv[4], NULL}, argv[2]);
	if (strcmp(verb, "up-url") == 0 && argc == 4)
		return push_directory(&(struct up){argv[2], NULL, NULL, argv[3]}, argv[2]);
	if (strcmp(verb, "down-url") == 0 && argc == 4)
		return push_urls(argv[2], argv[3]);
	if (strcmp(verb, "down") == 0 && argc == 5)
		return push_list(
			&(struct listed){BULK_DOWNLOAD, argv[2], argv[3], NULL, argv[4], 0});
	if (strcmp(verb, "copy") == 0 && argc == 6)
		return push_list(
			&(struct listed){BULK_COPY, argv[2], argv[3], argv[4], argv[5], 0});
	if (strcmp(verb, "remove") == 0 && argc == 4)
		return push_list(&(struct listed){BULK_DELETE, argv[2], argv[3], NULL, NULL, 0});
	return error_set(&err, PENSTOCK_E_INVALID, "usage: bulktool VERB ARGUMENTS");
}

int main(int argc, char **argv)
{
	struct bulk_totals totals = {0};
	struct http_counters c = {0};
	struct penstock_error finish = PENSTOCK_ERROR_INIT;
	int r;

	log_set_level_name(getenv("PENSTOCK_LOG"));
	signal(SIGINT, on_signal);
	r = http_engine_new(&engine, &(struct http_engine_options){.cancel = &cancel}, &err);
	if (r == 0)
		r = object_client_open(&s3, engine, &(struct store_place){0}, &err);
	if (r == 0)
		r = bulk_new(&bulk, engine,
			&(struct bulk_options){.on_done = on_done,
				.cancel = &cancel,
				.preserve = option("PRESERVE"),
				.set_times = true},
			&err);
	if (r == 0) {
		r = run(argc, argv);
		if (bulk_finish(bulk, &totals, &finish) < 0 && r == 0)
			r = error_move(&err, &finish);
		penstock_error_release(&finish);
	}
	if (r < 0)
		fprintf(stderr, "first: %s\n", err.message ? err.message : "out of memory");
	if (engine)
		http_engine_counters(engine, &c);
	printf("{\"items\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"connections\": %" PRIu64 ", \"requests\": %" PRIu64 ", \"retries\": %" PRIu64
	       "}\n",
		totals.items, totals.bytes, totals.failed, c.connections, c.requests, c.retries);
	bulk_free(bulk);
	object_client_free(s3);
	http_engine_free(engine);
	penstock_error_release(&err);
	log_redact_clear();
	return -r;
}
