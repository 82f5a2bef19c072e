/* Completing the output: how long that is tried. */
#include "run/run_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http.h"
#include "run/lease.h"
#include "run/reaction.h"
#include "sync/http_output.h"
#include "sync/sync.h"
#include "base/banned.h"

enum { FLUSH_LOOK_MS = 1000, FLUSH_PATIENCE_MS = 120000, CLOCK_LOOK_MS = 200 };

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
	uint64_t published;    /* bytes and files, sent or compared, then */
	uint64_t getting_on;   /* the most that was ever under way or done */
	unsigned long retries; /* then */
};

/* Whether uploads fail and nothing has got on for the whole patience. */
static bool is_hopeless(
	struct run *run, struct flush_watch *watch, const struct sync_status *status)
{
	int64_t now = clock_monotonic_ms();
	struct http_counters counters;
	uint64_t published = status->bytes_published + status->files_published + status->compared;

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

	for (bool first = true;; first = false) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct sync_status status;
		int64_t until = reaction_flush_until(run);
		int64_t look_ms = clock_monotonic_ms() + FLUSH_LOOK_MS;
		int r;

		if (until && until < look_ms)
			look_ms = until;
		sync_hurry(sync, until);
		r = first ? sync_flush(sync, look_ms, &e) : sync_flush_on(sync, look_ms, &e);
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
		if (is_too_late(run, look_ms, &e))
			atomic_store(&run->out_of_time, true);
		if (atomic_load(&run->out_of_time) || is_hopeless(run, &watch, &status))
			return error_move(err, &e);
	}
}

int run_flush_http(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf reply = BUF_INIT(LIMIT_HTTP_ERROR_BODY);
	int r = sync_http_output(run->stores.engine, run->workflow->output.http_url.value,
		run->layout.output, run->layout.tmp, &run->interrupts.cancel, &reply, err);

	if (r == 0 && reply.len)
		run_say(run, RUN_EVENT_MESSAGE, "the server answered: %.1000s", buf_str(&reply));
	return r;
}

/* ---- what sends and does not look at the time itself ---- */

struct flush_clock {
	struct run *run;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool last_words, stop; /* under lock */
};

/* With the lock held: until the time is over, a notice comes or goes, or somebody wants something else. */
static bool wait_for_the_end(struct flush_clock *c)
{
	int64_t until = c->last_words ? reaction_gone_at(c->run) : reaction_flush_until(c->run);
	int64_t left = until ? until - clock_monotonic_ms() : CLOCK_LOOK_MS;

	if (left <= 0)
		return true;
	clock_cond_wait_ms(&c->wake, &c->lock, left < CLOCK_LOOK_MS ? left : CLOCK_LOOK_MS);
	return false;
}

static void *watch_the_time(void *cookie)
{
	struct flush_clock *c = cookie;
	bool given_up = false, last_words = false;

	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		if (c->last_words != last_words) {
			last_words = c->last_words;
			given_up = false;
		}
		if (given_up) {
			pthread_cond_wait(&c->wake, &c->lock);
		} else if (wait_for_the_end(c)) {
			given_up = true;
			atomic_store(&c->run->out_of_time, true);
			interrupts_give_up(&c->run->interrupts);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void run_watch_the_time(struct run *run)
{
	struct flush_clock *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->run = run;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->wake);
	if (pthread_create(&c->thread, NULL, watch_the_time, c) != 0) {
		log_debug("no thread looks at the time of the flush");
		free(c);
		return;
	}
	run->clock = c;
}

static void set(struct flush_clock *c, bool *what)
{
	pthread_mutex_lock(&c->lock);
	*what = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

void run_watch_the_last_words(struct run *run)
{
	if (run->clock)
		set(run->clock, &run->clock->last_words);
}

void run_forget_the_time(struct run *run)
{
	struct flush_clock *c = take_pointer(run->clock);

	if (!c)
		return;
	set(c, &c->stop);
	pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
