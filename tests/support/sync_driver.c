/*
 * Runs a sync without a run, for system tests and benchmarks: options on the command line, commands
 * on standard input, results as one JSON object per line on standard output.
 *
 *	sync-driver --dir D --private P [--journal J] --bucket B [--prefix P/] [--attempt N] ...
 *
 *	restore | start | flush [MS] | flush-on [MS] | doomed | ended 0|1 | settle | status
 *	manifest | stop | quit
 *
 * Endpoint and keys come from the environment, as for every S3 client.
 */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <jansson.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "sync/kernel/lease.h"
#include "sync/record/manifest.h"
#include "sync/record/names.h"
#include "sync/sync.h"
#include "transfer/objects.h"

static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;

static void say(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);

	pthread_mutex_lock(&out_lock);
	puts(text ? text : "{\"error\":\"cannot print the result\"}");
	fflush(stdout);
	pthread_mutex_unlock(&out_lock);
	free(text);
	json_decref(line);
}

static json_t *text_of(const char *raw)
{
	struct buf b = BUF_INIT(65536);
	json_t *s;

	if (!raw)
		return json_null();
	names_encode(&b, raw);
	s = json_string(buf_str(&b));
	buf_release(&b);
	return s;
}

static const char *const event_names[] = {
	[SYNC_PUBLISHED] = "published",
	[SYNC_PUBLISHED_OPEN] = "grown",
	[SYNC_PARTIAL] = "partial",
	[SYNC_DELETED] = "deleted",
	[SYNC_KEPT] = "kept",
	[SYNC_WARNING] = "warning",
	[SYNC_LOST] = "lost",
};

static void on_event(
	void *cookie, enum sync_event event, const char *path, uint64_t bytes, const char *detail)
{
	(void)cookie;
	say(json_pack("{s:s, s:o, s:I, s:o, s:f}", "event", event_names[event], "path",
		text_of(path), "bytes", (json_int_t)bytes, "detail", text_of(detail), "at",
		(double)clock_monotonic_ns() / 1e9));
}

static void answer(const char *command, int rc, const struct penstock_error *err)
{
	if (rc < 0)
		say(json_pack("{s:s, s:s, s:s, s:s}", "answer", command, "error",
			penstock_code_name((enum penstock_code) - rc), "message",
			err->message ? err->message : "", "result", "failed"));
	else
		say(json_pack("{s:s, s:s}", "answer", command, "result", "done"));
}

static void status(struct sync *s)
{
	struct sync_status st;

	sync_get_status(s, &st);
	say(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:I, s:s}", "answer",
		"status", "files_published", (json_int_t)st.files_published, "bytes_published",
		(json_int_t)st.bytes_published, "files_waiting", (json_int_t)st.files_waiting,
		"bytes_waiting", (json_int_t)st.bytes_waiting, "lag_ms", (json_int_t)st.lag_ms,
		"files_suspect", (json_int_t)st.files_suspect, "deleted", (json_int_t)st.deleted,
		"lost", st.lost, "polling", st.polling, "scans", (json_int_t)st.scans, "last_error",
		st.last_error));
}

struct listing {
	json_t *all;
	const char *prefix;
};

static int on_item(void *cookie, enum manifest_list list, const struct manifest_item *item)
{
	static const char *const names[] = {"files", "replaced", "partial"};
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 4);
	const struct listing *l = cookie;

	buf_add_str(&key, l->prefix);
	names_key(&key, item->path);
	return json_array_append_new(json_object_get(l->all, names[list]),
		json_pack("{s:o, s:o, s:I, s:I, s:i, s:o, s:s, s:b, s:o}", "path",
			text_of(item->path), "key", text_of(buf_str(&key)), "size",
			(json_int_t)item->size, "mtime_ns", (json_int_t)item->mtime_ns, "mode",
			(int)item->mode, "link", text_of(item->link), "etag", item->etag, "deleted",
			item->deleted, "kept", text_of(item->kept)));
}

