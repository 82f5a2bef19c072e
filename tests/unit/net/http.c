/* The HTTP engine with servers that close early, stall, send wrong data, or recover later. */
#include "http_fixture.h"

/* ---- servers ---- */

static bool busy_at_first(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (r->number <= f->failures)
		return mini_reply(fd, "503 Slow Down", "Retry-After: 0\r\n", "later", 5);
	return mini_serve(r, fd, f->etag, data, SIZE);
}

/* Announces all requested bytes, sends a third of them, and closes the connection. */
static bool cut_at_first(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0;
	uint64_t last = SIZE - 1;
	bool part;

	if (r->number > f->failures)
		return mini_serve(r, fd, f->etag, data, SIZE);
	part = mini_range(r, SIZE, &first, &last);
	if (part)
		mini_printf(fd,
			"HTTP/1.1 206 Partial\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64
			"/%d\r\n",
			first, last, SIZE);
	else
		mini_printf(fd, "HTTP/1.1 200 OK\r\n");
	mini_printf(
		fd, "ETag: %s\r\nContent-Length: %" PRIu64 "\r\n\r\n", f->etag, last - first + 1);
	mini_write(fd, data + first, (size_t)(last - first + 1) / 3);
	return false;
}

static bool cut_then_changed(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	f->failures = 1;
	if (r->number == 2)
		f->etag = "\"two\"";
	return cut_at_first(m, r, fd);
}

static bool silent(struct mini_http *m, const struct mini_request *r, int fd)
{
	char c;

	(void)m;
	(void)r;
	while (recv(fd, &c, 1, 0) > 0)
		;
	return false;
}

static bool silent_at_first(struct mini_http *m, const struct mini_request *r, int fd)
{
	return r->number == 1 ? silent(m, r, fd) : serve(m, r, fd);
}

/* Replies with another range than the requested bytes 50 to 59. */
static bool wrong_range(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char *const ranges[] = {
		"0-9/100", "55-59/100", "40-59/100", "50-59/55", "nonsense"};
	char header[64];

	(void)m;
	snprintf(header, sizeof(header), "Content-Range: bytes %s\r\n",
		ranges[(r->number - 1) / 4 % 5]);
	return mini_reply(
		fd, "206 Partial", header, "01234567890123456789", r->number <= 4 ? 10 : 20);
}

static bool short_range(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "206 Partial", "Content-Range: bytes 50-54/100\r\n", "01234", 5);
}

static bool whole_instead(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "200 OK", "", data, SIZE);
}

static bool missing(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "404 Not Found", "X-Why: gone\r\n", "no such thing", 13);
}

/* The first replies are chunked and have all requested bytes, but lack the empty last chunk: the
 * server closes the connection or, if `flag` is set, sends no more data. */
static bool without_last_chunk(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0;
	uint64_t last = SIZE - 1;

	if (r->number > f->failures)
		return mini_serve(r, fd, f->etag, data, SIZE);
	if (mini_range(r, SIZE, &first, &last))
		mini_printf(fd,
			"HTTP/1.1 206 Partial\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64
			"/%d\r\n",
			first, last, SIZE);
	else
		mini_printf(fd, "HTTP/1.1 200 OK\r\n");
	mini_printf(fd, "ETag: %s\r\nTransfer-Encoding: chunked\r\n\r\n%" PRIx64 "\r\n", f->etag,
		last - first + 1);
	mini_write(fd, data + first, (size_t)(last - first + 1));
	mini_write(fd, "\r\n", 2);
	return f->flag && silent(m, r, fd);
}

/* Replies to a request for bytes 10 to 19 with all of them, and with a surplus chunk in a separate
 * packet. A request for another range sets `flag`. */
static bool a_chunk_too_many(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0;
	uint64_t last = SIZE - 1;

	mini_range(r, SIZE, &first, &last);
	if (first != 10 || last != 19) {
		atomic_store(&f->flag, 1);
		return mini_serve(r, fd, f->etag, data, SIZE);
	}
	mini_printf(fd,
		"HTTP/1.1 206 Partial\r\nContent-Range: bytes 10-19/%d\r\nETag: %s\r\n"
		"Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
		SIZE, f->etag);
	clock_sleep_ms(30);
	mini_printf(fd, "3\r\nabc\r\n0\r\n\r\n");
	return false;
}

