/* The thread that writes the bytes of a download: pieces are written in order, and each wait ends.
 * Most tests set `linger_ms` to NEVER, so that a lost wake-up makes the test hang. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/limits.h"
#include "transfer/get/writer.h"

#define PIECES 5000
#define NEVER  3600000 /* in ms; longer than a test may run */

/* Checks the written pieces, which are numbered by their offsets. */
struct sink {
	struct get_line line;
	sem_t *hold; /* waited for before each write, unless NULL */
	sem_t wrote;
	uint64_t next;
	uint64_t fail_at;
	bool in_order;
};

static int write_numbered(void *cookie, uint64_t at, const void *data, size_t len)
{
	struct sink *sink = cookie;

	if (sink->hold)
		sem_wait(sink->hold);
	sink->in_order &= at == sink->next++ && len == 1 && *(const char *)data == (char)at;
	sem_post(&sink->wrote);
	return at == sink->fail_at ? ENOSPC : 0;
}

static void sink_init(struct sink *sink, sem_t *hold)
{
	*sink = (struct sink){.hold = hold, .fail_at = UINT64_MAX, .in_order = true};
	sink->line.cookie = sink;
	assert_int_equal(sem_init(&sink->wrote, 0, 0), 0);
}

static int push(struct get_writer *writer, struct sink *sink, uint64_t at)
{
	char *room = get_writer_room(writer);

	assert_non_null(room);
	*room = (char)at;
	return get_writer_push(writer, &sink->line, at, room, 1);
}

static struct get_writer *start(int64_t linger_ms)
{
	struct get_writer *writer = get_writer_start(write_numbered, linger_ms);

	if (!writer)
		skip(); /* the machine has only one processor */
	return writer;
}

static void a_piece_that_stays_alone_is_written_in_the_end(void **state)
{
	struct get_writer *writer = start(10);
	struct sink sink;

	(void)state;
	sink_init(&sink, NULL);
	assert_int_equal(push(writer, &sink, 0), 0);
	sem_wait(&sink.wrote);
	assert_int_equal(get_writer_stop(writer), 0);
	assert_true(sink.in_order);
}

static void a_piece_that_somebody_waits_for_is_written_at_once(void **state)
{
	struct get_writer *writer = start(NEVER);
	struct sink sink;

	(void)state;
	sink_init(&sink, NULL);
	for (uint64_t at = 0; at < 100; at++) {
		assert_int_equal(push(writer, &sink, at), 0);
		assert_int_equal(get_writer_drain(writer, &sink.line), 0);
		assert_int_equal(sink.next, at + 1);
	}
	assert_int_equal(get_writer_stop(writer), 0);
	assert_true(sink.in_order);
}

/* A drain does not wait for pieces of another line. */
static void who_waits_for_one_line_does_not_wait_for_another(void **state)
{
	struct get_writer *writer = start(NEVER);
	struct sink mine, held;
	sem_t hold;

	(void)state;
	assert_int_equal(sem_init(&hold, 0, 0), 0);
	sink_init(&mine, NULL);
	sink_init(&held, &hold);
	assert_int_equal(push(writer, &mine, 0), 0);
	assert_int_equal(push(writer, &held, 0), 0);

	assert_int_equal(get_writer_drain(writer, &mine.line), 0);

	assert_int_equal(mine.next, 1);
	sem_post(&hold);
	assert_int_equal(get_writer_stop(writer), 0);
	assert_int_equal(held.next, 1);
}

static void more_pieces_than_there_is_room_for_come_in_their_order(void **state)
{
	struct get_writer *writer = start(NEVER);
	struct sink sink;

	(void)state;
	sink_init(&sink, NULL);
	for (uint64_t at = 0; at < PIECES; at++)
		assert_int_equal(push(writer, &sink, at), 0);
	assert_int_equal(get_writer_drain(writer, &sink.line), 0);
	assert_int_equal(sink.next, PIECES);
	assert_int_equal(get_writer_stop(writer), 0);
	assert_true(sink.in_order);
}

struct drainer {
	struct get_writer *writer;
	atomic_bool ending;
	unsigned drained;
};

static void *drain_always(void *arg)
{
	struct drainer *drainer = arg;

	while (!atomic_load(&drainer->ending)) {
		if (get_writer_drain(drainer->writer, NULL) != 0)
			return drainer;
		drainer->drained++;
	}
	return NULL;
}

/* A piece may arrive just when the writer has no pieces left, before the waiting thread has noticed
 * this. */
static void pieces_that_come_while_somebody_waits_for_all_are_written(void **state)
{
	struct drainer drainer = {.writer = start(NEVER)};
	struct sink sink;
	pthread_t thread;
	void *failed;

	(void)state;
	sink_init(&sink, NULL);
	assert_int_equal(pthread_create(&thread, NULL, drain_always, &drainer), 0);
	for (uint64_t at = 0; at < PIECES; at++) {
		assert_int_equal(push(drainer.writer, &sink, at), 0);
		/* Push only one piece at a time, so that no later piece wakes the writer. */
		sem_wait(&sink.wrote);
	}
	atomic_store(&drainer.ending, true);
	pthread_join(thread, &failed);
	assert_null(failed);
	assert_int_equal(get_writer_stop(drainer.writer), 0);
	assert_true(sink.in_order);
}

static void after_a_failure_nothing_is_written(void **state)
{
	struct get_writer *writer = start(NEVER);
	struct sink sink;
	sem_t hold;

	(void)state;
	assert_int_equal(sem_init(&hold, 0, 0), 0);
	sink_init(&sink, &hold);
	sink.fail_at = 1;
	/* Fill the line while the writer waits at its first piece. */
	for (uint64_t at = 0; at < LIMIT_GET_WRITE_AHEAD; at++)
		assert_int_equal(push(writer, &sink, at), 0);
	sem_post(&hold);
	sem_post(&hold);
	assert_int_equal(get_writer_drain(writer, &sink.line), ENOSPC);
	assert_int_equal(sink.next, 2);
	assert_int_equal(push(writer, &sink, LIMIT_GET_WRITE_AHEAD), ENOSPC);
	assert_int_equal(get_writer_stop(writer), ENOSPC);
	assert_true(sink.in_order);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_piece_that_stays_alone_is_written_in_the_end),
		cmocka_unit_test(a_piece_that_somebody_waits_for_is_written_at_once),
		cmocka_unit_test(who_waits_for_one_line_does_not_wait_for_another),
		cmocka_unit_test(more_pieces_than_there_is_room_for_come_in_their_order),
		cmocka_unit_test(pieces_that_come_while_somebody_waits_for_all_are_written),
		cmocka_unit_test(after_a_failure_nothing_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
