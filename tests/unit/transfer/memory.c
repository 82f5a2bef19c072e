/*
 * Every allocation of a transfer fails once: it ends whole, or with an error that says so, and leaves
 * nothing under a final name.
 */
#include "alloc_fail.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "mini_fork.h"
#include "net/credentials.h"
#include "net/http.h"
#include "s3/checksum.h"
#include "s3/multipart.h"
#include "transfer/bulk.h"
#include "transfer/http_fetch.h"
#include "transfer/listing.h"
#include "transfer/objects.h"
#include "transfer/tree.h"
#include "transfer/part_file.h"

#define SIZE (20 * KIB)

static char data[SIZE];
static char data_etag[40];

/* ---- the store, in a process of its own ---- */

static bool xml(int fd, const char *body)
{
	return mini_reply(fd, "200 OK", "Content-Type: application/xml\r\n", body, strlen(body));
}

static bool list(int fd)
{
	char body[2048];

	snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix>p/</Prefix>"
		"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
		"<Contents><Key>p/a</Key><LastModified>2026-11-21T09:05:00.000Z</LastModified>"
		"<ETag>%s</ETag><Size>%zu</Size></Contents>"
		"<Contents><Key>p/d/b</Key><LastModified>2026-11-21T09:05:00.000Z</LastModified>"
		"<ETag>%s</ETag><Size>%zu</Size></Contents></ListBucketResult>",
		data_etag, (size_t)SIZE, data_etag, (size_t)SIZE);
	return xml(fd, body);
}

#define MANY 60 /* keys "m/00" and on, in pages of 20 */

/* What comes behind start-after, or at the number that the token is. */
static bool list_many(const char *target, int fd)
{
	const char *after = strstr(target, "start-after=m%2F");
	const char *token = strstr(target, "continuation-token=");
	unsigned at = token   ? (unsigned)atoi(token + 19)
		      : after ? (unsigned)atoi(after + 16) + 1
			      : 0;
	unsigned end = at + 20 < MANY ? at + 20 : MANY;
	char body[8192];
	int n = snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><ListBucketResult><EncodingType>url</EncodingType>"
		"<IsTruncated>%s</IsTruncated><NextContinuationToken>%u</NextContinuationToken>",
		end < MANY ? "true" : "false", end);

	for (; at < end; at++)
		n += snprintf(body + n, sizeof(body) - (size_t)n,
			"<Contents><Key>m%%2F%02u</Key><ETag>&quot;e&quot;</ETag><Size>1</Size>"
			"</Contents>",
			at);
	snprintf(body + n, sizeof(body) - (size_t)n, "</ListBucketResult>");
	return xml(fd, body);
}

/* 200 with the ETag and the checksum of what was sent. */
static bool take(const struct mini_request *r, int fd)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char md5[33], sum[64] = "", headers[256];

	checksum_of(CHECKSUM_MD5, r->body, r->body_len, digest, NULL);
	str_hex(digest, 16, md5);
	mini_header(r, "x-amz-checksum-crc64nvme", sum, sizeof(sum));
	snprintf(headers, sizeof(headers), "ETag: \"%s\"\r\n%s%s%s", md5,
		*sum ? "x-amz-checksum-crc64nvme: " : "", sum, *sum ? "\r\n" : "");
	return mini_reply(fd, "200 OK", headers, "", 0);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	if (strstr(r->target, "list-type=2") && strstr(r->target, "prefix=m%2F"))
		return list_many(r->target, fd);
	if (strstr(r->target, "list-type=2"))
		return list(fd);
	if (strcmp(r->method, "POST") == 0 && strstr(r->target, "delete"))
		return xml(fd, "<DeleteResult></DeleteResult>");
	if (strcmp(r->method, "PUT") == 0 && strstr(r->target, "to"))
		return xml(fd, "<CopyObjectResult><ETag>\"c\"</ETag>"
			       "<LastModified>2026-11-21T09:05:00.000Z</LastModified>"
			       "</CopyObjectResult>");
	if (strcmp(r->method, "PUT") == 0)
		return take(r, fd);
	if (strcmp(r->method, "DELETE") == 0)
		return mini_reply(fd, "204 No Content", "", "", 0);
	if (strcmp(r->target, "/bucket/p") == 0)
		return mini_reply(fd, "404 Not Found", "", "", 0);
	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nETag: %s\r\nContent-Length: %zu\r\n\r\n",
			data_etag, (size_t)SIZE);
	return mini_serve(r, fd, data_etag, data, SIZE);
}

