#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "mini_http.h"
#include "net/plain/plain.h"

#define N    200
#define SIZE 5 /* size of each body */

static const char body[] = "12345";

struct fixture {
	struct mini_http m;
	struct plain *plain;
	struct plain_get gets[N];
	char head[N][64];
	char data[N][SIZE + 1]; /* the last byte must not be written */
	atomic_uint odd; /* requests of this run for other targets than "/good" */
	atomic_uint at_once; /* requests for "/far" in progress */
	/* far[n] counts the requests for "/far" that were the n-th in progress when they began */
	atomic_uint far[N + 1];
	atomic_uint hangs; /* number of requests for "/hangs" that get no reply in each run */
	atomic_int cancel;
};

/* This resolver replaces that of the C library: it resolves numeric addresses, and the name "two",
 * whose second address is that of the server. */
static atomic_uint resolved;

void freeaddrinfo(struct addrinfo *list)
{
	free(list);
}

int getaddrinfo(const char *restrict host, const char *restrict port,
	const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
	const char *const addresses[] = {
		strcmp(host, "two") == 0 ? "127.0.0.2" : host, "127.0.0.1"};
	size_t n = strcmp(host, "two") == 0 ? 2 : 1;
	struct {
		struct addrinfo info;
		struct sockaddr_in address;
	} *list = calloc(2, sizeof(*list));

	atomic_fetch_add(&resolved, 1);
	for (size_t i = 0; i < n; i++) {
		list[i].address.sin_family = AF_INET;
		list[i].address.sin_port = htons((uint16_t)atoi(port));
		if (inet_pton(AF_INET, addresses[i], &list[i].address.sin_addr) != 1) {
			free(list);
			return EAI_AGAIN;
		}
		list[i].info = (struct addrinfo){.ai_family = AF_INET,
			.ai_socktype = hints->ai_socktype,
			.ai_addr = (struct sockaddr *)&list[i].address,
			.ai_addrlen = sizeof(list[i].address),
			.ai_next = i + 1 < n ? &list[i + 1].info : NULL};
	}
	*out = &list->info;
	return 0;
}

static bool send_slowly(int fd, const char *text, int pause_ms)
{
	for (; *text; text++) {
		if (!mini_write(fd, text, 1))
			return false;
		clock_sleep_ms(pause_ms);
	}
	return true;
}

/* Sends nothing until the client closes the connection. */
static bool be_silent(int fd)
{
	char text[256];

	while (recv(fd, text, sizeof(text), 0) > 0)
		;
	return false;
}

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (strcmp(r->target, "/good") == 0)
		return mini_reply(fd, "200 OK", "", body, SIZE);
	if (atomic_fetch_add(&f->odd, 1) >= atomic_load(&f->hangs) &&
		strcmp(r->target, "/hangs") == 0)
		return mini_reply(fd, "200 OK", "", body, SIZE);
	if (strcmp(r->target, "/split") == 0)
		return send_slowly(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", 1);
	if (strcmp(r->target, "/trickle") == 0)
		return send_slowly(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 0) &&
		       send_slowly(fd, "1234", 40) && be_silent(fd);
	if (strcmp(r->target, "/trickled-head") == 0)
		return send_slowly(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", 40);
	if (strcmp(r->target, "/closes") == 0) {
		mini_reply(fd, "200 OK", "", body, SIZE);
		return false;
	}
	if (strcmp(r->target, "/says-close") == 0)
		return mini_reply(fd, "200 OK", "Connection: close\r\n", body, SIZE);
	if (strcmp(r->target, "/more") == 0) /* in one packet with the head */
		return mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345x");
	if (strcmp(r->target, "/later") == 0) {
		mini_reply(fd, "200 OK", "", body, SIZE);
		clock_sleep_ms(5);
		return mini_write(fd, "xyz", 3);
	}
	if (strcmp(r->target, "/long") == 0)
		return mini_reply(fd, "200 OK", "", "123456", SIZE + 1);
	if (strcmp(r->target, "/cut") == 0) {
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234");
		return false;
	}
	if (strcmp(r->target, "/long-head") == 0) {
		mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: ");
		for (int i = 0; i < 64; i++)
			mini_printf(fd, "%0512d", 0);
		return mini_printf(fd, "\r\n\r\n12345");
	}
	if (strcmp(r->target, "/nothing") == 0)
		return false;
	if (strcmp(r->target, "/missing") == 0)
		return mini_reply(fd, "404 Not Found", "", body, SIZE);
	if (strcmp(r->target, "/busy") == 0)
		return mini_reply(fd, "503 Slow Down", "", "", 0);
	if (strcmp(r->target, "/far") == 0) {
		atomic_fetch_add(&f->far[atomic_fetch_add(&f->at_once, 1) + 1], 1);
		clock_sleep_ms(30);
		atomic_fetch_sub(&f->at_once, 1);
		return mini_reply(fd, "200 OK", "", body, SIZE);
	}
	if (strcmp(r->target, "/late") == 0) {
		clock_sleep_ms(300);
		return mini_reply(fd, "200 OK", "", body, SIZE);
	}
	return be_silent(fd);
}

static void connect_to(struct fixture *f, const char *host, int port)
{
	char authority[64];

	plain_free(f->plain);
	f->plain = NULL;
	snprintf(authority, sizeof(authority), "%s:%d", host, port);
	assert_int_equal(plain_new(&f->plain, authority, 0, NULL), 0);
}

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	mini_start(&f->m, answer, f);
	connect_to(f, "127.0.0.1", f->m.port);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	plain_free(f->plain);
	mini_stop(&f->m);
	free(f);
	return 0;
}

