#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "alloc_fail.h"
#include "base/clock.h"
#include "base/log.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/uri.h"
#include "sync/record/journal.h"
#include "sync/sync.h"
#include "transfer/objects.h"

/*
 * Every allocation of a sync and of a restore fails once. Each call succeeds or returns the reason,
 * the bucket never has a version of a file that was not closed, and the same call succeeds
 * afterwards. By default only every STRIDE-th allocation fails, from the first one on; with
 * ALLOCATIONS=N from the N-th one on. With ALLOCATIONS=all, every allocation fails.
 */
#define STRIDE	   29
#define FLUSH_MS   60000
#define N_FILES	   4
#define OBJECTS	   64
#define OBJECT_MAX 65536

static const char *const names[N_FILES] = {"a", "d/b", "d/deep/bad\xff", "d/new\nline"};

/* --- an object store in a separate process, whose allocations do not fail --- */

struct object {
	char target[1024], etag[64], metadata[1024];
	char *body;
	size_t len;
};

static struct object objects[OBJECTS];
static unsigned long versions;

static struct object *find(const char *target, bool make)
{
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (strcmp(o->target, target) == 0)
			return o;
	for (struct object *o = objects; make && o < objects + OBJECTS; o++) {
		if (!o->target[0]) {
			snprintf(o->target, sizeof(o->target), "%s", target);
			return o;
		}
	}
	return NULL;
}

/* Copies the x-amz-meta- lines of a request, as later replies return them. */
static void copy_metadata(const struct mini_request *r, char *out, size_t size)
{
	out[0] = '\0';
	for (const char *line = r->headers; *line;) {
		const char *end = strstr(line, "\r\n");
		size_t used = strlen(out);

		if (strncasecmp(line, "x-amz-meta-", 11) == 0)
			snprintf(out + used, size - used, "%.*s\r\n", (int)(end - line), line);
		line = end + 2;
	}
}

static bool refuse(int fd, const char *status, const char *code)
{
	char body[256];
	int n = snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>no</Message></Error>", code);

	return mini_reply(fd, status, "Content-Type: application/xml\r\n", body, (size_t)n);
}

/* Returns true if the conditions of the request hold. */
static bool holds(const struct mini_request *r, const struct object *o)
{
	char value[128];

	if (mini_header(r, "If-None-Match", value, sizeof(value)) && o)
		return false;
	return !mini_header(r, "If-Match", value, sizeof(value)) ||
	       (o && strcmp(value, o->etag) == 0);
}

static bool put_object(const struct mini_request *r, int fd, const char *target)
{
	struct object *o = find(target, false);
	char headers[128];

	if (!holds(r, o))
		return refuse(fd, "412 Precondition Failed", "PreconditionFailed");
	o = find(target, true);
	if (!o)
		return refuse(fd, "507 Insufficient Storage", "InternalError");
	free(o->body);
	o->body = malloc(r->body_len + 1);
	memcpy(o->body, r->body ? r->body : "", r->body_len);
	o->len = r->body_len;
	snprintf(o->etag, sizeof(o->etag), "\"v%lu\"", ++versions);
	copy_metadata(r, o->metadata, sizeof(o->metadata));
	snprintf(headers, sizeof(headers), "ETag: %s\r\n", o->etag);
	return mini_reply(fd, "200 OK", headers, "", 0);
}