/* ---- the client ---- */

static struct mini_fork server;
static char dir[] = "/tmp/penstock-memory-XXXXXX";
static int source = -1;

static int set_up(void **state)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char md5[33];

	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 2654435761U >> 13);
	checksum_of(CHECKSUM_MD5, data, SIZE, digest, NULL);
	str_hex(digest, 16, md5);
	snprintf(data_etag, sizeof(data_etag), "\"%s\"", md5);
	source = memfd_create("source", MFD_CLOEXEC);
	return source < 0 || fs_write_all(source, data, SIZE) < 0 || !mkdtemp(dir) ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(source);
	return fs_remove_tree(dir, NULL);
}

static int start_server(void **state)
{
	(void)state;
	return mini_fork_start(&server, answer) ? 0 : -1;
}

static int stop_server(void **state)
{
	(void)state;
	return mini_fork_stop(&server) ? 0 : -1;
}

struct client {
	struct http_engine *engine;
	struct credentials_provider *keys;
	struct object_client *s3;
};

static int client_new(struct client *c, struct penstock_error *err)
{
	struct object_client_options options = {.endpoint_url = server.url, .region = "us-east-1"};
	int rc = http_engine_new(
		&c->engine, &(struct http_engine_options){.retry_base_ms = 1}, err);

	if (rc == 0)
		rc = credentials_provider_new_static(&c->keys, "AKID", "very/secret", NULL, err);
	options.engine = c->engine;
	options.credentials = c->keys;
	return rc == 0 ? object_client_new(&c->s3, &options, err) : rc;
}

static void client_release(struct client *c)
{
	object_client_free(c->s3);
	http_engine_free(c->engine);
	credentials_provider_free(c->keys);
	*c = (struct client){NULL};
}

/* What one scenario does with allocations failing, and what must hold behind it. */
struct scenario {
	int (*work)(struct client *c, struct penstock_error *err);
	void (*check)(int rc);
};

/* The n-th allocation of the work fails; with `all`, that of making and ending the client too. */
static bool run_once(
	const struct scenario *s, size_t n, bool all, int *rc, struct penstock_error *err)
{
	struct client c = {NULL};
	bool fired;

	if (all)
		alloc_fail_arm(n);
	*rc = client_new(&c, err);
	if (!all)
		alloc_fail_arm(n);
	if (*rc == 0)
		*rc = s->work(&c, err);
	if (all)
		client_release(&c);
	fired = alloc_fail_disarm();
	client_release(&c);
	return fired;
}

static void every_allocation_fails_once(const struct scenario *s, bool all)
{
	size_t failures = 0;
	bool fired = true;

	for (size_t n = 1; fired; n++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		int rc;

		fired = run_once(s, n, all, &rc, &err);
		if (rc < 0) {
			if (err.code != PENSTOCK_E_MEMORY)
				print_error("allocation %zu: %s\n", n, err.message);
			assert_true(fired);
			assert_int_equal(err.code, PENSTOCK_E_MEMORY);
			assert_int_equal(rc, -(int)PENSTOCK_E_MEMORY);
			assert_non_null(err.message);
			failures++;
		} else {
			assert_int_equal(err.code, PENSTOCK_OK);
		}
		if (s->check)
			s->check(rc);
		penstock_error_release(&err);
		log_redact_clear();
	}
	assert_true(failures > 5);
}

static int put(struct client *c, struct penstock_error *err)
{
	struct object_info info = {0};
	int rc = object_put(c->s3, "bucket", "key", data, SIZE, NULL, &info, err);

	if (rc == 0)
		assert_string_equal(info.etag, data_etag);
	object_info_release(&info);
	return rc;
}

static void putting_from_memory(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = put}, true);
}

static int put_file(struct client *c, struct penstock_error *err)
{
	struct object_info info = {0};
	int rc = object_put_file(c->s3, "bucket", "key", source, SIZE, NULL, &info, err);

	if (rc == 0)
		assert_string_equal(info.etag, data_etag);
	object_info_release(&info);
	return rc;
}

static void putting_a_file(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = put_file}, false);
}

static int get(struct client *c, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(2 * SIZE);
	struct object_info info = {0};
	int rc = object_get(c->s3, "bucket", "key", NULL, &out, &info, err);

	if (rc == 0) {
		assert_int_equal(out.len, SIZE);
		assert_memory_equal(out.data, data, SIZE);
	}
	object_info_release(&info);
	return rc;
}