static bool redirect(struct mini_http *m, const struct mini_request *r, int fd)
{
	char location[MINI_URL_SIZE];
	char header[MINI_URL_SIZE + 32];

	if (strncmp(r->target, "/final", 6) == 0)
		return serve(m, r, fd);
	mini_url(m, strncmp(r->target, "/loop", 5) == 0 ? "/loop" : "/final", location);
	snprintf(header, sizeof(header), "Location: %s\r\n", location);
	return mini_reply(fd, "302 Found", header, "moved", 5);
}

/* ---- tests ---- */

/* A keep-alive connection makes small requests cheap. */
static void one_connection_serves_many_requests(void **state)
{
	struct fixture f;
	struct http_counters counters;

	(void)state;
	begin(&f, serve);

	for (int i = 0; i < 50; i++) {
		buf_clear(&f.body);
		assert_int_equal(0, get(&f, &(struct http_request){.stall_timeout_ms = 60000}));
		assert_body(&f, data, SIZE);
	}

	http_engine_counters(f.engine, &counters);
	assert_int_equal(1, f.server.connections);
	assert_int_equal(1, counters.connections);
	assert_int_equal(50, counters.requests);
	assert_int_equal(50 * (uint64_t)SIZE, counters.bytes_received);
	end(&f);
}

/* A busy store throttles its clients; they must repeat their requests instead of failing. */
static void a_busy_server_is_asked_again(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, busy_at_first);
	f.failures = 3;

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_body(&f, data, SIZE);
	assert_int_equal(4, f.reply.attempts);
	end(&f);
}

/* If a server stays busy, the error contains the reply and the number of attempts. */
static void a_server_that_stays_busy_is_given_up(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, busy_at_first);
	f.failures = 1000;

	assert_int_equal(-(int)PENSTOCK_E_UNAVAILABLE, get(&f, &(struct http_request){0}));

	assert_int_equal(503, f.err.http_status);
	assert_int_equal(4, f.server.requests);
	assert_string_equal("later", buf_str(&f.reply.error_body));
	assert_non_null(strstr(f.err.message, " 4 "));
	assert_null(strstr(f.err.message, "verysecret"));
	assert_int_equal(0, f.body.len);
	end(&f);
}

/* Bytes that arrived before the connection broke are not fetched again. */
static void a_cut_reply_continues_where_it_stopped(void **state)
{
	struct fixture f;
	struct http_counters counters;

	(void)state;
	begin(&f, cut_at_first);
	f.failures = 2;

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_body(&f, data, SIZE);
	assert_true(f.reply.resumed);
	http_engine_counters(f.engine, &counters);
	assert_int_equal(SIZE, counters.bytes_received);
	end(&f);
}

static void a_cut_range_continues_in_the_right_place_of_the_file(void **state)
{
	struct fixture f;
	char got[500000];
	int fd = memfd_create("sink", 0);

	(void)state;
	begin(&f, cut_at_first);
	f.failures = 2;

	assert_int_equal(
		0, get(&f, &(struct http_request){
				   .range = {.wanted = true, .offset = 1000, .length = sizeof(got)},
				   .sink = HTTP_SINK_TO_FD(fd, 77)}));

	assert_int_equal(sizeof(got), fs_pread_all(fd, got, sizeof(got), 77));
	assert_memory_equal(data + 1000, got, sizeof(got));
	assert_int_equal(77 + sizeof(got), lseek(fd, 0, SEEK_END));
	assert_int_equal(SIZE, f.reply.total_size);
	close(fd);
	end(&f);
}

/* All bytes of the range arrive, but the reply does not end. If the engine requested the missing
 * end, it would get bytes after the range, so it must accept the reply as complete. */
static void a_range_of_which_all_bytes_came_is_whole_though_its_reply_did_not_end(void **state)
{
	(void)state;
	for (int silent_at_end = 0; silent_at_end < 2; silent_at_end++) {
		struct fixture f;

		begin(&f, without_last_chunk);
		f.failures = 1;
		f.flag = silent_at_end;

		assert_int_equal(0, get(&f, &(struct http_request){.range = {.wanted = true,
									   .offset = 1000,
									   .length = 5000}}));
		assert_body(&f, data + 1000, 5000);
		assert_int_equal(1, f.server.requests);
		assert_int_equal(5000, f.reply.body_bytes);
		end(&f);
	}
}

static void the_end_of_a_resource_is_not_asked_for_once_it_is_there(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, without_last_chunk);
	f.failures = 4;

	assert_int_equal(0,
		get(&f, &(struct http_request){.range = {.wanted = true, .offset = SIZE - 100}}));

	assert_body(&f, data + SIZE - 100, 100);
	assert_int_equal(1, f.server.requests);
	end(&f);
}

