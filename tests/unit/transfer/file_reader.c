#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "transfer/file_reader.h"
#include "transfer/objects.h"

#define SIZE	  (24 * MIB)
#define STEP	  (64 * KIB)
#define READS_MAX 4096

static char *content;

struct fixture {
	struct mini_http m;
	struct http_engine *engine;
	struct object_client *s3;
	struct file_pool *pool;
	struct file_reader *file;
	pthread_mutex_t lock;
	/* The ranges that were requested. */
	struct {
		uint64_t first, length;
	} reads[READS_MAX];
	size_t n;
	const char *_Atomic etag;
	atomic_uint held; /* replies to hold back until their connections end */
	uint64_t held_from; /* holds back only ranges from this offset on */
	atomic_uint refused; /* number of ranges that get a 503 */
	bool no_ranges, no_version, empty;
	atomic_uint stops; /* calls of `stop` */
	struct penstock_error err;
};

static void hold(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, 0) > 0)
		;
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t size = f->empty ? 0 : SIZE, first = 0, last;

	if (strcmp(r->method, "HEAD") == 0)
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nContent-Length: %" PRIu64 "\r\nETag: %s\r\n\r\n", size,
			f->etag);
	if (f->no_ranges)
		return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", "0123", 4);
	if (f->no_version)
		return mini_reply(
			fd, "206 Partial Content", "Content-Range: bytes 0-0/50\r\n", content, 1);
	if (f->empty)
		return mini_reply(
			fd, "416 Range Not Satisfiable", "Content-Range: bytes */0\r\n", "", 0);
	if (mini_range(r, SIZE, &first, &last)) {
		pthread_mutex_lock(&f->lock);
		assert_true(f->n < READS_MAX);
		f->reads[f->n].first = first;
		f->reads[f->n++].length = last - first + 1;
		pthread_mutex_unlock(&f->lock);
	}
	if (first >= f->held_from && atomic_load(&f->held)) {
		atomic_fetch_sub(&f->held, 1);
		hold(fd);
		return false;
	}
	if (atomic_load(&f->refused)) {
		atomic_fetch_sub(&f->refused, 1);
		return mini_reply(fd, "503 Slow Down", "Retry-After: 0\r\n", "", 0);
	}
	return mini_serve(r, fd, f->etag, content, SIZE);
}

static int open_client(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	(void)google;
	(void)err;
	*out = ((struct fixture *)cookie)->s3;
	return 0;
}

static bool stop(void *cookie)
{
	struct fixture *f = cookie;

	return atomic_fetch_add(&f->stops, 1) > 0;
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char url[MINI_URL_SIZE];

	f->etag = "\"e\"";
	pthread_mutex_init(&f->lock, NULL);
	mini_start(&f->m, answer, f);
	mini_url(&f->m, "", url);
	assert_int_equal(http_engine_new(&f->engine, NULL, NULL), 0);
	assert_int_equal(object_client_open(&f->s3, f->engine,
				 &(struct store_place){.endpoint_url = url,
					 .region = "us-east-1",
					 .access_key_id = "key",
					 .secret_access_key = "secret"},
				 NULL),
		0);
	assert_int_equal(file_pool_new(&f->pool, f->engine, NULL), 0);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	file_reader_free(f->file);
	file_pool_free(f->pool);
	penstock_error_release(&f->err);
	object_client_free(f->s3);
	http_engine_free(f->engine);
	mini_stop(&f->m);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return 0;
}

static int open_file(struct fixture *f, const char *url, struct file_options options)
{
	char whole[MINI_URL_SIZE];

	if (*url == '/')
		mini_url(&f->m, url, whole);
	else
		snprintf(whole, sizeof(whole), "%s", url);
	options.url = whole;
	options.open = open_client;
	options.open_cookie = f;
	penstock_error_release(&f->err);
	file_reader_free(f->file);
	f->file = NULL;
	return file_reader_open(&f->file, f->pool, &options, &f->err);
}

static void assert_bytes(struct fixture *f, uint64_t offset, size_t size)
{
	char *data = malloc(size);
	size_t got = 0;

	assert_int_equal(file_reader_read(f->file, offset, data, size, &got, &f->err), 0);
	assert_int_equal(got, offset + size < SIZE ? size : SIZE - offset);
	assert_memory_equal(data, content + offset, got);
	free(data);
}