static void getting_into_memory(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = get}, false);
}

static void assert_file(const char *name, bool there)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * SIZE);
	_cleanup_free_ char *path = path_join(dir, name);

	assert_int_equal(access(path, F_OK) == 0, there);
	if (!there)
		return;
	assert_int_equal(fs_read(path, &text, NULL), 0);
	assert_int_equal(text.len, SIZE);
	assert_memory_equal(text.data, data, SIZE);
}

static int get_file(struct client *c, struct penstock_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	return object_get_file(c->s3, "bucket", "key", path, NULL, NULL, err);
}

static void assert_no_part(void)
{
	_cleanup_free_ char *part = NULL;

	assert_int_equal(0, part_file_first_name("file", &part, NULL));
	assert_file(part, false);
}

static void check_file(int rc)
{
	char path[64];

	assert_file("file", rc == 0);
	assert_no_part();
	snprintf(path, sizeof(path), "%s/file", dir);
	unlink(path);
}

static void getting_a_file(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = get_file, .check = check_file}, false);
}

static int count(void *cookie, const struct object_info *info)
{
	unsigned *n = cookie;

	assert_int_equal(info->size, SIZE);
	(*n)++;
	return 0;
}

/* Listing, copying, deleting, signing. */
static int manage(struct client *c, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	char *keys[] = {(char[]){"a"}, (char[]){"b"}};
	const struct strlist both = {keys, 2};
	struct object_info info = {0};
	unsigned n = 0;
	int rc = object_list(c->s3, "bucket", "p/", NULL, count, &n, NULL, err);

	if (rc == 0) {
		assert_int_equal(n, 2);
		rc = object_head(c->s3, "bucket", "key", &info, err);
	}
	if (rc == 0) {
		assert_int_equal(info.size, SIZE);
		object_info_release(&info);
		rc = object_copy(c->s3, "bucket", "key", "bucket", "to", NULL, &info, err);
	}
	if (rc == 0)
		assert_true(info.etag[0]);
	object_info_release(&info);
	if (rc == 0)
		rc = object_delete(c->s3, "bucket", "key", NULL, err);
	if (rc == 0)
		rc = object_delete_many(c->s3, "bucket", &both, NULL, NULL, err);
	if (rc == 0)
		rc = object_presign(c->s3, "GET", "bucket", "key", 60, &url, err);
	if (rc == 0)
		assert_non_null(strstr(buf_str(&url), "X-Amz-Signature="));
	return rc;
}

static void managing_objects(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = manage}, false);
}

static int fetch(struct client *c, struct penstock_error *err)
{
	_cleanup_(http_fetch_result_release) struct http_fetch_result result = {0};
	const struct http_fetch_options options = {
		.directory = dir, .chunk_size = 8 * KIB, .parallel = 2};
	char url[MINI_URL_SIZE + 16];

	snprintf(url, sizeof(url), "%s/file", server.url);
	int rc = http_fetch(c->engine, url, &options, &result, err);

	if (rc == 0)
		assert_int_equal(result.size, SIZE);
	return rc;
}

/* What was fetched of it stays for the next call; under its own name it is whole or not there. */
static void check_fetched(int rc)
{
	char path[64];

	assert_file("file", rc == 0);
	snprintf(path, sizeof(path), "%s/file", dir);
	unlink(path);
}

static void fetching_in_ranges(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = fetch, .check = check_fetched}, false);
}

static int download(struct client *c, struct penstock_error *err)
{
	struct tree_download_stats stats = {0};
	int rc = transfer_download_tree(c->s3, "bucket", "p", dir, NULL, &stats, err);

	if (rc == 0)
		assert_int_equal(stats.objects, 2);
	return rc;
}

static void check_tree(int rc)
{
	static const char *const names[] = {"a", "d/b"};
	char path[64];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		/* Each file is whole; without an error both are there. */
		if (rc == 0 || access(path, F_OK) == 0)
			assert_file(names[i], true);
	}
	fs_remove_tree(dir, NULL);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void downloading_a_tree(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = download, .check = check_tree}, false);
}

