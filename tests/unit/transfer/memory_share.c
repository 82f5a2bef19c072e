/* The memory that all streams of a process share. */
#include "transfer/state/memory_share.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/limits.h"

#define PIECE (4 * MIB)

static void one_stream_gets_what_it_asks_for(void **state)
{
	unsigned n;

	(void)state;
	n = memory_share_take(6, PIECE);

	assert_int_equal(n, 6);
	assert_int_equal(memory_share_taken(), 6 * PIECE);
	memory_share_give(n, PIECE);
	assert_int_equal(memory_share_taken(), 0);
}

/* Each stream needs one piece to make progress; the limit applies to memory beyond that. */
static void many_streams_stay_within_the_bound_but_for_their_first_piece(void **state)
{
	unsigned n[20];

	(void)state;
	for (int i = 0; i < 20; i++) {
		n[i] = memory_share_take(6, PIECE);
		assert_in_range(n[i], 1, 6);
		assert_true(n[i] == 1 || memory_share_taken() <= LIMIT_STREAM_MEMORY);
	}

	assert_true(memory_share_taken() <= LIMIT_STREAM_MEMORY + 18 * PIECE);
	for (int i = 0; i < 20; i++)
		memory_share_give(n[i], PIECE);
	assert_int_equal(memory_share_taken(), 0);
}

static void *take_and_give(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20000; i++) {
		unsigned n = memory_share_take(3, 8 * MIB);

		memory_share_give(n, 8 * MIB);
	}
	return NULL;
}

static void threads_do_not_lose_any_of_it(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(0, pthread_create(&threads[i], NULL, take_and_give, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	assert_int_equal(memory_share_taken(), 0);
	assert_int_equal(memory_share_take(1, PIECE), 1);
	memory_share_give(1, PIECE);
}

struct waiter {
	size_t bytes;
	atomic_int cancel;
};

static void *wait_for_turn(void *arg)
{
	struct waiter *waiter = arg;

	waiter->bytes = memory_turn_take(30 * MIB, 30 * MIB, &waiter->cancel);
	return NULL;
}

static void who_finds_no_room_waits_for_a_turn(void **state)
{
	struct waiter waiter = {0}, impatient = {0};
	pthread_t threads[2];
	size_t first, second;

	(void)state;
	/* A single stream may take any size. */
	first = memory_turn_take(2 * LIMIT_STREAM_MEMORY, 2 * LIMIT_STREAM_MEMORY, NULL);
	assert_int_equal(2 * LIMIT_STREAM_MEMORY, first);
	memory_turn_give(first);
	first = memory_turn_take(12 * MIB, 24 * MIB, NULL);
	second = memory_turn_take(12 * MIB, 24 * MIB, NULL);
	assert_int_equal(24 * MIB, first);
	assert_int_equal(LIMIT_STREAM_MEMORY - 24 * MIB, second);

	assert_int_equal(0, pthread_create(&threads[0], NULL, wait_for_turn, &waiter));
	assert_int_equal(0, pthread_create(&threads[1], NULL, wait_for_turn, &impatient));
	atomic_store(&impatient.cancel, 1);
	pthread_join(threads[1], NULL);
	assert_int_equal(0, impatient.bytes);
	memory_turn_give(first);
	memory_turn_give(second);
	pthread_join(threads[0], NULL);

	assert_int_equal(30 * MIB, waiter.bytes);
	memory_turn_give(waiter.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_stream_gets_what_it_asks_for),
		cmocka_unit_test(many_streams_stay_within_the_bound_but_for_their_first_piece),
		cmocka_unit_test(threads_do_not_lose_any_of_it),
		cmocka_unit_test(who_finds_no_room_waits_for_a_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