/* Returns true if an earlier request had the same range, because the engine sends a slow request
 * again. */
static bool sent_again(const struct fixture *f, size_t i)
{
	for (size_t j = 0; j < i; j++) {
		if (f->reads[j].first == f->reads[i].first &&
			f->reads[j].length == f->reads[i].length)
			return true;
	}
	return false;
}

/* Closes the file, ends its requests, and returns the number of requested bytes. A range that was
 * sent again counts once. */
static uint64_t requested(struct fixture *f)
{
	uint64_t bytes = 0;

	file_reader_free(f->file);
	f->file = NULL;
	file_pool_free(f->pool);
	assert_int_equal(file_pool_new(&f->pool, f->engine, NULL), 0);
	/* The server may still be handling an abandoned request. */
	LOCK_SCOPE(&f->lock);
	for (size_t i = 0; i < f->n; i++)
		bytes += sent_again(f, i) ? 0 : f->reads[i].length;
	return bytes;
}

static const char *const urls[] = {"s3://bucket/key", "/key"};

/* Each byte is requested once, and the requests become larger. */
static void reads_in_a_row_are_read_ahead(void **state)
{
	struct fixture *f = *state;

	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		f->n = 0;
		assert_int_equal(open_file(f, urls[u], (struct file_options){.ahead = 8 * MIB}), 0);
		assert_int_equal(file_reader_size(f->file), SIZE);
		assert_string_equal(file_reader_version(f->file), "\"e\"");
		for (uint64_t at = 0; at < SIZE + STEP; at += STEP)
			assert_bytes(f, at < SIZE ? at : SIZE, STEP);
		assert_in_range(requested(f), SIZE, SIZE + 1);
		assert_in_range(f->n, 10, 60);
	}
}

/* If a program stops reading, no more bytes than the limit have been requested in advance. */
static void what_is_read_ahead_is_bounded(void **state)
{
	struct fixture *f = *state;
	uint64_t at = 0;

	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 2 * MIB}), 0);
	for (; at < 4 * MIB; at += STEP)
		assert_bytes(f, at, STEP);
	assert_in_range(requested(f), at, at + 2 * MIB);
}

static void other_reads_request_exactly_their_bytes(void **state)
{
	static const uint64_t places[] = {
		5000000, 17, SIZE - 100, 900000, 12345678, SIZE / 2, 1, 70000};
	struct fixture *f = *state;

	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 8 * MIB}), 0);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		assert_bytes(f, places[i], 1000 + i);
		assert_int_equal(f->n, i + 1);
		assert_int_equal(f->reads[i].first, places[i]);
		assert_int_equal(f->reads[i].length,
			places[i] + 1000 + i > SIZE ? SIZE - places[i] : 1000 + i);
	}
	/* Without read-ahead, consecutive reads also request exactly their bytes. */
	f->n = 0;
	assert_int_equal(open_file(f, urls[0], (struct file_options){0}), 0);
	for (uint64_t at = 0; at < 10 * STEP; at += STEP)
		assert_bytes(f, at, STEP);
	assert_int_equal(f->n, 10);
}

/* Reads forwards and backwards, in the bytes that were read ahead and beyond them. */
static void any_order_of_reads_gets_the_right_bytes(void **state)
{
	struct fixture *f = *state;
	uint64_t at = 0, random = 7;

	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 4 * MIB}), 0);
	for (size_t i = 0; i < 400; i++) {
		size_t size;

		random = random * 6364136223846793005u + 1442695040888963407u;
		size = (size_t)(random >> 40) % (i % 50 == 0 ? 6 * MIB : 200000) + 1;
		if (random >> 61 == 0)
			at = (random >> 20) % SIZE;
		else if (random >> 61 == 1)
			at = at > 300000 ? at - (random >> 30) % 300000 : 0;
		else if (random >> 61 == 2)
			at += (random >> 30) % MIB;
		if (at >= SIZE)
			at = 0;
		assert_bytes(f, at, size);
		at = at + size < SIZE ? at + size : 0;
	}
}

static void a_large_read_is_many_requests(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 8 * MIB}), 0);
	assert_bytes(f, 10, SIZE);
	assert_in_range(f->n, 8, 9);
	assert_in_range(requested(f), SIZE - 10, SIZE - 10);
}