static void manifest(const struct sync_options *o, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY), path = BUF_INIT(4096);
	_cleanup_fclose_ FILE *f = NULL;
	struct manifest_head head;
	struct listing l = {json_pack("{s:s, s:[], s:[], s:[]}", "answer", "manifest", "files",
				    "replaced", "partial"),
		o->prefix};
	int rc;

	buf_printf(&key, "%s%s/manifest.json", o->prefix, o->state_prefix);
	buf_printf(&path, "%s/manifest.in", o->private_dir);
	rc = fs_mkdirs(o->private_dir, 0700, err);
	if (rc == 0)
		rc = object_get_file(object_at(o->client, o->bucket, buf_str(&key)), buf_str(&path),
			&(struct object_get_options){0}, NULL, err);
	f = rc < 0 ? NULL : fopen(buf_str(&path), "re");
	if (f)
		rc = manifest_read(f, "manifest.json", &head, on_item, &l, err);
	if (rc < 0) {
		json_decref(l.all);
		answer("manifest", rc, err);
		return;
	}
	say(l.all);
}

static void restore(const struct sync_options *o, struct penstock_error *err)
{
	struct sync_restored r = {0};
	int rc = sync_restore(o, &r, err);

	if (rc < 0)
		answer("restore", rc, err);
	else
		say(json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "answer", "restore", "found",
			r.found, "files_kept", (json_int_t)r.files_kept, "files_fetched",
			(json_int_t)r.files_fetched, "bytes_fetched", (json_int_t)r.bytes_fetched,
			"files_suspect", (json_int_t)r.files_suspect, "files_unsent",
			(json_int_t)r.files_unsent));
}

static void command_loop(struct sync_options *o)
{
	struct sync *s = NULL;
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		char word[32] = "";
		long long number = 0;
		int rc = 0;

		sscanf(line, "%31s %lld", word, &number);
		if (strcmp(word, "quit") == 0)
			break;
		if (strcmp(word, "restore") == 0) {
			restore(o, &err);
		} else if (strcmp(word, "manifest") == 0) {
			manifest(o, &err);
		} else if (strcmp(word, "start") == 0) {
			rc = sync_start(&s, o, &err);
			answer(word, rc, &err);
		} else if (!s) {
			say(json_pack(
				"{s:s}", "error", "the sync has not started; send 'start' first"));
		} else if (strcmp(word, "flush") == 0) {
			rc = sync_flush(s, number ? clock_monotonic_ms() + number : 0, &err);
			answer(word, rc, &err);
		} else if (strcmp(word, "flush-on") == 0) {
			rc = sync_flush_on(s, number ? clock_monotonic_ms() + number : 0, &err);
			answer(word, rc, &err);
		} else if (strcmp(word, "ended") == 0) {
			sync_task_ended(s, number != 0);
			answer(word, 0, &err);
		} else if (strcmp(word, "doomed") == 0) {
			sync_kill_coming(s);
			answer(word, 0, &err);
		} else if (strcmp(word, "settle") == 0) {
			sync_settle(s);
			answer(word, 0, &err);
		} else if (strcmp(word, "status") == 0) {
			status(s);
		} else if (strcmp(word, "stop") == 0) {
			sync_free(s);
			s = NULL;
			answer(word, 0, &err);
		}
		penstock_error_release(&err);
	}
	sync_free(s);
}

/*
 * --network simulates a network file system, which has neither events nor leases. The linker
 * redirects calls of the sync to these wrappers.
 */
static bool network, traceless;

bool __real_fs_is_network(const char *path);
bool __wrap_fs_is_network(const char *path);
bool __wrap_fs_is_network(const char *path)
{
	return network || __real_fs_is_network(path);
}

enum lease __real_lease_check(int fd);
enum lease __wrap_lease_check(int fd);
enum lease __wrap_lease_check(int fd)
{
	return network ? LEASE_UNKNOWN : __real_lease_check(fd);
}

int __real_fstatfs64(int fd, struct statfs *fs);
int __wrap_fstatfs64(int fd, struct statfs *fs);
int __wrap_fstatfs64(int fd, struct statfs *fs)
{
	int rc = __real_fstatfs64(fd, fs);

	if (rc == 0 && (network || traceless))
		fs->f_type = network ? NFS_SUPER_MAGIC : TMPFS_MAGIC;
	return rc;
}

