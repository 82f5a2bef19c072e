/* Completing the output within the time that is left. */
#include "run/publish/publisher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/http/http.h"
#include "run/config/times.h"
#include "run/owner/lease.h"
#include "run/notices/reaction.h"
#include "sync/http_output.h"
#include "sync/sync.h"

enum {
	FLUSH_CHECK_MS = 1000,
	FLUSH_PATIENCE_MS = 30000,
	CLOCK_CHECK_MS = 200,
	SILENCE_MIN_MS = 5000, /* a store may need this long to write to its disk */
};

/* Distinguishes a slow upload from a stuck one. */
struct flush_watch {
	int64_t moved_ms; /* time of the last progress */
	uint64_t published; /* bytes and files, sent or compared, at that time */
	uint64_t progress; /* the most bytes that were ever in flight or done */
	unsigned long retries; /* retries of requests at that time */
	uint64_t others; /* lowest number so far of sent bytes that belong to no published file */
};

static int64_t patience_ms(const struct publisher *p)
{
	const struct workflow_number *given = &p->attempt->workflow->store_patience;

	return given->given ? given->value
			    : wait_from_env_ms("PENSTOCK_FLUSH_PATIENCE", FLUSH_PATIENCE_MS);
}

void publisher_report_store(struct publisher *p, const struct sync_status *status)
{
	bool away = status->away_ns != 0;
	time_t at = (time_t)(status->away_ns / NS_PER_S);
	struct tm tm;
	char since[16] = "";

	if (away == p->away)
		return;
	p->away = away;
	if (!away) {
		run_say(&p->attempt->voice, RUN_EVENT_MESSAGE, "the store is available again");
		return;
	}
	if (localtime_r(&at, &tm))
		strftime(since, sizeof(since), "%H:%M:%S", &tm);
	run_say(&p->attempt->voice, RUN_EVENT_WARNING,
		"the store has been unavailable since %s: %s", since, status->last_error);
}

/* Returns true if uploads fail and there was no progress for the time of patience_ms(). */
static bool is_hopeless(
	struct publisher *p, struct flush_watch *watch, const struct sync_status *status)
{
	int64_t now = clock_monotonic_ms();
	struct http_counters counters;
	uint64_t published = status->bytes_published + status->files_published + status->compared;

	http_engine_counters(p->stores->engine, &counters);
	if (published != watch->published || counters.bytes_progress > watch->progress) {
		watch->moved_ms = now;
		watch->published = published;
		watch->retries = counters.retries;
		if (counters.bytes_progress > watch->progress)
			watch->progress = counters.bytes_progress;
		return false;
	}
	/* A store that is silent but has not failed may be assembling a large object. */
	if (counters.retries == watch->retries && !status->last_error[0])
		return false;
	return now - watch->moved_ms > patience_ms(p);
}

/* Returns the bytes sent so far, including the sent part of a file that is not published yet. */
static uint64_t bytes_sent(
	const struct publisher *p, struct flush_watch *watch, const struct sync_status *status)
{
	struct http_counters counters;

	http_engine_counters(p->stores->engine, &counters);
	if (counters.bytes_progress < status->bytes_published)
		return status->bytes_published;
	if (counters.bytes_progress - status->bytes_published < watch->others)
		watch->others = counters.bytes_progress - status->bytes_published;
	return counters.bytes_progress - watch->others;
}

static void report_progress(
	const struct publisher *p, struct flush_watch *watch, const struct sync_status *status)
{
	const uint64_t total = status->bytes_published + status->bytes_waiting;
	uint64_t done = bytes_sent(p, watch, status);

	if (done >= total && status->bytes_waiting)
		done = total - 1; /* not complete yet */
	run_event(&p->attempt->voice, RUN_EVENT_FLUSH, "output", done, total);
}