/* One item of each kind in the air, and the deletion of what was copied. */
static int bulk_all(struct client *c, struct penstock_error *err)
{
	_cleanup_(bulk_freep) struct bulk *bulk = NULL;
	struct object_info known = {.size = SIZE};
	struct bulk_totals totals = {0};
	struct penstock_error end = PENSTOCK_ERROR_INIT;
	char path[64], from[64];
	int rc = bulk_new(&bulk, c->engine, &(struct bulk_options){.no_sync = true}, err);

	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", source);
	snprintf(known.etag, sizeof(known.etag), "%s", data_etag);
	const struct bulk_item items[] = {
		{.kind = BULK_UPLOAD,
			.path = from,
			.to_client = c->s3,
			.to_bucket = "bucket",
			.to_key = "up"},
		{.kind = BULK_DOWNLOAD,
			.from_client = c->s3,
			.from_bucket = "bucket",
			.from_key = "key",
			.known = &known,
			.path = path},
		{.kind = BULK_COPY,
			.from_client = c->s3,
			.from_bucket = "bucket",
			.from_key = "key",
			.known = &known,
			.to_client = c->s3,
			.to_bucket = "bucket",
			.to_key = "to",
			.remove_source = true},
	};

	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(items); i++)
		rc = bulk_push(bulk, &items[i], err);
	if (bulk_finish(bulk, &totals, &end) < 0 && rc == 0)
		rc = error_move(err, &end);
	penstock_error_release(&end);
	if (rc == 0)
		assert_int_equal(totals.items, ARRAY_SIZE(items));
	return rc;
}

/* Another item may have failed than the download: the file is whole, or not there. */
static void check_bulk(int rc)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	assert_file("file", rc == 0 || access(path, F_OK) == 0);
	assert_no_part();
	unlink(path);
}

static void moving_many(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = bulk_all, .check = check_bulk}, false);
}

/* What a stream gives until it ends comes in order, and all of it where there is no error. */
static int read_stream(struct entry_source *stream, const char *directory, unsigned all,
	struct penstock_error *err)
{
	struct entry entry;
	char wanted[32];
	unsigned n = 0;
	int r;

	while ((r = entry_source_next(stream, &entry, err)) > 0) {
		snprintf(wanted, sizeof(wanted), directory ? "%s%u/f%u" : "%s%u%u",
			directory ? directory : "", n / 10, n % 10);
		assert_string_equal(wanted, entry.path);
		n++;
	}
	assert_true(r < 0 || n == all);
	entry_source_free(stream);
	return r;
}

static int list_ahead(struct client *c, struct penstock_error *err)
{
	struct entry_source *stream = NULL;
	int r = entry_source_objects(&stream, c->s3, "bucket", "m/", NULL, err);

	return r < 0 ? r : read_stream(stream, NULL, MANY, err);
}

static void listing_in_ranges(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = list_ahead}, false);
}

static int walk(struct client *c, struct penstock_error *err)
{
	struct entry_source *stream = NULL;
	int r = entry_source_files(&stream, dir, NULL, err);

	(void)c;
	return r < 0 ? r : read_stream(stream, "d", 20, err);
}

static void walking(void **state)
{
	char path[64];

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "%s/d%u", dir, i / 10);
		mkdir(path, 0700);
		snprintf(path, sizeof(path), "%s/d%u/f%u", dir, i / 10, i % 10);
		close(open(path, O_WRONLY | O_CREAT, 0600));
	}

	every_allocation_fails_once(&(struct scenario){.work = walk}, false);

	fs_remove_tree(dir, NULL);
	assert_int_equal(mkdir(dir, 0700), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(putting_from_memory, start_server, stop_server),
		cmocka_unit_test_setup_teardown(putting_a_file, start_server, stop_server),
		cmocka_unit_test_setup_teardown(getting_into_memory, start_server, stop_server),
		cmocka_unit_test_setup_teardown(getting_a_file, start_server, stop_server),
		cmocka_unit_test_setup_teardown(managing_objects, start_server, stop_server),
		cmocka_unit_test_setup_teardown(fetching_in_ranges, start_server, stop_server),
		cmocka_unit_test_setup_teardown(downloading_a_tree, start_server, stop_server),
		cmocka_unit_test_setup_teardown(moving_many, start_server, stop_server),
		cmocka_unit_test_setup_teardown(listing_in_ranges, start_server, stop_server),
		cmocka_unit_test_setup_teardown(walking, start_server, stop_server),
	};

	/*
	 * tests/unit/net/memory.c has libcurl's own. Here it would lose the query of a URL (7.88), and only
	 * the signature would tell a store that something else was meant.
	 */
	alloc_fail_skip_library("libcurl");
	alarm(115);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
