/* Request and response bodies: sources that rewind, sinks that pause, and hooks of each attempt. */
#include "http_fixture.h"

/* ---- servers ---- */

/* Replies with the method, and the length and checksum of the body, for comparison. */
static bool echo(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	char text[128];
	unsigned long sum = 0;
	int n;

	if (r->number <= f->failures)
		return mini_reply(fd, "500 Oops", "", "", 0);
	for (size_t i = 0; i < r->body_len; i++)
		sum += (unsigned char)r->body[i] * (i % 251 + 1);
	n = snprintf(text, sizeof(text), "%s %zu %lu", r->method, r->body_len, sum);
	return mini_reply(fd, "200 OK", "", text, (size_t)n);
}

static void expect_echo(const struct fixture *f, const char *method, const char *body, size_t len)
{
	char text[128];
	unsigned long sum = 0;

	for (size_t i = 0; i < len; i++)
		sum += (unsigned char)body[i] * (i % 251 + 1);
	snprintf(text, sizeof(text), "%s %zu %lu", method, len, sum);
	assert_string_equal(text, buf_str(&f->body));
}

/* ---- tests ---- */

static void bodies_from_memory_are_sent_again_after_a_failure(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, echo);
	f.failures = 1;

	for (size_t len = 0; len <= SIZE; len = len ? len * 32 : 1) {
		struct http_request request = {.method = len % 3 ? "PUT" : "POST",
			.url = f.url,
			.source = {.kind = HTTP_SOURCE_MEMORY, .data = data, .length = len},
			.sink = HTTP_SINK_TO_BUF(&f.body)};

		buf_clear(&f.body);
		assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));
		expect_echo(&f, request.method, data, len);
	}
	end(&f);
}

static void a_part_of_a_file_is_sent_again_after_a_failure(void **state)
{
	struct fixture f;
	int fd = memfd_create("source", 0);
	struct http_request request = {.method = "PUT",
		.source = {.kind = HTTP_SOURCE_FD, .fd = fd, .offset = 123, .length = SIZE - 200}};

	(void)state;
	begin(&f, echo);
	f.failures = 2;
	assert_int_equal(0, fs_write_all(fd, data, SIZE));
	request.url = f.url;
	request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&f.body);

	assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));

	expect_echo(&f, "PUT", data + 123, SIZE - 200);
	close(fd);
	end(&f);
}

/* A caller must be able to distinguish a slow upload from one that restarts again and again. */
static void what_failed_attempts_sent_is_no_progress(void **state)
{
	struct fixture f;
	int fd = memfd_create("source", 0);
	struct http_request request = {
		.method = "PUT", .source = {.kind = HTTP_SOURCE_FD, .fd = fd, .length = SIZE}};
	int64_t until = clock_monotonic_ms() + 60000;
	struct http_counters counters;

	(void)state;
	begin(&f, echo);
	f.failures = 2;
	assert_int_equal(0, fs_write_all(fd, data, SIZE));
	request.url = f.url;
	assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));

	do { /* the engine's thread updates the counters only from time to time */
		http_wake(f.engine);
		clock_sleep_ms(5);
		http_engine_counters(f.engine, &counters);
	} while (counters.bytes_progress != SIZE && clock_monotonic_ms() < until);

	assert_int_equal(SIZE, counters.bytes_progress);
	assert_in_range(counters.bytes_sent, SIZE + 1, 3 * SIZE);
	close(fd);
	end(&f);
}

static void a_file_that_got_shorter_is_noticed_while_it_is_sent(void **state)
{
	struct fixture f;
	int fd = memfd_create("source", 0);
	struct http_request request = {
		.method = "PUT", .source = {.kind = HTTP_SOURCE_FD, .fd = fd, .length = SIZE}};

	(void)state;
	begin(&f, echo);
	assert_int_equal(0, fs_write_all(fd, data, SIZE - 1));
	request.url = f.url;

	assert_int_equal(
		-(int)PENSTOCK_E_CHANGED, http_perform(f.engine, &request, &f.reply, &f.err));

	assert_int_equal(0, f.server.requests);
	close(fd);
	end(&f);
}

struct stream {
	size_t at;
	size_t end;
	unsigned rewinds;
};

static ssize_t stream_read(void *cookie, void *out, size_t size, struct penstock_error *err)
{
	struct stream *s = cookie;

	(void)err;
	if (size > s->end - s->at)
		size = s->end - s->at;
	if (size > 7000)
		size = 7000;
	memcpy(out, data + s->at, size);
	s->at += size;
	return (ssize_t)size;
}

static int stream_rewind(void *cookie)
{
	struct stream *s = cookie;

	s->at = 0;
	s->rewinds++;
	return 0;
}

static void a_stream_of_unknown_length_is_sent_and_rewound(void **state)
{
	struct fixture f;
	struct stream stream = {.end = 300000};
	struct http_request request = {.method = "PUT",
		.source = {.kind = HTTP_SOURCE_CALLBACK,
			.length = HTTP_LENGTH_UNKNOWN,
			.read = stream_read,
			.rewind = stream_rewind,
			.cookie = &stream}};

	(void)state;
	begin(&f, echo);
	f.failures = 1;
	request.url = f.url;
	request.sink = (struct http_sink)HTTP_SINK_TO_BUF(&f.body);

	assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));

	expect_echo(&f, "PUT", data, 300000);
	assert_int_equal(1, stream.rewinds);
	end(&f);
}