/* Runs `n` requests; every `every`-th one has the target `odd`. Returns the number of good
 * replies. */
static size_t run(struct fixture *f, size_t n, const char *odd, size_t every, int silence_ms)
{
	size_t good = 0;

	atomic_store(&f->odd, 0);
	for (size_t i = 0; i < n; i++) {
		int len = snprintf(f->head[i], sizeof(f->head[i]), "GET %s HTTP/1.1\r\n\r\n",
			every && i % every == 0 ? odd : "/good");

		memset(f->data[i], '#', sizeof(f->data[i]));
		f->gets[i] = (struct plain_get){.head = f->head[i],
			.head_len = (size_t)len,
			.body = f->data[i],
			.room = SIZE};
	}
	plain_run(f->plain, f->gets, n, silence_ms, &f->cancel);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(f->data[i][SIZE], '#');
		if (!f->gets[i].good)
			continue;
		good++;
		assert_int_equal(f->gets[i].len, SIZE);
		assert_memory_equal(f->data[i], body, SIZE);
	}
	return good;
}

static void replies_are_taken_however_they_are_cut(void **state)
{
	static const char *const odd[] = {"/split", "/closes", "/says-close"};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		assert_int_equal(run(f, N, odd[i], 10, 5000), N);
}

/* Bytes after the end of a body are never used as the reply to another request. */
static void replies_whose_length_lies_are_not_good(void **state)
{
	static const char *const odd[] = {"/more", "/long", "/cut", "/long-head", "/missing"};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		assert_int_equal(run(f, N, odd[i], 10, 5000), N - N / 10);
		for (size_t k = 0; k < N; k++)
			assert_int_equal(f->gets[k].good, k % 10 != 0);
	}
	for (int i = 0; i < 3; i++)
		assert_true(run(f, N, "/later", 10, 5000) >= N / 2);
}

/* After several failures in a row the run ends. If it continued, each request would cost a
 * connection and, if the name server is silent, many seconds. */
static void a_server_that_does_not_answer_ends_the_run(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_monotonic_ms();
	int closed, one = 1;
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	/* No reply, and then a status that only the HTTP engine can handle. */
	assert_int_equal(run(f, N, "/silent", 1, 200), 0);
	assert_in_range(clock_monotonic_ms() - start, 200, 2000);
	assert_true(atomic_load(&f->odd) <= 32);
	assert_int_equal(run(f, N, "/missing", 1, 5000), 0);
	assert_true(atomic_load(&f->odd) <= 32);

	/* A refused connection, and then one that the kernel accepts without a process that serves
	 * it. */
	closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(closed, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(closed, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(closed, (struct sockaddr *)&address, &len), 0);
	connect_to(f, "127.0.0.1", ntohs(address.sin_port));
	start = clock_monotonic_ms();
	assert_int_equal(run(f, N, "/good", 1, 5000), 0);
	assert_in_range(clock_monotonic_ms() - start, 0, 2000);
	listen(closed, 128);
	start = clock_monotonic_ms();
	assert_int_equal(run(f, N, "/good", 1, 200), 0);
	assert_in_range(clock_monotonic_ms() - start, 200, 2000);
	close(closed);

	connect_to(f, "unknown", 80);
	atomic_store(&resolved, 0);
	assert_int_equal(run(f, N, "/good", 1, 5000), 0);
	assert_int_equal(atomic_load(&resolved), 1);
}

static void connections_that_are_closed_without_a_reply_are_few(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run(f, N, "/nothing", 1, 5000), 0);
	assert_int_equal(run(f, N, "/nothing", 1, 5000), 0);
	assert_true(atomic_load(&f->m.connections) <= 100);
}

/* Simulates a store of many machines, one of which hangs; the timeout alone would take minutes. */
static void a_request_slower_than_others_is_sent_again(void **state)
{
	struct fixture *f = *state;
	unsigned connections;

	/* No usual duration is known yet. */
	atomic_store(&f->hangs, 1);
	assert_int_equal(run(f, 2, "/hangs", 2, 300), 1);
	assert_int_equal(atomic_load(&f->odd), 1);

	assert_int_equal(run(f, N, NULL, 0, 5000), N);
	connections = atomic_load(&f->m.connections);
	assert_int_equal(run(f, N, "/hangs", N, 600000), N);
	assert_int_equal(atomic_load(&f->odd), 2);
	assert_true(atomic_load(&f->m.connections) > connections);

	/* The request is sent again up to the limit; after that, the timeout ends it. */
	atomic_store(&f->hangs, 2);
	assert_int_equal(run(f, N, "/hangs", N, 600000), N);
	assert_int_equal(atomic_load(&f->odd), 3);
	atomic_store(&f->hangs, 100);
	assert_int_equal(run(f, N, "/hangs", N, 1000), N - 1);
	assert_in_range(atomic_load(&f->odd), 2, 4);
}