/* The length is unknown, so the engine requests the rest. The reply 416 means that there is no
 * rest, but possibly of another version, so the resource is fetched again. */
static void a_resource_that_came_to_its_end_in_chunks_is_fetched_anew_when_it_was_cut(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, without_last_chunk);
	f.failures = 1;

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_body(&f, data, SIZE);
	assert_int_equal(3, f.server.requests);
	end(&f);
}

static void a_range_that_brings_too_much_is_refused_and_nothing_behind_it_asked_for(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, a_chunk_too_many);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		get(&f, &(struct http_request){
				.range = {.wanted = true, .offset = 10, .length = 10}}));

	assert_int_equal(0, f.flag);
	assert_int_equal(4, f.server.requests);
	end(&f);
}

/* A file must never consist of two halves of different versions. */
static void a_resource_that_changed_is_fetched_from_the_beginning(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_then_changed);

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_body(&f, data, SIZE);
	assert_int_equal(3, f.server.requests);
	assert_false(f.reply.resumed);
	end(&f);
}

static void a_range_of_a_resource_that_changed_is_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_then_changed);

	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		get(&f, &(struct http_request){.range = {.wanted = true, .offset = 5}}));
	end(&f);
}

static void a_silent_server_counts_as_stalled(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, silent_at_first);

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_int_equal(2, f.reply.attempts);
	end(&f);
}

static void a_deadline_ends_a_request_whatever_the_server_does(void **state)
{
	struct fixture f;
	int64_t began = clock_monotonic_ms();

	(void)state;
	begin(&f, silent);

	assert_int_equal(
		-(int)PENSTOCK_E_TIMEOUT, get(&f, &(struct http_request){.deadline_ms = began + 150,
							  .stall_timeout_ms = 60000}));

	assert_in_range(clock_monotonic_ms() - began, 140, 2000);
	end(&f);
}

static void *raise_flag(void *arg)
{
	clock_sleep_ms(100);
	atomic_store((atomic_int *)arg, 1);
	return NULL;
}

static void a_raised_cancel_flag_ends_a_request_soon(void **state)
{
	struct fixture f;
	pthread_t thread;
	int64_t began = clock_monotonic_ms();

	(void)state;
	begin(&f, silent);
	pthread_create(&thread, NULL, raise_flag, &f.flag);

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		get(&f, &(struct http_request){.cancel = &f.flag, .stall_timeout_ms = 60000}));

	assert_in_range(clock_monotonic_ms() - began, 90, 1000);
	pthread_join(thread, NULL);
	end(&f);
}

/* One flag cancels all requests of an engine, except clean-up requests, which continue until their
 * deadline. */
static void an_engines_cancel_flag_ends_every_request_but_those_that_tidy_up(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, silent);
	http_engine_free(f.engine);
	f.engine = NULL;
	assert_int_equal(0,
		http_engine_new(&f.engine,
			&(struct http_engine_options){.cancel = &f.flag, .stall_timeout_ms = 60000},
			&f.err));
	atomic_store(&f.flag, 1);

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, get(&f, &(struct http_request){0}));
	penstock_error_release(&f.err);
	assert_int_equal(-(int)PENSTOCK_E_TIMEOUT,
		get(&f, &(struct http_request){
				.tidies_up = true, .deadline_ms = clock_monotonic_ms() + 200}));
	end(&f);
}

static void *get_in_thread(void *arg)
{
	struct fixture *f = arg;

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED,
		get(f, &(struct http_request){.stall_timeout_ms = 60000}));
	return NULL;
}

static void freeing_the_engine_ends_requests_in_flight(void **state)
{
	struct fixture f;
	pthread_t thread;

	(void)state;
	begin(&f, silent);
	pthread_create(&thread, NULL, get_in_thread, &f);
	while (atomic_load(&f.server.connections) == 0)
		clock_sleep_ms(1);

	http_engine_free(f.engine);
	f.engine = NULL;

	pthread_join(thread, NULL);
	end(&f);
}

static void other_bytes_than_asked_for_are_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, wrong_range);

	for (int i = 0; i < 5; i++) {
		assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
			get(&f, &(struct http_request){
					.range = {.wanted = true, .offset = 50, .length = 10}}));
		assert_int_equal(0, f.body.len);
		assert_int_equal(4 * (i + 1), f.server.requests);
	}
	end(&f);
}

