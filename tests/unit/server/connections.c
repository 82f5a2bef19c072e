/* Connections without a valid signature: the choice of those that are closed, and the time of the
 * close. */
#include <linux/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "server/request/connections.h"

#define HOUR_MS (3600 * 1000)
#define LIMIT	8 /* connections; at most half may lack a signature, and 2 are kept free */

/* The simulated byte count of each descriptor grows by this much with each query. */
static atomic_uint_fast64_t step[64];
static uint64_t counted[64];
static atomic_uint questions[64];

int getsockopt(int fd, int level, int name, void *value, socklen_t *len);
__attribute__((visibility("default"))) int getsockopt(
	int fd, int level, int name, void *value, socklen_t *len)
{
	(void)level;
	(void)name;
	(void)len;
	counted[fd] += step[fd];
	((struct tcp_info *)value)->tcpi_bytes_received = counted[fd] / 2;
	((struct tcp_info *)value)->tcpi_bytes_acked = counted[fd] - counted[fd] / 2;
	atomic_fetch_add(&questions[fd], 1);
	return 0;
}

/* The accounts of the connections, and the number of connections of each account. */
enum { A, B };
static unsigned accounts[2];

struct peer {
	int fds[2]; /* descriptors of the server and of the client */
	struct connection *connection;
};

static struct peer open_peer(struct connections *list, uint64_t bytes)
{
	struct peer peer;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, peer.fds), 0);
	assert_true(peer.fds[0] < 64);
	step[peer.fds[0]] = bytes;
	counted[peer.fds[0]] = 0;
	atomic_store(&questions[peer.fds[0]], 0);
	peer.connection = connections_opened(list, peer.fds[0], NULL);
	assert_non_null(peer.connection);
	return peer;
}

