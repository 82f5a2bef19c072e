/* The number of concurrent bulk requests, against models of stores. The time is simulated, so the
 * tests do not wait. */
#include "net/pace/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TICK_MS 50
#define MAX	48

/* A store that limits the bandwidth of each connection and of all connections together. */
struct model {
	struct pace pace;
	int64_t now;
	double each, all; /* bytes per ms */
	unsigned refuses_beyond;
	unsigned refusals;
	unsigned lowest, highest;
	uint64_t moved;
};

static void model_init(struct model *m, double each, double all)
{
	*m = (struct model){.now = 1000, .each = each, .all = all, .lowest = MAX + 1};
	pace_init(&m->pace, MAX);
}

static void model_run(struct model *m, int64_t ms)
{
	for (int64_t end = m->now + ms; m->now < end; m->now += TICK_MS) {
		unsigned limit = m->pace.limit;
		double rate = limit * m->each < m->all ? limit * m->each : m->all;

		if (m->refuses_beyond && limit > m->refuses_beyond) {
			m->refusals++;
			pace_refused(&m->pace, m->now, limit);
		}
		pace_moved(&m->pace, (uint64_t)(rate * TICK_MS));
		m->moved += (uint64_t)(rate * TICK_MS);
		pace_tick(&m->pace, m->now, false);
		if (m->pace.limit < m->lowest)
			m->lowest = m->pace.limit;
		if (m->pace.limit > m->highest)
			m->highest = m->pace.limit;
	}
}

/* A distant store: the round-trip time limits the bandwidth of one connection. */
static void it_climbs_while_more_connections_move_more(void **state)
{
	struct model m;

	(void)state;
	model_init(&m, 60000, 4000000);

	model_run(&m, 1500);

	assert_in_range(m.pace.limit, 32, MAX);
}

/* A store on this machine: two connections use its whole bandwidth, and more connections only cost
 * time. */
static void it_stays_low_where_more_connections_bring_nothing(void **state)
{
	struct model m;

	(void)state;
	model_init(&m, 1000000, 2000000);

	model_run(&m, 1000);
	assert_int_equal(m.pace.limit, PACE_START);
	model_run(&m, 60000);

	assert_in_range(m.pace.limit, PACE_FLOOR, PACE_START + 2);
	assert_in_range(m.highest, PACE_START, 2 * PACE_START);
}

/* The round-trip time increases in the middle of a transfer. */
static void it_finds_a_better_number_later(void **state)
{
	struct model m;

	(void)state;
	model_init(&m, 1000000, 2000000);
	model_run(&m, 20000);

	m.each = 50000;
	model_run(&m, 60000);

	assert_in_range(m.pace.limit, 30, MAX);
}

static void refusals_halve_it_once_in_a_window(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, MAX);

	for (int i = 0; i < 20; i++)
		pace_refused(&pace, 1000, 8);

	assert_int_equal(pace.limit, 4);
}

static void a_storm_brings_it_down_to_one_and_it_recovers(void **state)
{
	struct model m;
	unsigned before;

	(void)state;
	model_init(&m, 60000, 2000000);
	model_run(&m, 2000);
	before = m.pace.limit;

	for (int i = 0; i < 100; i++, m.now += TICK_MS) {
		pace_refused(&m.pace, m.now, m.pace.limit);
		pace_tick(&m.pace, m.now, false);
	}
	assert_int_equal(m.pace.limit, 1);
	model_run(&m, 60000);

	assert_in_range(m.pace.limit, before / 2, MAX);
}

/* The store accepts a number of requests and refuses all others. Nearly that number is used, and
 * few requests are refused. */
static void it_stays_near_what_a_store_allows(void **state)
{
	struct model m;

	(void)state;
	model_init(&m, 60000, 10000000);
	m.refuses_beyond = 20;

	model_run(&m, 120000);

	assert_in_range(m.refusals, 1, 60);
	assert_true((double)m.moved > 0.7 * 20 * 60000 * 120000);
}

/* At the end of a transfer, or during a small one, the data rate falls for reasons that are
 * independent of the store. */
static void what_nobody_wants_is_not_measured(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, MAX);

	for (int64_t now = 1000; now < 20000; now += TICK_MS) {
		pace_moved(&pace, 1000);
		pace_tick(&pace, now, true);
	}

	assert_int_equal(pace.limit, PACE_START);
}

static void a_host_that_answers_nothing_is_not_asked_for_more(void **state)
{
	struct pace pace;

	(void)state;
	pace_init(&pace, MAX);

	for (int64_t now = 1000; now < 20000; now += TICK_MS)
		pace_tick(&pace, now, false);

	assert_int_equal(pace.limit, PACE_START);
}

static void a_small_bound_is_kept(void **state)
{
	struct model m;

	(void)state;
	model_init(&m, 60000, 4000000);
	pace_init(&m.pace, 3);

	model_run(&m, 30000);

	assert_in_range(m.pace.limit, 1, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_climbs_while_more_connections_move_more),
		cmocka_unit_test(it_stays_low_where_more_connections_bring_nothing),
		cmocka_unit_test(it_finds_a_better_number_later),
		cmocka_unit_test(refusals_halve_it_once_in_a_window),
		cmocka_unit_test(a_storm_brings_it_down_to_one_and_it_recovers),
		cmocka_unit_test(it_stays_near_what_a_store_allows),
		cmocka_unit_test(what_nobody_wants_is_not_measured),
		cmocka_unit_test(a_host_that_answers_nothing_is_not_asked_for_more),
		cmocka_unit_test(a_small_bound_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