static void fewer_bytes_than_asked_for_are_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, short_range);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		get(&f, &(struct http_request){
				.range = {.wanted = true, .offset = 50, .length = 10}}));
	end(&f);
}

/* If `failures` is set, the body is chunked, so the Content-Length is invalid. */
static bool two_lengths(struct mini_http *m, const struct mini_request *r, int fd)
{
	const struct fixture *f = m->cookie;

	(void)r;
	if (f->failures)
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"
				"Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n0\r\n\r\n");
	else
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n"
				"Content-Length: 5\r\n\r\n01234");
	return false;
}

/* Readers could disagree on the end of the body: five bytes must not be accepted as eight. */
static void two_different_lengths_are_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, two_lengths);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL, get(&f, &(struct http_request){0}));

	assert_non_null(strstr(f.err.message, "Content-Length"));
	assert_int_equal(0, f.body.len);
	end(&f);
}

static bool no_content(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	mini_printf(fd, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n01234");
	return false;
}

/* A 204 reply has no body, and an empty body must not be accepted as five bytes. */
static void a_length_without_a_body_is_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, no_content);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL, get(&f, &(struct http_request){0}));

	assert_non_null(strstr(f.err.message, " 5 "));
	end(&f);
}

/* RFC 9112 says that Transfer-Encoding overrides Content-Length; with the length 3, a caller would
 * report the longer body as damaged. */
static void a_length_beside_a_transfer_encoding_does_not_count(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, two_lengths);
	f.failures = 1;

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	assert_body(&f, "01234", 5);
	assert_true(f.reply.content_length == HTTP_LENGTH_UNKNOWN);
	end(&f);
}

static void a_server_without_ranges_is_told_apart(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, whole_instead);

	assert_int_equal(-(int)PENSTOCK_E_UNSUPPORTED,
		get(&f, &(struct http_request){.range = {.wanted = true, .length = 10}}));
	assert_int_equal(1, f.server.requests);
	penstock_error_release(&f.err);
	assert_int_equal(
		0, get(&f, &(struct http_request){
				   .range = {.wanted = true, .length = 10, .full_is_fine = true}}));

	assert_body(&f, data, SIZE);
	end(&f);
}

static void a_missing_resource_is_not_asked_for_twice(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, missing);

	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND, get(&f, &(struct http_request){0}));

	assert_int_equal(404, f.err.http_status);
	assert_int_equal(1, f.server.requests);
	assert_string_equal("gone", http_reply_header(&f.reply, "x-why"));
	end(&f);
}

static void a_refused_connection_is_reported_with_its_address(void **state)
{
	struct fixture f;
	char address[64];

	(void)state;
	begin(&f, serve);
	mini_stop(&f.server);
	snprintf(address, sizeof(address), "http://127.0.0.1:%d/thing", f.server.port);

	assert_int_equal(-(int)PENSTOCK_E_UNAVAILABLE, get(&f, &(struct http_request){0}));

	assert_non_null(strstr(f.err.message, address));
	assert_null(strstr(f.err.message, "verysecret"));
	mini_start(&f.server, serve, &f);
	end(&f);
}

static void redirects_are_followed_only_where_asked_for(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, redirect);

	assert_true(get(&f, &(struct http_request){0}) < 0);
	assert_int_equal(302, f.err.http_status);
	penstock_error_release(&f.err);
	assert_int_equal(0, get(&f, &(struct http_request){.follow_redirects = true}));

	assert_body(&f, data, SIZE);
	assert_non_null(strstr(f.reply.effective_url, "/final"));
	end(&f);
}

static void endless_redirects_end(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, redirect);
	mini_url(&f.server, "/loop", f.url);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		get(&f, &(struct http_request){.follow_redirects = true}));
	end(&f);
}

static void *many_gets(void *arg)
{
	struct fixture *f = arg;

	for (int i = 0; i < 50; i++) {
		struct buf body = BUF_INIT(SIZE);
		struct http_request request = {.method = "GET",
			.url = f->url,
			.range = {.wanted = true, .offset = (uint64_t)i * 1000, .length = 3000},
			.stall_timeout_ms = 60000,
			.sink = HTTP_SINK_TO_BUF(&body)};

		assert_int_equal(0, http_perform(f->engine, &request, NULL, NULL));
		assert_int_equal(3000, body.len);
		assert_memory_equal(data + i * 1000, body.data, 3000);
		buf_release(&body);
	}
	return NULL;
}

