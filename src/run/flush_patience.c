/* Completing the output: how long that is tried. */
#include "run/run_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "net/http.h"
#include "run/lease.h"
#include "run/reaction.h"
#include "sync/sync.h"
#include "base/banned.h"

enum { FLUSH_LOOK_MS = 1000, FLUSH_PATIENCE_MS = 120000 };

/* How long a flush goes on without any progress while uploads fail; PENSTOCK_FLUSH_PATIENCE, in seconds. */
static int64_t flush_patience_ms(void)
{
	const char *given = getenv("PENSTOCK_FLUSH_PATIENCE");
	uint64_t seconds;

	if (given && str_to_u64(given, 0, 7 * 24 * 3600, &seconds))
		return (int64_t)seconds * 1000;
	return FLUSH_PATIENCE_MS;
}

/* What tells a slow upload from one that does not get on. */
struct flush_watch {
	int64_t moved_ms;      /* the last progress */
	uint64_t published;    /* bytes and files, then */
	uint64_t getting_on;   /* the most that was ever under way or done */
	unsigned long retries; /* then */
};

/* Whether uploads fail and nothing has got on for the whole patience. */
static bool is_hopeless(
	struct run *run, struct flush_watch *watch, const struct sync_status *status)
{
	int64_t now = clock_monotonic_ms();
	struct http_counters counters;
	uint64_t published = status->bytes_published + status->files_published;

	http_engine_counters(run->stores.engine, &counters);
	if (published != watch->published || counters.bytes_getting_on > watch->getting_on) {
		watch->moved_ms = now;
		watch->published = published;
		watch->retries = counters.retries;
		if (counters.bytes_getting_on > watch->getting_on)
			watch->getting_on = counters.bytes_getting_on;
		return false;
	}
	/* A store that is silent, but has not failed, may be putting a large object together. */
	if (counters.retries == watch->retries && !status->last_error[0])
		return false;
	return now - watch->moved_ms > flush_patience_ms();
}

/* Whether the machine goes before more can be published: its time is over, or what is left would not be through. */
static bool is_too_late(struct run *run, int64_t look_ms, const struct penstock_error *e)
{
	int64_t until = reaction_flush_until(run);
	int64_t now = clock_monotonic_ms();

	return until && (now >= until || (e->code == PENSTOCK_E_TIMEOUT && now < look_ms));
}

int run_flush_sync(struct run *run, struct sync *sync, struct penstock_error *err)
{
	struct flush_watch watch = {.moved_ms = clock_monotonic_ms()};

	for (;;) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct sync_status status;
		int64_t until = reaction_flush_until(run);
		int64_t look_ms = clock_monotonic_ms() + FLUSH_LOOK_MS;
		int r;

		if (until && until < look_ms)
			look_ms = until;
		sync_hurry(sync, until);
		r = sync_flush(sync, look_ms, &e);
		if (r == 0)
			return 0;
		if (lease_is_lost(run->lease))
			return error_set(
				err, PENSTOCK_E_PRECONDITION, "%s", lease_owner_now(run->lease));
		if (!error_is_retryable(&e) || atomic_load(&run->interrupts.cancel))
			return error_move(err, &e);
		sync_get_status(sync, &status);
		run_event(run, RUN_EVENT_FLUSH, "output", status.bytes_published,
			status.bytes_published + status.bytes_waiting);
		run->out_of_time = is_too_late(run, look_ms, &e);
		if (run->out_of_time || is_hopeless(run, &watch, &status))
			return error_move(err, &e);
	}
}
