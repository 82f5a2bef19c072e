#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "mini_http.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "net/plain/plain.h"
#include "s3/message/read_many.h"
#include "s3/sum/checksum.h"
#include "transfer/client/internal.h"
#include "transfer/reads.h"

#define SIZE 3073
#define N    40
/* Number of requests that may be repeated because this machine was slow. */
#define MAY_HANG 1

static char content[SIZE];

/* A store; the name of an object selects the reply to its first request. */
struct fixture {
	struct mini_http m;
	struct http_engine *engine;
	struct object_client *s3;
	struct object_reads *reads;
	struct object_read batch[N];
	char data[N][SIZE];
	size_t turn; /* 0 or 1: reads with even or odd numbers get their bytes in pieces */
	struct read_piece pieces[N][3];
	atomic_uint first_requests;
	atomic_int cancel;
	/* If true, the store is penstock's own, which accepts many reads in one request. */
	bool ours;
	const char *fault; /* the fault in its replies to such requests */
	atomic_uint posts, gets;
};

static void checksum_line(enum checksum_kind kind, char out[192], bool wrong, bool ours)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	assert_int_equal(checksum_of(kind, content, SIZE, digest, NULL), 0);
	digest[0] ^= wrong;
	checksum_format(kind, digest, text);
	snprintf(out, 192, "ETag: \"e\"\r\n%s: %s\r\n%s", checksum_header(kind), text,
		ours ? "Server: penstock/9\r\n" : "");
}

static bool is_first(struct fixture *f)
{
	return atomic_fetch_add(&f->first_requests, 1) == 0;
}

static void add_result(
	struct fixture *f, const struct read_many_item *item, struct buf *table, struct buf *bytes)
{
	struct read_many_result result = {.status = 200, .length = SIZE};
	uint8_t entry[READ_MANY_ENTRY], digest[CHECKSUM_MAX_SIZE];
	bool odd = f->fault && bytes->len > 2 * SIZE && bytes->len < 4 * SIZE;

	if (item->whole) {
		result.kind = CHECKSUM_CRC64NVME;
		checksum_of(CHECKSUM_CRC64NVME, content, SIZE, digest, NULL);
		memcpy(result.digest, digest, READ_MANY_DIGEST);
		result.digest[0] ^= odd && strcmp(f->fault, "damaged") == 0;
	} else {
		result.length = item->length;
	}
	if (strstr(item->key, "missing"))
		result = (struct read_many_result){.status = 404};
	result.length -= odd && strcmp(f->fault, "short") == 0;
	if (odd && strcmp(f->fault, "busy") == 0)
		result = (struct read_many_result){.status = 503};
	buf_add(bytes, content + item->offset, (size_t)result.length);
	if (odd && strcmp(f->fault, "lies") == 0)
		result.length += 7;
	read_many_encode(&result, entry);
	buf_add(table, entry, sizeof(entry));
}