static void a_stream_that_cannot_be_rewound_is_sent_once(void **state)
{
	struct fixture f;
	struct stream stream = {.end = 300000};
	struct http_request request = {.method = "PUT",
		.source = {.kind = HTTP_SOURCE_CALLBACK,
			.length = 300000,
			.read = stream_read,
			.cookie = &stream}};

	(void)state;
	begin(&f, echo);
	f.failures = 1;
	request.url = f.url;

	assert_int_equal(
		-(int)PENSTOCK_E_UNAVAILABLE, http_perform(f.engine, &request, &f.reply, &f.err));

	assert_int_equal(1, f.server.requests);
	end(&f);
}

struct slow_sink {
	struct fixture *f;
	atomic_uint pauses;
	size_t got;
	bool refuse;
	atomic_bool room;
};

static enum http_take slow_write(
	void *cookie, const void *bytes, size_t len, struct penstock_error *err)
{
	struct slow_sink *s = cookie;

	if (s->refuse) {
		error_set(err, PENSTOCK_E_NO_SPACE, "no more room");
		return HTTP_REFUSE;
	}
	if (!atomic_exchange(&s->room, false)) {
		atomic_fetch_add(&s->pauses, 1);
		return HTTP_PAUSE;
	}
	assert_memory_equal(data + s->got, bytes, len);
	s->got += len;
	return HTTP_TAKEN;
}

static void *make_room(void *arg)
{
	struct slow_sink *s = arg;
	unsigned seen = 0;

	while (!atomic_load(&s->f->flag)) {
		if (atomic_load(&s->pauses) == seen) {
			clock_sleep_ms(1);
			continue;
		}
		seen = atomic_load(&s->pauses);
		atomic_store(&s->room, true);
		http_resume(s->f->engine);
	}
	return NULL;
}

/* A consumer that is slower than the network loses no data, and memory does not grow. */
static void a_sink_may_pause_the_stream(void **state)
{
	struct fixture f;
	struct slow_sink sink = {.f = &f};
	pthread_t thread;

	(void)state;
	begin(&f, serve);
	pthread_create(&thread, NULL, make_room, &sink);

	assert_int_equal(0, get(&f, &(struct http_request){.sink = {.kind = HTTP_SINK_CALLBACK,
								   .write = slow_write,
								   .cookie = &sink}}));

	atomic_store(&f.flag, 1);
	pthread_join(thread, NULL);
	assert_int_equal(SIZE, sink.got);
	assert_true(sink.pauses > 1);
	end(&f);
}

static void a_sink_that_refuses_ends_the_request_at_once(void **state)
{
	struct fixture f;
	struct slow_sink sink = {.f = &f, .refuse = true};

	(void)state;
	begin(&f, serve);

	assert_int_equal(-(int)PENSTOCK_E_NO_SPACE,
		get(&f, &(struct http_request){.sink = {.kind = HTTP_SINK_CALLBACK,
						       .write = slow_write,
						       .cookie = &sink}}));

	assert_int_equal(1, f.server.requests);
	end(&f);
}

static void a_reply_larger_than_its_buffer_is_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	buf_release(&f.body);
	buf_init(&f.body, SIZE / 2);

	assert_int_equal(-(int)PENSTOCK_E_LIMIT, get(&f, &(struct http_request){0}));
	end(&f);
}

static int sign(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	char value[32];

	(void)cookie;
	(void)err;
	snprintf(value, sizeof(value), "number %u", attempt);
	return http_request_header(request, "X-Attempt", value);
}

static bool busy_unless_second(struct mini_http *m, const struct mini_request *r, int fd)
{
	char value[32] = "";

	(void)m;
	mini_header(r, "X-Attempt", value, sizeof(value));
	if (strcmp(value, "number 2") != 0)
		return mini_reply(fd, "500 No", "", "", 0);
	return mini_reply(fd, "200 OK", "", "yes", 3);
}

/* Signatures contain the date, so each attempt must be signed again. */
static void every_attempt_is_prepared_anew(void **state)
{
	struct fixture f;
	struct http_request request = {.prepare = sign};

	(void)state;
	begin(&f, busy_unless_second);

	assert_int_equal(0, get(&f, &request));

	assert_body(&f, "yes", 3);
	strlist_release(&request.headers);
	end(&f);
}

static enum http_verdict classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct fixture *f = cookie;

	assert_int_equal(200, reply->status);
	if (strcmp(buf_str(&f->body), "yes") == 0)
		return HTTP_VERDICT_DEFAULT;
	error_set(err, PENSTOCK_E_UNAVAILABLE, "not yet");
	return HTTP_VERDICT_RETRY;
}

static bool yes_at_third(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	return mini_reply(fd, "200 OK", "ETag: \"x\"\r\n", r->number < 3 ? "nope" : "yes",
		r->number < 3 ? 4 : 3);
}

/* S3 replies with 200 and an error document if an operation fails late. */
static void a_verdict_may_turn_success_into_another_attempt(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, yes_at_third);

	assert_int_equal(0, get(&f, &(struct http_request){.classify = classify, .cookie = &f}));

	assert_body(&f, "yes", 3);
	assert_int_equal(3, f.reply.attempts);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bodies_from_memory_are_sent_again_after_a_failure),
		cmocka_unit_test(a_part_of_a_file_is_sent_again_after_a_failure),
		cmocka_unit_test(what_failed_attempts_sent_is_no_progress),
		cmocka_unit_test(a_file_that_got_shorter_is_noticed_while_it_is_sent),
		cmocka_unit_test(a_stream_of_unknown_length_is_sent_and_rewound),
		cmocka_unit_test(a_stream_that_cannot_be_rewound_is_sent_once),
		cmocka_unit_test(a_sink_may_pause_the_stream),
		cmocka_unit_test(a_sink_that_refuses_ends_the_request_at_once),
		cmocka_unit_test(a_reply_larger_than_its_buffer_is_refused),
		cmocka_unit_test(every_attempt_is_prepared_anew),
		cmocka_unit_test(a_verdict_may_turn_success_into_another_attempt),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
