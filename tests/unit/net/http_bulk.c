/* Bulk requests: the order in which they start, their reduction when a server is busy, and the
 * repetition of slow requests. */
#include "http_fixture.h"

#include "net/pace/pace.h"

#define MANY 40

/* Many concurrent requests, and their results. */
struct crowd {
	struct http_request requests[MANY];
	struct http_reply replies[MANY];
	atomic_uint ended, failed;
};

static void one_ended(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct crowd *crowd = cookie;

	(void)request;
	(void)reply;
	atomic_fetch_add(&crowd->failed, err != NULL);
	atomic_fetch_add(&crowd->ended, 1);
}

static void crowd_start(struct fixture *f, struct crowd *crowd, unsigned n)
{
	memset(crowd, 0, sizeof(*crowd));
	for (unsigned i = 0; i < n; i++) {
		crowd->replies[i] = (struct http_reply)HTTP_REPLY_INIT;
		crowd->requests[i] = (struct http_request){.method = "GET",
			.url = f->url,
			.bulk = true,
			.max_attempts = 1000,
			.done = one_ended,
			.cookie = crowd};
		assert_int_equal(0,
			http_submit(f->engine, &crowd->requests[i], &crowd->replies[i], &f->err));
	}
}

static void wait_until(atomic_uint *count, unsigned n)
{
	int64_t deadline = clock_monotonic_ms() + 60000;

	while (atomic_load(count) < n) {
		assert_true(clock_monotonic_ms() < deadline);
		clock_sleep_ms(2);
	}
}

static void crowd_release(struct crowd *crowd, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		http_reply_release(&crowd->replies[i]);
}

static unsigned bulk_limit(struct http_engine *engine)
{
	struct http_counters counters;

	http_engine_counters(engine, &counters);
	return counters.bulk_limit;
}

/* ---- order ---- */

static atomic_uint held;

/* Delays bulk requests until the flag is set, and replies to other requests at once. */
static bool hold(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (!strstr(r->target, "/quick")) {
		atomic_fetch_add(&held, 1);
		while (!atomic_load(&f->flag) && !atomic_load(&m->stopping))
			clock_sleep_ms(2);
	}
	return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", "0123456789", 10);
}

static void bulk_requests_take_turns_and_others_overtake_them(void **state)
{
	struct fixture f;
	struct crowd crowd;
	char quick[MINI_URL_SIZE];
	struct http_request request = {.method = "GET", .url = quick};

	(void)state;
	begin(&f, hold);
	http_engine_free(f.engine);
	assert_int_equal(
		0, http_engine_new(&f.engine,
			   &(struct http_engine_options){.stall_timeout_ms = 60000}, &f.err));
	mini_url(&f.server, "/quick", quick);
	atomic_store(&held, 0);

	crowd_start(&f, &crowd, MANY);
	wait_until(&held, PACE_START);
	assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));
	assert_int_equal(atomic_load(&held), PACE_START);
	atomic_store(&f.flag, 1);
	wait_until(&crowd.ended, MANY);

	assert_int_equal(atomic_load(&crowd.failed), 0);
	crowd_release(&crowd, MANY);
	end(&f);
}

/* ---- a busy server ---- */

/* Refuses all requests until the engine has only a few in flight. */
static bool busy(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	(void)r;
	if (!atomic_load(&f->flag) && bulk_limit(f->engine) <= 2)
		atomic_store(&f->flag, 1);
	if (!atomic_load(&f->flag))
		return mini_reply(fd, "503 Slow Down", "", "busy", 4);
	return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", data, SIZE);
}

static void a_refusing_server_is_asked_for_less_and_then_for_more(void **state)
{
	struct fixture f;
	struct crowd crowd;
	int64_t deadline = clock_monotonic_ms() + 60000;

	(void)state;
	begin(&f, busy);

	crowd_start(&f, &crowd, MANY);
	wait_until(&crowd.ended, MANY);
	assert_int_equal(atomic_load(&crowd.failed), 0);
	assert_true(atomic_load(&f.flag));
	crowd_release(&crowd, MANY);
	while (bulk_limit(f.engine) < 4) {
		assert_true(clock_monotonic_ms() < deadline);
		crowd_start(&f, &crowd, MANY);
		wait_until(&crowd.ended, MANY);
		crowd_release(&crowd, MANY);
	}

	end(&f);
}

/* ---- slow requests ---- */

static atomic_uint silent;

/* Never replies to the first request for "/slow"; if the request has a body, reads the body
 * first. */
static bool sometimes_silent(struct mini_http *m, const struct mini_request *r, int fd)
{
	if (strstr(r->target, "/slow") && atomic_fetch_add(&silent, 1) == 0) {
		while (!atomic_load(&m->stopping))
			clock_sleep_ms(5);
		return false;
	}
	return mini_reply(fd, "200 OK", "ETag: \"e\"\r\n", data, 4096);
}

/* Makes an engine with a stall timeout of a minute that has measured the usual duration of
 * requests. */
static void begin_experienced(struct fixture *f, const char *method)
{
	begin(f, sometimes_silent);
	http_engine_free(f->engine);
	assert_int_equal(
		0, http_engine_new(&f->engine,
			   &(struct http_engine_options){.stall_timeout_ms = 60000}, &f->err));
	atomic_store(&silent, 0);
	for (int i = 0; i < 10; i++) {
		struct http_request request = {.method = method, .url = f->url, .bulk = true};

		if (strcmp(method, "PUT") == 0)
			request.source = (struct http_source){
				.kind = HTTP_SOURCE_MEMORY, .data = data, .length = SIZE};
		assert_int_equal(0, http_perform(f->engine, &request, NULL, &f->err));
	}
	mini_url(&f->server, "/slow", f->url);
}