static void many_threads_share_the_engine_and_its_connections(void **state)
{
	struct fixture f;
	pthread_t threads[16];

	(void)state;
	begin(&f, serve);

	for (int i = 0; i < 16; i++)
		pthread_create(&threads[i], NULL, many_gets, &f);
	for (int i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);

	assert_int_equal(800, f.server.requests);
	assert_in_range(f.server.connections, 1, 16);
	end(&f);
}

static char logged[65536];

static void collect(void *cookie, enum log_level level, const char *line)
{
	(void)cookie;
	(void)level;
	strncat(logged, line, sizeof(logged) - strlen(logged) - 1);
}

static void the_log_never_shows_a_query(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, busy_at_first);
	f.failures = 1;
	log_set_level(LOG_DEBUG);
	log_set_sink(collect, NULL);

	assert_int_equal(0, get(&f, &(struct http_request){0}));

	log_set_sink(NULL, NULL);
	log_set_level(LOG_INFO);
	assert_non_null(strstr(logged, "/thing: 503"));
	assert_null(strstr(logged, "verysecret"));
	end(&f);
}

static void urls_are_shown_without_user_and_query(void **state)
{
	static const char *const cases[][2] = {
		{"http://h/p?q=1#f", "http://h/p"},
		{"https://user:pw@h:80/p@x?q", "https://h:80/p@x"},
		{"http://a:b@c@h", "http://h"},
		{"/plain?x", "/plain"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf shown = BUF_INIT(1000);

		http_url_display(cases[i][0], &shown);
		assert_string_equal(cases[i][1], buf_str(&shown));
		buf_release(&shown);
	}
}

static void a_ca_file_that_is_not_there_is_named_at_once(void **state)
{
	struct http_engine *engine = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
		http_engine_new(&engine,
			&(struct http_engine_options){.ca_file = "/nowhere/ca.pem"}, &err));

	assert_non_null(strstr(err.message, "/nowhere/ca.pem"));
	penstock_error_release(&err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_connection_serves_many_requests),
		cmocka_unit_test(a_busy_server_is_asked_again),
		cmocka_unit_test(a_server_that_stays_busy_is_given_up),
		cmocka_unit_test(a_cut_reply_continues_where_it_stopped),
		cmocka_unit_test(a_cut_range_continues_in_the_right_place_of_the_file),
		cmocka_unit_test(
			a_range_of_which_all_bytes_came_is_whole_though_its_reply_did_not_end),
		cmocka_unit_test(the_end_of_a_resource_is_not_asked_for_once_it_is_there),
		cmocka_unit_test(
			a_resource_that_came_to_its_end_in_chunks_is_fetched_anew_when_it_was_cut),
		cmocka_unit_test(
			a_range_that_brings_too_much_is_refused_and_nothing_behind_it_asked_for),
		cmocka_unit_test(a_resource_that_changed_is_fetched_from_the_beginning),
		cmocka_unit_test(a_range_of_a_resource_that_changed_is_refused),
		cmocka_unit_test(an_engines_cancel_flag_ends_every_request_but_those_that_tidy_up),
		cmocka_unit_test(a_silent_server_counts_as_stalled),
		cmocka_unit_test(a_deadline_ends_a_request_whatever_the_server_does),
		cmocka_unit_test(a_raised_cancel_flag_ends_a_request_soon),
		cmocka_unit_test(freeing_the_engine_ends_requests_in_flight),
		cmocka_unit_test(other_bytes_than_asked_for_are_refused),
		cmocka_unit_test(fewer_bytes_than_asked_for_are_refused),
		cmocka_unit_test(two_different_lengths_are_refused),
		cmocka_unit_test(a_length_without_a_body_is_refused),
		cmocka_unit_test(a_length_beside_a_transfer_encoding_does_not_count),
		cmocka_unit_test(a_server_without_ranges_is_told_apart),
		cmocka_unit_test(a_missing_resource_is_not_asked_for_twice),
		cmocka_unit_test(a_refused_connection_is_reported_with_its_address),
		cmocka_unit_test(redirects_are_followed_only_where_asked_for),
		cmocka_unit_test(endless_redirects_end),
		cmocka_unit_test(many_threads_share_the_engine_and_its_connections),
		cmocka_unit_test(the_log_never_shows_a_query),
		cmocka_unit_test(urls_are_shown_without_user_and_query),
		cmocka_unit_test(a_ca_file_that_is_not_there_is_named_at_once),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