static bool answer_many(struct fixture *f, const struct mini_request *r, int fd)
{
	const char *fault = f->fault ? f->fault : "";
	_cleanup_(buf_release) struct buf text = BUF_INIT(MIB), key = BUF_INIT(KIB);
	_cleanup_(buf_release) struct buf table = BUF_INIT(MIB), bytes = BUF_INIT(MIB);
	struct read_many_item item;
	char *at;

	atomic_fetch_add(&f->posts, 1);
	if (strcmp(fault, "refused") == 0)
		return mini_reply(fd, "501 Not Implemented", "", "", 0);
	if (strcmp(fault, "all busy") == 0)
		return mini_reply(fd, "503 Slow Down", "", "", 0);
	buf_add(&text, r->body, r->body_len);
	at = text.data;
	while (read_many_next(&at, &key, &item) > 0)
		add_result(f, &item, &table, &bytes);
	if (strcmp(fault, "short table") == 0)
		table.len -= READ_MANY_ENTRY;
	else if (strcmp(fault, "more") == 0)
		buf_add(&bytes, "more", 4);
	else if (strcmp(fault, "odd table") == 0)
		table.data[READ_MANY_ENTRY] = 7;
	else if (strcmp(fault, "cut") == 0)
		return mini_printf(fd,
			       "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nx-penstock-read: 1\r\n\r\n",
			       table.len + bytes.len) &&
		       mini_write(fd, table.data, table.len) && mini_write(fd, bytes.data, SIZE) &&
		       false;
	buf_add(&table, bytes.data, bytes.len);
	return mini_reply(fd, "200 OK", strcmp(fault, "other") == 0 ? "" : "x-penstock-read: 1\r\n",
		table.data, table.len);
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char headers[256], sum[192];
	uint64_t first, last;
	unsigned n;

	if (strcmp(r->method, "POST") == 0)
		return answer_many(f, r, fd);
	n = atomic_fetch_add(&f->gets, 1);
	if (mini_range(r, SIZE, &first, &last)) {
		snprintf(headers, sizeof(headers),
			"ETag: \"e\"\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n", first,
			last, SIZE);
		return mini_reply(fd, "206 Partial Content", headers, content + first,
			(size_t)(last - first + 1));
	}
	checksum_line((enum checksum_kind)(CHECKSUM_CRC32 + n % (CHECKSUM_KIND_COUNT_ - 1)), sum,
		strstr(r->target, "damaged") != NULL, f->ours);
	if (strstr(r->target, "missing"))
		return mini_reply(
			fd, "404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>", 37);
	if (strstr(r->target, "other"))
		return mini_reply(fd, "200 OK", "ETag: \"other\"\r\n", content, SIZE);
	if (strstr(r->target, "short"))
		return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", content, SIZE - 1);
	if (strstr(r->target, "busy") && is_first(f))
		return mini_reply(fd, "503 Slow Down", "Retry-After: 0\r\n", "", 0);
	if (strstr(r->target, "away"))
		return mini_reply(fd, "503 Slow Down", "Retry-After: 0\r\n", "", 0);
	if (strstr(r->target, "cut") && is_first(f)) {
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\nabc", SIZE, sum);
		return false;
	}
	if (strstr(r->target, "chunked") && is_first(f))
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"e\"\r\n\r\n"
			"3\r\nabc\r\n0\r\n\r\n");
	if (strstr(r->target, "silent") && is_first(f)) {
		/* Wait without a reply until the client gives up. */
		while (recv(fd, headers, sizeof(headers), 0) > 0)
			;
		return false;
	}
	mini_reply(fd, "200 OK", sum, content, SIZE);
	return !strstr(r->target, "closes");
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char url[MINI_URL_SIZE];

	for (size_t i = 0; i < SIZE; i++)
		content[i] = (char)(i * 7 % 251);
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
	assert_int_equal(reads_new(&f->reads, f->s3, "bucket", NULL), 0);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < N; i++)
		penstock_error_release(&f->batch[i].error);
	reads_free(f->reads);
	object_client_free(f->s3);
	http_engine_free(f->engine);
	mini_stop(&f->m);
	free(f);
	return 0;
}

/* Runs N reads of "good", except that the third one reads `odd`. Returns the number of failures. */
static int run(struct fixture *f, const char *odd)
{
	memset(f->data, 0, sizeof(f->data));
	for (size_t i = 0; i < N; i++) {
		penstock_error_release(&f->batch[i].error);
		f->batch[i] = (struct object_read){.key = odd && i == 2 ? odd : "good",
			.length = SIZE,
			.whole = true,
			.etag = i % 2 ? "\"e\"" : NULL,
			.data = f->data[i]};
		if (i % 2 != f->turn)
			continue;
		/* The first two pieces overlap. */
		f->pieces[i][0] = (struct read_piece){0, 1000, f->data[i]};
		f->pieces[i][1] = (struct read_piece){900, 100, f->data[i] + 900};
		f->pieces[i][2] = (struct read_piece){1000, SIZE - 1000, f->data[i] + 1000};
		f->batch[i].data = NULL;
		f->batch[i].pieces = (struct read_pieces){.items = f->pieces[i], .n = 3};
	}
	f->batch[2].etag = "\"e\"";
	return reads_run(f->reads, f->batch, N, &f->cancel, NULL);
}

static void assert_others(const struct fixture *f)
{
	for (size_t i = 0; i < N; i++) {
		if (i != 2)
			assert_memory_equal(f->data[i], content, SIZE);
	}
}