static bool get_object(const struct mini_request *r, int fd, const struct object *o)
{
	char headers[2048];

	snprintf(headers, sizeof(headers),
		"ETag: %s\r\nLast-Modified: Sat, 21 Nov 2026 09:05:00 GMT\r\n%s", o->etag,
		o->metadata);
	if (!holds(r, o))
		return refuse(fd, "412 Precondition Failed", "PreconditionFailed");
	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(
			fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n%s\r\n", o->len, headers);
	return mini_reply(fd, "200 OK", headers, o->body, o->len);
}

static bool list_objects(const struct mini_request *r, int fd)
{
	struct buf prefix = BUF_INIT(1024);
	char body[65536];
	size_t n = (size_t)snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>false</IsTruncated>"
		"<EncodingType>url</EncodingType>");

	uri_query_get(strchr(r->target, '?') + 1, "prefix", &prefix);
	for (struct object *o = objects; o < objects + OBJECTS; o++)
		if (o->target[0] && str_starts(o->target + strlen("/b/"), buf_str(&prefix)))
			n += (size_t)snprintf(body + n, sizeof(body) - n,
				"<Contents><Key>%s</Key><Size>%zu</Size><ETag>%s</ETag>"
				"<LastModified>2026-11-21T09:05:00.000Z</LastModified></Contents>",
				o->target + strlen("/b/"), o->len, o->etag);
	n += (size_t)snprintf(body + n, sizeof(body) - n, "</ListBucketResult>");
	buf_release(&prefix);
	return mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", body, n);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	char target[1024];
	struct object *o;
	bool keep;

	(void)m;
	snprintf(target, sizeof(target), "%.*s", (int)strcspn(r->target, "?"), r->target);
	pthread_mutex_lock(&m->lock);
	o = find(target, false);
	if (strcmp(r->method, "PUT") == 0)
		keep = put_object(r, fd, target);
	else if (strcmp(r->method, "GET") == 0 && strstr(r->target, "list-type"))
		keep = list_objects(r, fd);
	else if (strcmp(r->method, "POST") == 0 && strstr(r->target, "?delete")) { /* all keys */
		for (o = objects; o < objects + OBJECTS; o++)
			o->target[0] = '\0';
		keep = mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n",
			"<DeleteResult/>", strlen("<DeleteResult/>"));
	} else if (strcmp(r->method, "POST") == 0) {
		keep = refuse(fd, "501 Not Implemented", "NotImplemented");
	} else if (!o)
		keep = strcmp(r->method, "HEAD") == 0 ? mini_reply(fd, "404 Not Found", "", "", 0)
						      : refuse(fd, "404 Not Found", "NoSuchKey");
	else if (strcmp(r->method, "DELETE") == 0) {
		keep = holds(r, o) ? mini_reply(fd, "204 No Content", "", "", 0)
				   : refuse(fd, "412 Precondition Failed", "PreconditionFailed");
		if (holds(r, o))
			o->target[0] = '\0';
	} else
		keep = get_object(r, fd, o);
	pthread_mutex_unlock(&m->lock);
	return keep;
}

static pid_t server;

static void *connection_main(void *arg)
{
	int fd = ((struct mini_connection *)arg)->fd;

	mini_connection_main(arg);
	close(fd);
	return NULL;
}

/* Accepts connections without limiting their number, because each request with a condition uses a
 * new one. */
static void serve(int listen_fd)
{
	static struct mini_http m = {.answer = answer};

	pthread_mutex_init(&m.lock, NULL);
	for (;;) {
		struct mini_connection *c = malloc(sizeof(*c));
		int one = 1;
		pthread_t thread;

		*c = (struct mini_connection){&m, accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC)};
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		pthread_create(&thread, NULL, connection_main, c);
		pthread_detach(thread);
	}
}

static void start_server(char *url, size_t size)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 128), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	server = fork();
	assert_true(server >= 0);
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	close(fd);
	snprintf(url, size, "http://127.0.0.1:%d", ntohs(address.sin_port));
}

/* --- the directory --- */

