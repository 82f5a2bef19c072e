/* Two sockets with one address: the front socket gets all connections except those of the probe. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "deploy/internal.h"

#include <penstock/error.h>

/* Connects, and returns the index of the socket that got the connection. If `keep`, the connection
 * stays in the queue of that socket. */
static int reached(const int sockets[2], uint16_t port, const char *from, bool keep)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in source = {.sin_family = AF_INET};
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd p[2] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}};
	int found;

	if (from)
		assert_int_equal(inet_pton(AF_INET, from, &source.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&source, sizeof(source)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(poll(p, 2, 10000), 1);
	found = p[1].revents != 0;
	if (!keep)
		close(accept4(sockets[found], NULL, NULL, SOCK_CLOEXEC));
	return found;
}

static void connections_go_to_the_front(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int sockets[2];
	uint16_t port = 0;

	(void)state;
	assert_int_equal(traffic_find("127.0.0.1", &port, &err), 0);
	assert_int_not_equal(port, 0);
	assert_int_equal(traffic_open(sockets, "127.0.0.1", port, &err), 0);
	for (int front = 0; front < 2; front++) {
		assert_int_equal(traffic_steer(sockets, 0, (unsigned)front, &err), 0);
		for (int i = 0; i < 20; i++)
			assert_int_equal(reached(sockets, port, NULL, false), front);
		for (int i = 0; i < 5; i++)
			assert_int_equal(reached(sockets, port, TRAFFIC_PROBE, false), !front);
	}
	assert_int_equal(traffic_waiting(sockets[1]), 0);
	reached(sockets, port, NULL, true);
	assert_int_equal(traffic_waiting(sockets[1]), 1);
	assert_int_equal(traffic_waiting(sockets[0]), 0);
	close(sockets[0]);
	close(sockets[1]);
}

static int connected_to(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/* Each direction is relayed until its end. */
static void waiting_connections_are_relayed_to_the_front(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int sockets[2], clients[3], servers[3];
	uint16_t port = 0;
	char text[8];

	(void)state;
	assert_int_equal(traffic_find("127.0.0.1", &port, &err), 0);
	assert_int_equal(traffic_open(sockets, "127.0.0.1", port, &err), 0);
	assert_int_equal(traffic_steer(sockets, 0, 1, &err), 0);
	for (size_t i = 0; i < 3; i++) {
		clients[i] = connected_to(port);
		assert_int_equal(send(clients[i], "ask", 3, 0), 3);
		assert_int_equal(shutdown(clients[i], SHUT_WR), 0);
	}
	assert_int_equal(traffic_waiting(sockets[1]), 3);
	assert_int_equal(traffic_steer(sockets, 0, 0, &err), 0);
	relay_waiting(sockets[1]);
	for (size_t i = 0; i < 3; i++) {
		servers[i] = accept4(sockets[0], NULL, NULL, SOCK_CLOEXEC);
		assert_int_equal(recv(servers[i], text, sizeof(text), MSG_WAITALL), 3);
		assert_memory_equal(text, "ask", 3);
	}
	assert_int_equal(traffic_waiting(sockets[1]), 0);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(send(servers[i], "reply", 5, 0), 5);
		close(servers[i]);
	}
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(recv(clients[i], text, sizeof(text), MSG_WAITALL), 5);
		assert_memory_equal(text, "reply", 5);
		close(clients[i]);
	}
	close(sockets[0]);
	close(sockets[1]);
}

/* shutdown(2) removes a socket from the SO_REUSEPORT group for all processes that share it. */
static void a_socket_that_was_shut_down_listens_again(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned first = 0;
	int sockets[2];
	uint16_t port = 0;

	(void)state;
	assert_int_equal(traffic_find("127.0.0.1", &port, &err), 0);
	assert_int_equal(traffic_open(sockets, "127.0.0.1", port, &err), 0);
	for (unsigned i = 0; i < 8; i++) {
		unsigned front = i & 1, lost = i >> 1 & 1;

		assert_int_equal(traffic_steer(sockets, first, front, &err), 0);
		assert_int_equal(traffic_mend(sockets, &first, front, &err), 0);
		assert_int_equal(shutdown(sockets[lost], SHUT_RDWR), 0);
		assert_int_equal(traffic_mend(sockets, &first, front, &err), 1);
		assert_int_equal(first, !lost);
		for (int j = 0; j < 5; j++) {
			assert_int_equal(reached(sockets, port, NULL, false), front);
			assert_int_equal(reached(sockets, port, TRAFFIC_PROBE, false), !front);
		}
	}
	shutdown(sockets[0], SHUT_RDWR);
	shutdown(sockets[1], SHUT_RDWR);
	assert_int_equal(traffic_mend(sockets, &first, 1, &err), 1);
	assert_int_equal(reached(sockets, port, NULL, false), 1);
	close(sockets[0]);
	close(sockets[1]);
}

static void an_address_in_use_is_refused(void **state)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int sockets[2];
	uint16_t port = 0;

	(void)state;
	assert_int_equal(traffic_find("0.0.0.0", &port, &err), 0);
	assert_int_equal(traffic_open(sockets, "0.0.0.0", port, &err), 0);
	assert_int_equal(traffic_find("127.0.0.1", &port, &err), -(int)PENSTOCK_E_EXISTS);
	assert_int_equal(traffic_find("0.0.0.0", &port, &err), -(int)PENSTOCK_E_EXISTS);
	assert_int_equal(traffic_find("no address", &port, &err), -(int)PENSTOCK_E_INVALID);
	penstock_error_release(&err);
	close(sockets[0]);
	close(sockets[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_go_to_the_front),
		cmocka_unit_test(waiting_connections_are_relayed_to_the_front),
		cmocka_unit_test(a_socket_that_was_shut_down_listens_again),
		cmocka_unit_test(an_address_in_use_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