/* If the whole server hangs, only a few requests are sent again. */
static void few_requests_are_sent_again(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run(f, N, NULL, 0, 5000), N);
	atomic_store(&f->hangs, N);
	run(f, N, "/hangs", 1, 1500);
	/* The run ends after FAILURES of these requests. A server that replies at once gets 16
	 * connections; on a busy machine replies are slow, so the run uses more. */
	assert_in_range(atomic_load(&f->odd), 16, 2 * LIMIT_PLAIN_CONNECTIONS + 8);
}

static void a_distant_server_gets_more_connections(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(run(f, N, NULL, 0, 5000), N);
	assert_in_range(atomic_load(&f->m.connections), 1, 16);

	for (int i = 0; i < 10; i++)
		assert_int_equal(run(f, N, "/far", 1, 5000), N);
	assert_in_range(atomic_load(&f->m.connections), LIMIT_PLAIN_CONNECTIONS,
		2 * LIMIT_PLAIN_CONNECTIONS);
}

/* Returns the usual number of concurrent requests for "/far", and resets the statistics. On a busy
 * machine some replies are late, so their requests are sent again. */
static size_t usual_at_once(struct fixture *f)
{
	size_t usual = 0;
	unsigned most = 0, n;

	for (size_t i = 0; i <= N; i++) {
		n = atomic_exchange(&f->far[i], 0);
		if (n > most) {
			most = n;
			usual = i;
		}
	}
	return usual;
}

static void a_busy_server_gets_fewer_connections(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 4; i++)
		assert_int_equal(run(f, N, "/busy", N, 5000), N - 1);
	assert_int_equal(run(f, N, "/far", 1, 5000), N);
	assert_int_equal(usual_at_once(f), 1);
	assert_int_equal(run(f, N, "/far", 1, 5000), N);
	assert_in_range(usual_at_once(f), 2, 3);
}

/* A byte from time to time does not count as progress. */
static void a_trickle_ends(void **state)
{
	struct fixture *f = *state;

	/* The head takes longer than five times the allowed silence. */
	assert_int_equal(run(f, 20, "/trickled-head", 10, 250), 18);
	assert_int_equal(run(f, 20, "/trickle", 10, 250), 18);
}

static void a_cancelled_run_ends(void **state)
{
	struct fixture *f = *state;
	atomic_int other = 1;
	int64_t start = clock_monotonic_ms();

	atomic_store(&f->cancel, 1);
	run(f, N, "/silent", 1, 60000);
	atomic_store(&f->cancel, 0);
	plain_set_cancel(f->plain, &other);
	run(f, N, "/silent", 1, 60000);
	assert_in_range(clock_monotonic_ms() - start, 0, 2000);
	plain_set_cancel(f->plain, NULL);
	assert_int_equal(run(f, N, NULL, 0, 5000), N);
}

/* "localhost" often resolves to ::1, where the server does not listen, and to 127.0.0.1. */
static void another_address_of_the_server_is_tried(void **state)
{
	struct fixture *f = *state;

	connect_to(f, "two", f->m.port);
	assert_int_equal(run(f, N, NULL, 0, 5000), N);
	assert_int_equal(run(f, N, NULL, 0, 5000), N);
}

static int64_t thread_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The kernel also reports events of a socket that is closed in this process but open in a forked
 * child. */
static void connections_that_a_child_has_too_are_not_watched_for_ever(void **state)
{
	struct fixture *f = *state;
	int gate[2];
	int64_t before;
	char byte;
	pid_t child;

	assert_int_equal(run(f, N, "/closes", 1, 5000), N);
	assert_int_equal(run(f, N, NULL, 0, 5000), N);
	assert_int_equal(pipe(gate), 0);
	child = fork();
	if (child == 0) {
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) < 0);
	}
	close(gate[0]);

	/* The server closes all connections. */
	run(f, N, "/closes", 1, 5000);
	before = thread_ms();
	assert_int_equal(run(f, 1, "/late", 1, 5000), 1);
	assert_in_range(thread_ms() - before, 0, 100);
	close(gate[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(replies_are_taken_however_they_are_cut),
		RULE(replies_whose_length_lies_are_not_good),
		RULE(a_server_that_does_not_answer_ends_the_run),
		RULE(connections_that_are_closed_without_a_reply_are_few),
		RULE(a_request_slower_than_others_is_sent_again),
		RULE(few_requests_are_sent_again),
		RULE(a_distant_server_gets_more_connections),
		RULE(a_busy_server_gets_fewer_connections),
		RULE(a_trickle_ends),
		RULE(a_cancelled_run_ends),
		RULE(another_address_of_the_server_is_tried),
		RULE(connections_that_a_child_has_too_are_not_watched_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
