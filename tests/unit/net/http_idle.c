/* Idle connections. */
#include "http_fixture.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Counts the engine's connections to the test's server, whose ends are in this process, too. */
static unsigned count_connections(const struct fixture *f)
{
	const char *port = strrchr(f->url, ':') + 1;
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		struct sockaddr_in peer = {0};
		socklen_t len = sizeof(peer);

		n += getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
		     peer.sin_family == AF_INET && ntohs(peer.sin_port) == atoi(port);
	}
	return n;
}

/* Conditional uploads need new connections. Without a limit on idle ones, one upload a second led
 * to 170 open connections. */
static void new_connections_do_not_pile_up(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);

	for (int i = 0; i < 60; i++) {
		buf_clear(&f.body);
		assert_int_equal(0, get(&f, &(struct http_request){.fresh_connection = true,
						    .range = {.wanted = true, .length = 10}}));
	}

	assert_in_range(count_connections(&f), 1, 8);
	end(&f);
}

static void all_connections_are_closed_after_a_while_without_requests(void **state)
{
	struct fixture f;
	int64_t until;

	(void)state;
	begin(&f, serve);
	http_engine_free(f.engine);
	assert_int_equal(0,
		http_engine_new(&f.engine, &(struct http_engine_options){.idle_ms = 50}, &f.err));

	for (int round = 0; round < 3; round++) {
		buf_clear(&f.body);
		assert_int_equal(0, get(&f, &(struct http_request){0}));
		assert_body(&f, data, SIZE);
		until = clock_monotonic_ms() + 10000;
		while (count_connections(&f) && clock_monotonic_ms() < until)
			clock_sleep_ms(5);
		assert_int_equal(0, count_connections(&f));
	}
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_connections_do_not_pile_up),
		cmocka_unit_test(all_connections_are_closed_after_a_while_without_requests),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