static void ranges_are_read_together(void **state)
{
	struct fixture *f = *state;
	struct file_range ranges[50];
	char *data = malloc(60 * 10000 + 10 * MIB), *to = data;

	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		assert_int_equal(open_file(f, urls[u], (struct file_options){0}), 0);
		to = data;
		for (size_t i = 0; i < 50; i++) {
			ranges[i] = (struct file_range){
				.offset = (49 - i) * 100003, .length = 200 * i, .data = to};
			if (i == 20)
				ranges[i].length = 10 * MIB;
			to += ranges[i].length;
		}
		assert_int_equal(file_reader_ranges(f->file, ranges, 50, &f->err), 0);
		for (size_t i = 0; i < 50; i++)
			assert_memory_equal(
				ranges[i].data, content + ranges[i].offset, ranges[i].length);
		ranges[3].offset = SIZE - 599;
		assert_int_equal(
			file_reader_ranges(f->file, ranges, 50, &f->err), -PENSTOCK_E_INVALID);
		penstock_error_release(&f->err);
	}
	free(data);
}

static void another_version_is_an_error(void **state)
{
	struct fixture *f = *state;
	char data[100];
	size_t got;

	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		f->etag = "\"e\"";
		assert_int_equal(open_file(f, urls[u], (struct file_options){.ahead = MIB}), 0);
		assert_bytes(f, 0, STEP);
		assert_bytes(f, STEP, STEP);
		f->etag = "\"new\"";
		assert_int_equal(file_reader_read(f->file, SIZE - 100, data, 100, &got, &f->err),
			-PENSTOCK_E_CHANGED);
		assert_int_equal(f->err.code, PENSTOCK_E_CHANGED);
		assert_int_equal(open_file(f, urls[u], (struct file_options){.version = "\"e\""}),
			-PENSTOCK_E_CHANGED);
	}
	/* If the version is known, no request is sent before the first read. */
	f->n = 0;
	assert_int_equal(
		open_file(f, urls[0],
			(struct file_options){.version = "\"new\"", .known = true, .size = SIZE}),
		0);
	assert_int_equal(f->n, 0);
	assert_bytes(f, 7, 100);
}

/* If reading ahead failed, the request is repeated when its bytes are needed. */
static void refused_requests_are_repeated(void **state)
{
	struct fixture *f = *state;

	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		assert_int_equal(open_file(f, urls[u], (struct file_options){.ahead = MIB}), 0);
		for (uint64_t at = 0; at < 4 * MIB; at += STEP) {
			if (at % MIB == 0)
				atomic_store(&f->refused, 3);
			assert_bytes(f, at, STEP);
		}
	}
}

static void a_thread_that_waits_can_be_stopped(void **state)
{
	struct fixture *f = *state;
	int64_t began;
	char data[100];
	size_t got;

	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		assert_int_equal(
			open_file(f, urls[u], (struct file_options){.stop = stop, .cookie = f}), 0);
		atomic_store(&f->held, 100);
		atomic_store(&f->stops, 0);
		began = clock_monotonic_ms();
		assert_int_equal(file_reader_read(f->file, 0, data, 100, &got, &f->err),
			-PENSTOCK_E_CANCELLED);
		assert_in_range(clock_monotonic_ms() - began, 0, 5000);
		assert_int_equal(atomic_load(&f->stops), 2);
		atomic_store(&f->held, 0);
		penstock_error_release(&f->err);
		assert_bytes(f, 0, 100);
	}
}

/* Requests of read-ahead that are in flight do not delay the close. */
static void a_file_is_closed_at_once(void **state)
{
	struct fixture *f = *state;
	int64_t began;

	f->held_from = MIB;
	atomic_store(&f->held, 100);
	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 8 * MIB}), 0);
	for (uint64_t at = 0; at < MIB / 2; at += STEP)
		assert_bytes(f, at, STEP);
	began = clock_monotonic_ms();
	file_reader_free(f->file);
	f->file = NULL;
	assert_in_range(clock_monotonic_ms() - began, 0, 1000);
}

struct reader {
	struct fixture *f;
	uint64_t from;
	pthread_t thread;
};

static void *read_all(void *cookie)
{
	struct reader *r = cookie;

	for (uint64_t at = r->from; at < SIZE; at += 3 * STEP)
		assert_bytes(r->f, at, 3 * STEP);
	return NULL;
}