struct fixture {
	char top[64], out[80], other[80], private_dir[80], journal[80], url[64];
	struct http_engine *engine;
	struct object_client *s3;
	size_t first, stride;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void empty(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void content_of(const char *name, unsigned version, char *out, size_t size)
{
	snprintf(out, size, "%s of version %u of the checkpoint", name, version);
}

/* Changes a file as a step would; its own allocations do not count. */
static void write_file(const char *dir, const char *name, unsigned version)
{
	char path[256], text[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	content_of(name, version, text, sizeof(text));
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void write_files(const char *dir, unsigned version)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/d", dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/d/deep", dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/link", dir);
	if (version == 1)
		assert_int_equal(symlink("d/b", path), 0);
	for (size_t i = 0; i < N_FILES; i++)
		write_file(dir, names[i], version);
}

static void assert_files(const char *dir, unsigned version)
{
	char path[256], text[256], found[256];

	for (size_t i = 0; i < N_FILES; i++) {
		ssize_t n;
		int fd;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		content_of(names[i], version, text, sizeof(text));
		fd = open(path, O_RDONLY);
		if (fd < 0)
			fail_msg("'%s' is missing", path);
		n = read(fd, found, sizeof(found) - 1);
		close(fd);
		found[n > 0 ? n : 0] = '\0';
		assert_string_equal(found, text);
	}
	snprintf(path, sizeof(path), "%s/link", dir);
	assert_int_equal(readlink(path, found, sizeof(found)), 3);
}

static struct sync_options options_of(const struct fixture *f, const char *out)
{
	return (struct sync_options){.dir = out,
		.private_dir = f->private_dir,
		.client = f->s3,
		.bucket = "b",
		.prefix = "",
		.state_prefix = ".penstock/runs/run",
		.run_id = "run",
		.attempt = 1,
		.journal_path = f->journal,
		.continuous = true,
		.quiet_ms = 1,
		.workers = 2};
}

static void begin_anew(struct fixture *f)
{
	char path[96];

	snprintf(path, sizeof(path), "%s.new", f->journal);
	unlink(path);
	unlink(f->journal);
	empty(f->out);
	empty(f->other);
	empty(f->private_dir);
}

static void empty_bucket(struct fixture *f)
{
	struct strlist keys = {0};

	assert_int_equal(strlist_add(&keys, "x"), 0);
	object_delete_many(&(struct object_deletion){f->s3, "b", &keys, NULL, NULL, NULL}, NULL,
		NULL); /* the store deletes all objects for any list */
	strlist_release(&keys);
}

/* Returns the version of the object, 1 or 2; 0 if the object is missing. */
static unsigned version_there(struct fixture *f, const char *name)
{
	struct buf body = BUF_INIT(OBJECT_MAX);
	char key[256], text[256];
	unsigned version = 0;
	int rc;

	snprintf(key, sizeof(key), "%s", strcmp(name, names[2]) == 0 ? "d/deep/bad%FF" : name);
	rc = object_get(object_at(f->s3, "b", key), NULL, &body, NULL, NULL);
	for (unsigned v = 1; rc == 0 && v <= 2; v++) {
		content_of(name, v, text, sizeof(text));
		if (strcmp(text, buf_str(&body)) == 0)
			version = v;
	}
	if (rc == 0 && !version)
		fail_msg("%s holds \"%s\"", key, buf_str(&body));
	buf_release(&body);
	return version;
}

static void assert_reason(int rc, const struct penstock_error *err)
{
	if (rc < 0) {
		assert_int_equal(rc, -(int)err->code);
		if (err->message)
			assert_true(strlen(err->message) > 4 && !strchr(err->message, '\n'));
	}
}

/* Asserts that no file or directory of the test is open. */
static void assert_closed(const struct fixture *f)
{
	DIR *open_ones = opendir("/proc/self/fd");
	char target[256];

	assert_non_null(open_ones);
	for (struct dirent *d; (d = readdir(open_ones));) {
		ssize_t n = readlinkat(dirfd(open_ones), d->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		if (strncmp(target, f->top, strlen(f->top)) == 0)
			fail_msg("'%s' is still open", target);
	}
	closedir(open_ones);
}

/* --- the scenarios --- */

/* Runs a sync from start to end, with two versions of each file. Returns true if an allocation
 * failed. */
static bool publish(struct fixture *f, size_t n)
{
	struct sync_options o = options_of(f, f->out);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct sync *s = NULL;
	bool failed;
	int rc;

	begin_anew(f);
	empty_bucket(f);
	alloc_fail_arm(n);
	rc = sync_start(&s, &o, &err);
	assert_reason(rc, &err);
	penstock_error_release(&err);
	if (rc < 0)
		assert_int_equal(sync_start(&s, &o, &err), 0);
	write_files(f->out, 1);
	rc = sync_flush(s, clock_monotonic_ms() + FLUSH_MS, &err);
	assert_reason(rc, &err);
	penstock_error_release(&err);
	write_files(f->out, 2);
	rc = sync_flush(s, clock_monotonic_ms() + FLUSH_MS, &err);
	assert_reason(rc, &err);
	failed = alloc_fail_disarm();
	for (size_t i = 0; i < N_FILES; i++)
		if (rc == 0 && version_there(f, names[i]) != 2)
			fail_msg("allocation %zu: the flush succeeded without '%s'", n, names[i]);
	penstock_error_release(&err);

	rc = sync_flush(s, clock_monotonic_ms() + FLUSH_MS, &err);
	if (rc < 0)
		fail_msg("allocation %zu: the next flush failed: %s", n, err.message);
	for (size_t i = 0; i < N_FILES; i++)
		assert_int_equal(version_there(f, names[i]), 2);
	sync_free(s);
	return failed;
}

/* Restores all files of the bucket, first into another directory and then in place. Returns true if
 * an allocation failed. */
static bool restore(struct fixture *f, size_t n)
{
	struct sync_options o = options_of(f, f->other), here = options_of(f, f->out);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct sync_restored restored;
	bool failed;
	int rc;

	empty(f->other);
	o.journal_path = NULL;
	alloc_fail_arm(n);
	rc = sync_restore(&o, &restored, &err);
	assert_reason(rc, &err);
	if (rc == 0)
		assert_files(f->other, 2);
	penstock_error_release(&err);
	rc = sync_restore(&here, &restored, &err);
	assert_reason(rc, &err);
	assert_true(rc < 0 || restored.files_suspect == 0);
	penstock_error_release(&err);
	failed = alloc_fail_disarm();
	assert_closed(f);
	assert_files(f->out, 2);

	rc = sync_restore(&o, &restored, &err);
	if (rc < 0)
		fail_msg("allocation %zu: the next restore failed: %s", n, err.message);
	assert_files(f->other, 2);
	rc = sync_restore(&here, &restored, &err);
	assert_int_equal(rc, 0);
	assert_int_equal(restored.files_suspect, 0);
	assert_files(f->out, 2);
	return failed;
}

/* Fails each allocation in turn, or only every STRIDE-th one. */
static void each_allocation(struct fixture *f, bool (*scenario)(struct fixture *f, size_t n))
{
	size_t n = f->first, failed = 0;

	for (; scenario(f, n); n += f->stride)
		failed++;
	print_message("%zu of about %zu allocations failed\n", failed, n);
	assert_true(failed > 5);
}

static void a_sync_survives_the_failure_of_any_allocation(void **state)
{
	each_allocation(*state, publish);
}

/* Adds a record of a replaced object to the journal: another program's object, of which a copy was
 * kept. */
static void note_kept(const struct fixture *f)
{
	struct buf line = BUF_INIT(OBJECT_MAX);
	int fd = open(f->journal, O_WRONLY | O_APPEND);

	journal_format(&line, &(struct journal_record){.type = JOURNAL_KEPT,
				      .path = "a",
				      .etag = "\"old\"",
				      .key = ".penstock/runs/run/replaced/old/a"});
	assert_int_equal(write(fd, line.data, line.len), line.len);
	close(fd);
	buf_release(&line);
}

static void a_restore_survives_the_failure_of_any_allocation(void **state)
{
	struct fixture *f = *state;

	publish(f, SIZE_MAX);
	note_kept(f);
	each_allocation(f, restore);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *wanted = getenv("ALLOCATIONS");

	snprintf(f->top, sizeof(f->top), "/tmp/penstock-sync-alloc-XXXXXX");
	assert_non_null(mkdtemp(f->top));
	snprintf(f->out, sizeof(f->out), "%s/out", f->top);
	snprintf(f->other, sizeof(f->other), "%s/other", f->top);
	snprintf(f->private_dir, sizeof(f->private_dir), "%s/private", f->top);
	snprintf(f->journal, sizeof(f->journal), "%s/journal", f->top);
	f->stride = wanted && strcmp(wanted, "all") == 0 ? 1 : STRIDE;
	f->first = wanted && strcmp(wanted, "all") != 0 ? strtoul(wanted, NULL, 10) : 1;
	start_server(f->url, sizeof(f->url));
	alloc_fail_skip_library("libcurl");
	alloc_fail_skip_library("libcrypto");
	alloc_fail_skip_library("libssl");
	assert_int_equal(http_engine_new(&f->engine, &(struct http_engine_options){0}, NULL), 0);
	assert_int_equal(
		object_client_open(&f->s3, f->engine,
			&(struct store_place){
				.endpoint_url = f->url, .region = "us-east-1", .anonymous = true},
			NULL),
		0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	object_client_free(f->s3);
	http_engine_free(f->engine);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	nftw(f->top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(f);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sync_survives_the_failure_of_any_allocation),
		cmocka_unit_test(a_restore_survives_the_failure_of_any_allocation),
	};

	log_set_level_name("error");
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