static void a_silent_get_is_sent_again_on_a_new_connection(void **state)
{
	struct fixture f;
	struct http_request request = {.bulk = true, .resend_ms = LIMIT_HTTP_RESEND_MS};
	unsigned connections;

	(void)state;
	begin_experienced(&f, "GET");
	connections = atomic_load(&f.server.connections);

	assert_int_equal(0, get(&f, &request));

	assert_body(&f, data, 4096);
	assert_in_range(f.reply.resent, 1, 2);
	assert_true(atomic_load(&f.server.connections) > connections);
	end(&f);
}

static void a_silent_put_is_sent_again_whole(void **state)
{
	struct fixture f;
	struct http_request request = {.method = "PUT",
		.bulk = true,
		.resend_ms = LIMIT_HTTP_RESEND_MS,
		.source = {.kind = HTTP_SOURCE_MEMORY, .data = data, .length = SIZE}};

	(void)state;
	begin_experienced(&f, "PUT");
	request.url = f.url;

	assert_int_equal(0, http_perform(f.engine, &request, &f.reply, &f.err));

	assert_in_range(f.reply.resent, 1, 2);
	assert_true(atomic_load(&silent) >= 2);
	end(&f);
}

/* A request that must not reach the server twice is only repeated after the stall timeout. */
static void other_requests_are_not_sent_again(void **state)
{
	struct fixture f;
	struct http_request request = {.bulk = true, .stall_timeout_ms = 2000};

	(void)state;
	begin_experienced(&f, "GET");

	assert_int_equal(0, get(&f, &request));

	assert_true(f.reply.attempts >= 2);
	assert_int_equal(f.reply.resent, 0);
	end(&f);
}

/* Sends half of the body and then stops; the client must request only the rest. */
static bool stops_in_the_middle(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0, last = SIZE - 1;

	if (strstr(r->target, "/slow") && !mini_range(r, SIZE, &first, &last)) {
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: %s\r\n\r\n", SIZE,
			f->etag);
		mini_write(fd, data, SIZE / 2);
		while (!atomic_load(&m->stopping))
			clock_sleep_ms(5);
		return false;
	}
	return mini_serve(r, fd, f->etag, data, SIZE);
}

static void only_the_rest_of_a_body_that_stopped_is_asked_for_again(void **state)
{
	struct fixture f;
	struct http_request request = {.bulk = true, .resend_ms = LIMIT_HTTP_RESEND_MS};

	(void)state;
	begin_experienced(&f, "GET");
	f.server.answer = stops_in_the_middle;

	assert_int_equal(0, get(&f, &request));

	assert_body(&f, data, SIZE);
	assert_in_range(f.reply.resent, 1, 2);
	assert_true(f.reply.resumed);
	end(&f);
}

static int fill(void **state)
{
	(void)state;
	fill_data();
	return 0;
}

/* A request whose completion submits another request, as a bulk worker does. */
struct relay {
	struct fixture *fixture;
	struct http_request refused, next;
	atomic_uint ended;
};

static bool slow_answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	clock_sleep_ms(100);
	return mini_reply(fd, "200 OK", "", "x", 1);
}

static int refuse_to_start(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	(void)cookie;
	(void)request;
	(void)attempt;
	return error_set(err, PENSTOCK_E_PERMISSION, "not this one");
}

static void relay_ended(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct relay *relay = cookie;

	(void)reply;
	(void)err;
	if (request == &relay->refused)
		http_submit(relay->fixture->engine, &relay->next, NULL, NULL);
	atomic_fetch_add(&relay->ended, 1);
}

/* The engine is about to sleep because no request is running. No other thread wakes it for requests
 * that its own thread submits. */
static void what_the_end_of_a_request_that_could_not_start_submits_starts_at_once(void **state)
{
	struct fixture f;
	struct relay relay = {.fixture = &f};
	struct http_request first = {.method = "GET", .done = relay_ended, .cookie = &relay};
	int64_t began;

	(void)state;
	begin(&f, slow_answer);
	http_engine_free(f.engine);
	f.engine = NULL;
	assert_int_equal(
		0, http_engine_new(&f.engine,
			   &(struct http_engine_options){.max_host_connections = 1}, &f.err));
	first.url = f.url;
	relay.next = relay.refused = first;
	relay.refused.prepare = refuse_to_start;
	began = clock_monotonic_ms();

	assert_int_equal(0, http_submit(f.engine, &first, NULL, &f.err));
	assert_int_equal(0, http_submit(f.engine, &relay.refused, NULL, &f.err));
	wait_until(&relay.ended, 3);

	assert_in_range(clock_monotonic_ms() - began, 0, 20000);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bulk_requests_take_turns_and_others_overtake_them),
		cmocka_unit_test(a_refusing_server_is_asked_for_less_and_then_for_more),
		cmocka_unit_test(a_silent_get_is_sent_again_on_a_new_connection),
		cmocka_unit_test(a_silent_put_is_sent_again_whole),
		cmocka_unit_test(other_requests_are_not_sent_again),
		cmocka_unit_test(only_the_rest_of_a_body_that_stopped_is_asked_for_again),
		cmocka_unit_test(
			what_the_end_of_a_request_that_could_not_start_submits_starts_at_once),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
