#include "server/bucket/consumer.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/store.h"

/* Maximum number of events that are read together and later removed together. */
#define BATCH 100
/* After this time, the settled events of a batch (delivered, or given up) are removed, even if the
 * rest of the batch is not settled yet. */
#define TURN_MS	     1000
#define PAUSE_MAX_MS 60000

static void warn(const struct consumer *c, const char *what, const struct penstock_error *err)
{
	log_warn("%s '%s': %s: %s", c->all->ops->what, c->name, what,
		err->message ? err->message : "out of memory");
}

static void report_dropped(struct consumer *c)
{
	struct store_event_count count = store_event_count(c->all->store, c->queue);

	if (count.dropped != c->n_dropped)
		log_warn("%s '%s': dropped %llu events, because %zu events already wait",
			c->all->ops->what, c->name,
			(unsigned long long)(count.dropped - c->n_dropped), count.waiting);
	c->n_dropped = count.dropped;
}

/* Settles and removes some events. Returns the number of removed events. *failed is true if the
 * next event has to wait, or if the settled events cannot be removed. */
static size_t settle(struct consumer *c, struct store_event *events, size_t n, bool *failed,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const struct consumers *all = c->all;
	struct store_event_end ends[BATCH];
	struct store_annotation notes[BATCH];
	int64_t end_ms = clock_monotonic_ms() + TURN_MS;
	enum consumer_result result = CONSUMER_SETTLED;
	size_t done = 0;

	while (done < n && result == CONSUMER_SETTLED && !atomic_load(&all->cancel) &&
		(!done || clock_monotonic_ms() < end_ms)) {
		ends[done] = (struct store_event_end){.id = events[done].id};
		result = all->ops->settle(c, &events[done], &ends[done], &notes[done], err);
		done += result != CONSUMER_WAIT;
	}
	*failed = result == CONSUMER_WAIT;
	if (!done)
		return 0;
	if (store_event_remove(all->store, c->queue, ends, done, &own) == STORE_OK) {
		/* The receiver has not accepted the event: resumed() must not report that the
		 * receiver accepts events again. */
		if (result == CONSUMER_GAVE_UP)
			c->pause_ms = 0;
		return done;
	}
	/* If the events cannot be removed, for example because the disk is full, the queue pauses
	 * before they are settled again. */
	*failed = true;
	warn(c, "events will be sent again", &own);
	penstock_error_release(err);
	error_move(err, &own);
	return 0;
}

static void run(struct consumer *c)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct consumers *all = c->all;
	struct store_event *events = NULL;
	size_t n = 0, done = 0;
	bool failed = false;

	report_dropped(c);
	if (store_event_list(all->store, c->queue, BATCH, &events, &n, &err) != STORE_OK)
		warn(c, "cannot read the events", &err);
	if (n)
		done = settle(c, events, n, &failed, &err);
	store_event_list_free(events, n);
	if (atomic_load(&all->cancel))
		return;
	if (!n) {
		/* The events cannot be read, but the receiver has not failed: the pause does not
		 * grow, and paused() is not called. */
		c->retry_ms = clock_monotonic_ms() + all->pause_ms;
	} else if (failed) {
		c->pause_ms = done || !c->pause_ms ? all->pause_ms : 2 * c->pause_ms;
		if (c->pause_ms > PAUSE_MAX_MS)
			c->pause_ms = PAUSE_MAX_MS;
		c->retry_ms = clock_monotonic_ms() + c->pause_ms;
		all->ops->paused(c, &err);
	} else {
		all->ops->resumed(c);
		c->pause_ms = c->retry_ms = 0;
	}
}

/* Waits for an event, and for the end of a pause. Returns false if the consumer has to end. */
static bool wait_for_events(struct consumer *c)
{
	struct consumers *all = c->all;

	LOCK_SCOPE(&all->lock);
	while (!atomic_load(&all->cancel)) {
		int64_t ms = c->retry_ms ? c->retry_ms - clock_monotonic_ms() : 0;
		bool waiting = store_event_count(all->store, c->queue).waiting > 0;

		if (waiting && ms <= 0)
			return true;
		if (waiting)
			clock_cond_wait_ms(&c->woken, &all->lock, ms);
		else
			pthread_cond_wait(&c->woken, &all->lock);
	}
	return false;
}

static void *consumer_main(void *arg)
{
	struct consumer *c = arg;

	while (wait_for_events(c))
		run(c);
	return NULL;
}

void consumers_init(struct consumers *all, const struct consumer_ops *ops, struct store *store,
	int64_t pause_ms)
{
	*all = (struct consumers){.ops = ops, .store = store, .pause_ms = pause_ms};
	pthread_mutex_init(&all->lock, NULL);
}

int consumer_start(struct consumer *c, struct consumers *all, const char *name, const char *queue,
	struct penstock_error *err)
{
	int rc;

	c->all = all;
	c->name = name;
	c->queue = queue;
	clock_cond_init(&c->woken);
	LOCK_SCOPE(&all->lock);
	rc = thread_start(&c->thread, all->ops->thread, consumer_main, c, err);
	if (rc < 0)
		return rc;
	c->next = all->first;
	all->first = c;
	return 0;
}

void consumer_wake(struct consumer *c)
{
	LOCK_SCOPE(&c->all->lock);
	pthread_cond_signal(&c->woken);
}

void consumers_wake(struct consumers *all)
{
	LOCK_SCOPE(&all->lock);
	for (struct consumer *c = all->first; c; c = c->next) {
		if (c->added)
			pthread_cond_signal(&c->woken);
		c->added = false;
	}
}

void consumers_stop(struct consumers *all)
{
	atomic_store(&all->cancel, 1);
	pthread_mutex_lock(&all->lock);
	for (struct consumer *c = all->first; c; c = c->next)
		pthread_cond_signal(&c->woken);
	pthread_mutex_unlock(&all->lock);
	for (struct consumer *c = all->first; c; c = c->next) {
		pthread_join(c->thread, NULL);
		pthread_cond_destroy(&c->woken);
	}
	pthread_mutex_destroy(&all->lock);
}