int publisher_flush_sync(struct publisher *p, struct penstock_error *err)
{
	struct flush_watch watch = {.moved_ms = clock_monotonic_ms(), .others = UINT64_MAX};
	const int64_t patience = patience_ms(p);
	struct sync_status begin;

	sync_get_status(p->sync, &begin);
	bytes_sent(p, &watch, &begin);
	/* Make requests to a silent store fail early: only a failed request shows that the store is
	 * unavailable. */
	http_engine_shorten_stall(
		p->stores->engine, patience > SILENCE_MIN_MS ? patience : SILENCE_MIN_MS);
	for (bool first = true;; first = false) {
		_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
		struct sync_status status;
		int64_t until = reaction_flush_until(p->reaction);
		int64_t check_ms = clock_monotonic_ms() + FLUSH_CHECK_MS;
		int64_t now;
		int r;

		if (until && until < check_ms)
			check_ms = until;
		sync_hurry(p->sync, until);
		r = first ? sync_flush(p->sync, check_ms, &e)
			  : sync_flush_on(p->sync, check_ms, &e);
		if (r == 0)
			return 0;
		if (lease_is_lost(p->lease))
			return error_set(
				err, PENSTOCK_E_PRECONDITION, "%s", lease_owner_now(p->lease));
		if (!error_is_retryable(&e) || atomic_load(&p->reaction->interrupts.cancel))
			return error_move(err, &e);
		sync_get_status(p->sync, &status);
		publisher_report_store(p, &status);
		report_progress(p, &watch, &status);
		/* The machine ends before more can be published: the time is up, or the remaining
		 * uploads would not finish. */
		until = reaction_flush_until(p->reaction);
		now = clock_monotonic_ms();
		if (until && (now >= until || (e.code == PENSTOCK_E_TIMEOUT && now < check_ms)))
			atomic_store(&p->out_of_time, true);
		if (atomic_load(&p->out_of_time) || is_hopeless(p, &watch, &status))
			return error_move(err, &e);
	}
}

int publisher_flush_http(struct publisher *p, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf reply = BUF_INIT(LIMIT_HTTP_ERROR_BODY);
	int r = sync_http_output(p->stores->engine, p->attempt->workflow->output.http_url.value,
		p->attempt->layout.output, p->attempt->layout.tmp, &p->reaction->interrupts.cancel,
		&reply, err);

	if (r == 0 && reply.len)
		run_say(&p->attempt->voice, RUN_EVENT_MESSAGE, "the server answered: %.1000s",
			buf_str(&reply));
	return r;
}

/* ---- the time limit of uploads that do not check it themselves ---- */

struct flush_clock {
	struct publisher *publisher; /* borrowed */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool last_words, stop; /* under lock */
};

/* Waits for the deadline or a new request, at most CLOCK_CHECK_MS; call it with the lock held.
 * Returns true at the deadline. */
static bool wait_for_deadline(struct flush_clock *c)
{
	int64_t until = c->last_words ? reaction_gone_at(c->publisher->reaction)
				      : reaction_flush_until(c->publisher->reaction);
	int64_t left = until ? until - clock_monotonic_ms() : CLOCK_CHECK_MS;

	if (left <= 0)
		return true;
	clock_cond_wait_ms(&c->wake, &c->lock, left < CLOCK_CHECK_MS ? left : CLOCK_CHECK_MS);
	return false;
}

static void *watch_time(void *cookie)
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
		} else if (wait_for_deadline(c)) {
			given_up = true;
			atomic_store(&c->publisher->out_of_time, true);
			interrupts_give_up(&c->publisher->reaction->interrupts);
		}
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

void publisher_watch_time(struct publisher *p)
{
	struct flush_clock *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->publisher = p;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->wake);
	if (thread_start(&c->thread, "flush", watch_time, c, NULL) < 0) {
		log_debug("cannot watch the duration of the flush: cannot start a thread");
		free(c);
		return;
	}
	p->clock = c;
}

static void set(struct flush_clock *c, bool *what)
{
	LOCK_SCOPE(&c->lock);
	*what = true;
	pthread_cond_signal(&c->wake);
}

void publisher_watch_last_words(struct publisher *p)
{
	if (p->clock)
		set(p->clock, &p->clock->last_words);
}

void publisher_unwatch_time(struct publisher *p)
{
	struct flush_clock *c = take_pointer(p->clock);

	if (!c)
		return;
	set(c, &c->stop);
	pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

const char *publisher_flush_hint(enum penstock_code code)
{
	switch (code) {
	case PENSTOCK_E_NO_SPACE:
		return "; make room in the store, then";
	case PENSTOCK_E_PERMISSION:
		return "; correct the keys or their permissions, then";
	case PENSTOCK_E_UNAVAILABLE:
	case PENSTOCK_E_TIMEOUT:
		return "; once the store answers again,";
	default:
		return ";";
	}
}