static void many_threads_read_one_file(void **state)
{
	struct fixture *f = *state;
	struct reader readers[6];

	assert_int_equal(open_file(f, urls[0], (struct file_options){.ahead = 4 * MIB}), 0);
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i] = (struct reader){.f = f, .from = i * MIB};
		pthread_create(&readers[i].thread, NULL, read_all, &readers[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(readers); i++)
		pthread_join(readers[i].thread, NULL);
}

static void a_server_must_send_ranges_of_a_version(void **state)
{
	struct fixture *f = *state;

	f->no_ranges = true;
	assert_int_equal(open_file(f, "/x", (struct file_options){0}), -PENSTOCK_E_UNSUPPORTED);
	f->no_ranges = false;
	f->no_version = true;
	assert_int_equal(open_file(f, "/x", (struct file_options){0}), -PENSTOCK_E_UNSUPPORTED);
	f->no_version = false;
	f->empty = true;
	for (size_t u = 0; u < ARRAY_SIZE(urls); u++) {
		char data;
		size_t got = 1;

		assert_int_equal(open_file(f, urls[u], (struct file_options){0}), 0);
		assert_int_equal(file_reader_read(f->file, 0, &data, 1, &got, &f->err), 0);
		assert_int_equal(got, 0);
	}
}

static void a_local_file_is_read_where_it_is(void **state)
{
	char path[] = "/tmp/penstock-file-XXXXXX", data[64];
	struct fixture *f = *state;
	int fd = mkstemp(path);
	size_t got;
	struct file_range range = {.offset = 2, .length = 3, .data = data};
	struct file_options options = {.url = path};

	assert_int_equal(write(fd, "0123456789", 10), 10);
	assert_int_equal(file_reader_open(&f->file, f->pool, &options, &f->err), 0);
	assert_int_equal(file_reader_size(f->file), 10);
	assert_int_equal(file_reader_read(f->file, 4, data, 64, &got, &f->err), 0);
	assert_int_equal(got, 6);
	assert_memory_equal(data, "456789", 6);
	assert_int_equal(file_reader_ranges(f->file, &range, 1, &f->err), 0);
	assert_memory_equal(data, "234", 3);
	assert_int_equal(ftruncate(fd, 5), 0);
	assert_int_equal(
		file_reader_read(f->file, 4, data, 64, &got, &f->err), -PENSTOCK_E_CHANGED);
	close(fd);
	unlink(path);
	assert_int_equal(open_file(f, "file-that-is-missing", (struct file_options){0}),
		-PENSTOCK_E_NOT_FOUND);
	assert_int_equal(
		open_file(f, "s3://bucket", (struct file_options){0}), -PENSTOCK_E_INVALID);
	assert_int_equal(open_file(f, "-", (struct file_options){0}), -PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(reads_in_a_row_are_read_ahead, begin, finish),
		cmocka_unit_test_setup_teardown(what_is_read_ahead_is_bounded, begin, finish),
		cmocka_unit_test_setup_teardown(
			other_reads_request_exactly_their_bytes, begin, finish),
		cmocka_unit_test_setup_teardown(
			any_order_of_reads_gets_the_right_bytes, begin, finish),
		cmocka_unit_test_setup_teardown(a_large_read_is_many_requests, begin, finish),
		cmocka_unit_test_setup_teardown(ranges_are_read_together, begin, finish),
		cmocka_unit_test_setup_teardown(another_version_is_an_error, begin, finish),
		cmocka_unit_test_setup_teardown(refused_requests_are_repeated, begin, finish),
		cmocka_unit_test_setup_teardown(a_thread_that_waits_can_be_stopped, begin, finish),
		cmocka_unit_test_setup_teardown(a_file_is_closed_at_once, begin, finish),
		cmocka_unit_test_setup_teardown(many_threads_read_one_file, begin, finish),
		cmocka_unit_test_setup_teardown(
			a_server_must_send_ranges_of_a_version, begin, finish),
		cmocka_unit_test_setup_teardown(a_local_file_is_read_where_it_is, begin, finish),
	};
	int failed;

	content = malloc(SIZE);
	for (size_t i = 0; i < SIZE; i++)
		content[i] = (char)(i * 2654435761u >> 16);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(content);
	return failed;
}