static void all_objects_of_a_batch_are_read_on_kept_connections(void **state)
{
	struct fixture *f = *state;
	struct http_counters counters;

	for (size_t i = 0; i < 5; i++) {
		f->turn = i % 2;
		assert_int_equal(run(f, NULL), 0);
		assert_others(f);
	}
	assert_in_range(atomic_load(&f->m.connections), 1, LIMIT_PLAIN_CONNECTIONS);
	assert_in_range(atomic_load(&f->m.requests), 5 * N, 5 * N + MAY_HANG);
	http_engine_counters(f->engine, &counters);
	assert_int_equal(counters.requests, 0);
}

static void ranges_are_read_where_they_are(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < N; i++)
		f->batch[i] = (struct object_read){
			.key = "good", .offset = i * 70, .length = 60 + i, .data = f->data[i]};
	assert_int_equal(reads_run(f->reads, f->batch, N, NULL, NULL), 0);
	for (size_t i = 0; i < N; i++)
		assert_memory_equal(f->data[i], content + i * 70, 60 + i);
}

/* The pieces have gaps and an overlap, and one piece is inside another; the chunks may have any
 * size. */
static void bytes_go_to_all_pieces_that_have_them(void **state)
{
	char out[4][SIZE];
	const struct read_piece items[] = {
		{3, 50, out[0]}, {10, 7, out[1]}, {20, 100, out[2]}, {200, SIZE - 200, out[3]}};
	struct read_pieces pieces = {.items = items, .n = 4};

	(void)state;
	for (size_t chunk = 1; chunk <= SIZE; chunk += chunk / 3 + 1) {
		memset(out, 0, sizeof(out));
		/* The read is restarted after these bytes. */
		read_pieces_add(&pieces, 0, "abcdefghijklmn", 14);
		for (size_t at = 0, len; at < SIZE; at += len) {
			len = SIZE - at < chunk ? SIZE - at : chunk;
			read_pieces_add(&pieces, at, content + at, len);
		}
		for (size_t i = 0; i < 4; i++)
			assert_memory_equal(items[i].to, content + items[i].at, items[i].length);
	}
}

/* After an unusual reply, the HTTP engine repeats the request. */
static void an_unusual_reply_is_no_failure(void **state)
{
	static const char *const odd[] = {"busy", "cut", "chunked", "closes", "silent"};
	struct fixture *f = *state;

	for (size_t i = 0; i < 2 * sizeof(odd) / sizeof(odd[0]); i++) {
		f->turn = i % 2;
		atomic_store(&f->first_requests, 0);
		assert_int_equal(run(f, odd[i / 2]), 0);
		assert_others(f);
		assert_memory_equal(f->data[2], content, SIZE);
	}
}

static void one_that_fails_does_not_end_the_others(void **state)
{
	static const struct {
		const char *name;
		enum penstock_code code;
	} cases[] = {{"missing", PENSTOCK_E_NOT_FOUND}, {"other", PENSTOCK_E_CHANGED},
		{"short", PENSTOCK_E_CHANGED}, {"damaged", PENSTOCK_E_CORRUPT}};
	struct fixture *f = *state;

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		f->turn = i % 2;
		assert_int_equal(run(f, cases[i / 2].name), 1);
		assert_others(f);
		assert_int_equal(f->batch[2].error.code, cases[i / 2].code);
		assert_non_null(strstr(f->batch[2].error.message, cases[i / 2].name));
	}
}

/* A store that identifies itself as penstock's gets many reads in one request, from the second
 * batch on. */
static void our_store_gets_many_reads_in_one_request(void **state)
{
	struct fixture *f = *state;

	f->ours = true;
	assert_int_equal(run(f, NULL), 0);
	assert_int_equal(atomic_load(&f->posts), 0);
	atomic_store(&f->gets, 0);
	for (size_t i = 0; i < 4; i++) {
		f->turn = i % 2;
		assert_int_equal(run(f, NULL), 0);
		assert_others(f);
		assert_memory_equal(f->data[2], content, SIZE);
	}
	assert_in_range(atomic_load(&f->posts), 4, 4 + MAY_HANG);
	assert_int_equal(atomic_load(&f->gets), 0);
	for (size_t i = 0; i < N; i++)
		f->batch[i] = (struct object_read){
			.key = "good", .offset = i * 70, .length = 60 + i, .data = f->data[i]};
	assert_int_equal(reads_run(f->reads, f->batch, N, NULL, NULL), 0);
	for (size_t i = 0; i < N; i++)
		assert_memory_equal(f->data[i], content + i * 70, 60 + i);
	assert_int_equal(atomic_load(&f->gets), 0);
	assert_int_equal(run(f, "missing"), 1);
	assert_int_equal(f->batch[2].error.code, PENSTOCK_E_NOT_FOUND);
	assert_others(f);
}