/* --traceless simulates file systems whose times do not show every write, such as tmpfs before
 * Linux 6.6. */
static int without_times(int rc, struct stat *st)
{
	if (rc == 0 && traceless)
		st->st_mtim = st->st_ctim = (struct timespec){.tv_sec = 1};
	return rc;
}

int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st)
{
	return without_times(__real_fstat64(fd, st), st);
}

int __real_fstatat64(int dir, const char *path, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *path, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *path, struct stat *st, int flags)
{
	return without_times(__real_fstatat64(dir, path, st, flags), st);
}

static const struct option options[] = {
	{"dir", required_argument, NULL, 'd'},
	{"private", required_argument, NULL, 'p'},
	{"journal", required_argument, NULL, 'j'},
	{"bucket", required_argument, NULL, 'b'},
	{"prefix", required_argument, NULL, 'x'},
	{"run", required_argument, NULL, 'r'},
	{"attempt", required_argument, NULL, 'a'},
	{"began", required_argument, NULL, 'B'},
	{"root-pid", required_argument, NULL, 'i'},
	{"append-ms", required_argument, NULL, 'g'},
	{"scan-ms", required_argument, NULL, 's'},
	{"quiet-ms", required_argument, NULL, 'q'},
	{"delete", no_argument, NULL, 'D'},
	{"no-continuous", no_argument, NULL, 'n'},
	{"network", no_argument, NULL, 'N'},
	{"traceless", no_argument, NULL, 'T'},
	{NULL, 0, NULL, 0},
};

static int parse(int argc, char **argv, struct sync_options *o, char *state, size_t size)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			o->dir = optarg;
			break;
		case 'p':
			o->private_dir = optarg;
			break;
		case 'j':
			o->journal_path = optarg;
			break;
		case 'b':
			o->bucket = optarg;
			break;
		case 'x':
			o->prefix = optarg;
			break;
		case 'r':
			o->run_id = optarg;
			break;
		case 'a':
			o->attempt = (int)strtol(optarg, NULL, 10);
			break;
		case 'B':
			o->began = (int)strtol(optarg, NULL, 10);
			break;
		case 'i':
			o->root_pid = (pid_t)strtol(optarg, NULL, 10);
			break;
		case 'g':
			o->append_ms = (int)strtol(optarg, NULL, 10);
			break;
		case 's':
			o->scan_ms = (int)strtol(optarg, NULL, 10);
			break;
		case 'q':
			o->quiet_ms = (int)strtol(optarg, NULL, 10);
			break;
		case 'D':
			o->delete_sync = true;
			break;
		case 'n':
			o->continuous = false;
			break;
		case 'N':
			network = true;
			break;
		case 'T':
			traceless = true;
			break;
		default:
			return -1;
		}
	}
	snprintf(state, size, ".penstock/runs/%s", o->run_id);
	o->state_prefix = state;
	return o->dir && o->private_dir && o->bucket ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct http_engine *engine = NULL;
	struct sync_options o = {.prefix = "",
		.run_id = "run",
		.attempt = 1,
		.continuous = true,
		.on_event = on_event};
	char state[128];
	int rc;

	if (parse(argc, argv, &o, state, sizeof(state)) < 0) {
		fprintf(stderr, "usage: sync-driver --dir D --private P --bucket B [OPTION]...\n");
		return 64;
	}
	log_set_level_name(getenv("PENSTOCK_LOG"));
	rc = http_engine_new(&engine, &(struct http_engine_options){0}, &err);
	if (rc == 0)
		rc = object_client_open(&o.client, engine, &(struct store_place){0}, &err);
	if (rc == 0)
		rc = bucket_create(o.client, o.bucket, &err);
	if (rc == 0)
		command_loop(&o);
	else
		fprintf(stderr, "%s\n", err.message);
	object_client_free(o.client);
	http_engine_free(engine);
	penstock_error_release(&err);
	return rc < 0 ? 69 : 0;
}
