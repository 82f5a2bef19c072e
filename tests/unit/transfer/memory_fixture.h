/* Makes every allocation of a piece of work fail once; has a client and a store for the work. */
#ifndef TEST_MEMORY_FIXTURE_H
#define TEST_MEMORY_FIXTURE_H

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
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/sum/checksum.h"
#include "transfer/objects.h"

#define SIZE (20 * KIB)

static char data[SIZE];
static char data_etag[40];

/* ---- the store, in a separate process ---- */

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

#define MANY 60 /* number of keys from "m/00" on, in pages of 20 */

/* Lists the keys after start-after, or from the number in the token. */
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

/* Replies 200 with the ETag and the checksum of the request's body. */
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
	struct object_client *s3;
};

static int client_new(struct client *c, struct penstock_error *err)
{
	int rc = http_engine_new(
		&c->engine, &(struct http_engine_options){.retry_base_ms = 1}, err);

	return rc < 0 ? rc
		      : object_client_open(&c->s3, c->engine,
				&(struct store_place){.endpoint_url = server.url,
					.region = "us-east-1",
					.access_key_id = "AKID",
					.secret_access_key = "very/secret"},
				err);
}

static void client_release(struct client *c)
{
	object_client_free(c->s3);
	http_engine_free(c->engine);
	*c = (struct client){NULL};
}

/* Work whose allocations fail, and the check after it. */
struct scenario {
	int (*work)(struct client *c, struct penstock_error *err);
	void (*check)(int rc);
};

/* Makes the n-th allocation of the work fail. If `all`, the allocations of making and freeing the
 * client count, too. */
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

#endif