static bool ended(const struct peer *peer, int timeout_ms)
{
	struct pollfd p = {.fd = peer->fds[1], .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static void close_peer(struct connections *list, struct peer *peer)
{
	connections_closed(list, peer->connection);
	close(peer->fds[0]);
	close(peer->fds[1]);
}

static struct connections *start(int64_t window_ms)
{
	struct connections *list;

	assert_int_equal(connections_start(&list, LIMIT, window_ms, NULL), 0);
	return list;
}

static void one_that_moves_too_little_is_ended(void **state)
{
	struct connections *list = start(10);
	struct peer moving = open_peer(list, LIMIT_SERVER_STRANGER_BYTES);
	struct peer trickling = open_peer(list, LIMIT_SERVER_STRANGER_BYTES - 1);

	(void)state;
	assert_true(ended(&trickling, 60000));
	assert_int_equal(atomic_load(&questions[trickling.fds[0]]), 1);
	while (atomic_load(&questions[moving.fds[0]]) < 5) /* one query for each window */
		clock_sleep_ms(1);
	assert_false(ended(&moving, 0));
	step[moving.fds[0]] = 0;
	assert_true(ended(&moving, 60000));
	close_peer(list, &moving);
	close_peer(list, &trickling);
	connections_stop(list);
}

static void one_with_a_signature_is_not_asked(void **state)
{
	struct connections *list = start(10);
	struct peer known = open_peer(list, 0), other;

	(void)state;
	connections_known(list, known.connection, &accounts[A]);
	other = open_peer(list, 0);
	assert_true(ended(&other, 60000));
	assert_false(ended(&known, 0));
	close_peer(list, &other);
	close_peer(list, &known);
	connections_stop(list);
}

static void one_whose_client_can_only_wait_is_not_ended(void **state)
{
	struct connections *list = start(10);
	struct peer waiting = open_peer(list, 0), other;

	(void)state;
	connections_pause(list, waiting.connection);
	other = open_peer(list, 0);
	assert_true(ended(&other, 60000));
	assert_false(ended(&waiting, 0));
	connections_renew(list, waiting.connection);
	assert_true(ended(&waiting, 60000));
	close_peer(list, &other);
	close_peer(list, &waiting);
	connections_stop(list);
}

static void they_are_half_of_all_at_most(void **state)
{
	struct connections *list = start(HOUR_MS);
	struct peer peers[LIMIT / 2 + 1];

	(void)state;
	for (size_t i = 0; i < LIMIT / 2; i++)
		peers[i] = open_peer(list, 0);
	connections_renew(list, peers[0].connection); /* a request has begun on this connection */
	peers[LIMIT / 2] = open_peer(list, 0);
	for (size_t i = 0; i <= LIMIT / 2; i++)
		assert_int_equal(ended(&peers[i], 0), i == 1);
	for (size_t i = 0; i <= LIMIT / 2; i++)
		close_peer(list, &peers[i]);
	connections_stop(list);
}

static void they_leave_room(void **state)
{
	struct connections *list = start(HOUR_MS);
	struct peer peers[LIMIT - 1];

	(void)state;
	for (size_t i = 0; i < LIMIT - 1; i++) {
		peers[i] = open_peer(list, 0);
		if (i < 4)
			connections_known(list, peers[i].connection, &accounts[i < 3 ? A : B]);
	}
	for (size_t i = 0; i < LIMIT - 1; i++)
		assert_int_equal(ended(&peers[i], 0), i == 4);
	for (size_t i = 0; i < LIMIT - 1; i++)
		close_peer(list, &peers[i]);
	connections_stop(list);
}

static void an_account_has_as_many_as_it_leaves_to_others(void **state)
{
	struct connections *list = start(HOUR_MS);
	struct peer peers[LIMIT];

	(void)state;
	for (size_t i = 0; i < LIMIT; i++) {
		peers[i] = open_peer(list, 0);
		connections_known(list, peers[i].connection, &accounts[i < LIMIT - 1 ? A : B]);
	}
	assert_int_equal(accounts[A], 3);
	assert_int_equal(accounts[B], 1);
	/* Other connections of the account were closed in favour of newer ones. */
	for (size_t i = 0; i < LIMIT; i++)
		assert_int_equal(ended(&peers[i], 0), i == 3 || i == 4);
	for (size_t i = 0; i < LIMIT; i++)
		close_peer(list, &peers[i]);
	assert_int_equal(accounts[A] + accounts[B], 0);
	connections_stop(list);
}

/* There is room for all connections, so the connection that exceeds its account's share stays, and
 * its bytes are not counted. */
static void one_beyond_the_share_of_its_account_is_not_asked(void **state)
{
	struct connections *list = start(10);
	struct peer peers[LIMIT / 2], other;

	(void)state;
	for (size_t i = 0; i < LIMIT / 2; i++) {
		peers[i] = open_peer(list, LIMIT_SERVER_STRANGER_BYTES);
		connections_known(list, peers[i].connection, &accounts[A]);
		step[peers[i].fds[0]] = 0;
	}
	assert_int_equal(accounts[A], LIMIT / 2 - 1);
	other = open_peer(list, 0);
	assert_true(ended(&other, 60000));
	for (size_t i = 0; i < LIMIT / 2; i++) {
		assert_false(ended(&peers[i], 0));
		close_peer(list, &peers[i]);
	}
	close_peer(list, &other);
	connections_stop(list);
}

static void room_is_made_by_one_whose_client_does_not_wait(void **state)
{
	struct connections *list = start(HOUR_MS);
	struct peer peers[LIMIT / 2 + 2];

	(void)state;
	for (size_t i = 0; i < LIMIT / 2; i++)
		peers[i] = open_peer(list, 0);
	connections_pause(list, peers[0].connection);
	peers[LIMIT / 2] = open_peer(list, 0);
	for (size_t i = 0; i <= LIMIT / 2; i++)
		assert_int_equal(ended(&peers[i], 0), i == 1);
	for (size_t i = 2; i < LIMIT / 2; i++)
		connections_pause(list, peers[i].connection);
	peers[LIMIT / 2 + 1] = open_peer(list, 0); /* newer clients may be about to sign */
	for (size_t i = 0; i < LIMIT / 2 + 2; i++) {
		assert_int_equal(ended(&peers[i], 0), i < 2);
		close_peer(list, &peers[i]);
	}
	connections_stop(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_moves_too_little_is_ended),
		cmocka_unit_test(one_with_a_signature_is_not_asked),
		cmocka_unit_test(one_whose_client_can_only_wait_is_not_ended),
		cmocka_unit_test(they_are_half_of_all_at_most),
		cmocka_unit_test(they_leave_room),
		cmocka_unit_test(an_account_has_as_many_as_it_leaves_to_others),
		cmocka_unit_test(one_beyond_the_share_of_its_account_is_not_asked),
		cmocka_unit_test(room_is_made_by_one_whose_client_does_not_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