/* After a bad reply to many reads in one request, the client uses GETs for the remaining reads. If
 * the store refuses the request, the client never sends many reads in one request again. */
static void a_bad_reply_to_many_reads_is_no_failure(void **state)
{
	static const char *const faults[] = {"damaged", "short", "busy", "all busy", "lies",
		"short table", "more", "odd table", "cut", "other", "refused"};
	struct fixture *f = *state;
	unsigned posts = 0;

	f->ours = true;
	assert_int_equal(run(f, NULL), 0);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		/* After this reply, the client sends no more requests with many reads. */
		bool last = strcmp(faults[i], "other") == 0 || strcmp(faults[i], "refused") == 0;

		f->fault = faults[i];
		f->turn = i % 2;
		if (last)
			atomic_store(&f->s3->no_read_many, false);
		for (size_t again = 0; again < 2; again++) {
			atomic_store(&f->gets, 0);
			assert_int_equal(run(f, NULL), 0);
			assert_others(f);
			assert_memory_equal(f->data[2], content, SIZE);
			assert_in_range(atomic_load(&f->gets), 1, N);
		}
		assert_int_equal(atomic_load(&f->s3->no_read_many), last);
		posts += last ? 1 : 2;
		assert_in_range(atomic_load(&f->posts), posts, posts + MAY_HANG);
	}
}

static void a_cancelled_batch_ends_at_once(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_monotonic_ms();

	atomic_store(&f->cancel, 1);
	assert_in_range(run(f, "silent"), 1, N);
	assert_int_equal(f->batch[2].error.code, PENSTOCK_E_CANCELLED);
	assert_in_range(clock_monotonic_ms() - start, 0, 1500);
}

/* The time limit is five minutes for a training, and shorter while a data set is opened. */
static void reads_wait_as_long_as_the_caller_says(void **state)
{
	struct fixture *f = *state;

	reads_patience(f->reads, 50);
	assert_in_range(run(f, "away"), 1, N);
	assert_int_equal(f->batch[2].error.code, PENSTOCK_E_UNAVAILABLE);
}

static void only_heads_with_a_plain_length_are_taken(void **state)
{
	static const struct {
		const char *head;
		int status;
		uint64_t len;
		bool keep;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 5, true},
		{"HTTP/1.1 206\r\ncontent-length:\t 77 \r\nConnection: close\r\n\r\n", 206, 77,
			false},
		{"HTTP/1.1 404 x\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", 404, 0,
			true},
		{"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 20x OK\r\nContent-Length: 5\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200 OK\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\n", -1, 0,
			false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", -1, 0, false},
		{"HTTP/1.1 200", -1, 0, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t len = 0;
		bool keep = false;

		assert_int_equal(
			plain_parse_head(cases[i].head, strlen(cases[i].head), &len, &keep),
			cases[i].status);
		if (cases[i].status > 0) {
			assert_int_equal(len, cases[i].len);
			assert_int_equal(keep, cases[i].keep);
		}
	}
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(all_objects_of_a_batch_are_read_on_kept_connections),
		RULE(ranges_are_read_where_they_are),
		RULE(bytes_go_to_all_pieces_that_have_them),
		RULE(an_unusual_reply_is_no_failure),
		RULE(one_that_fails_does_not_end_the_others),
		RULE(our_store_gets_many_reads_in_one_request),
		RULE(a_bad_reply_to_many_reads_is_no_failure),
		RULE(a_cancelled_batch_ends_at_once),
		RULE(reads_wait_as_long_as_the_caller_says),
		cmocka_unit_test(only_heads_with_a_plain_length_are_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
