/*
 * Threads that settle (deliver, or give up) the events in queues of the store (store_event_list()),
 * one thread for each queue. Events are settled in their order, and then removed. If an event has
 * to wait, the queue pauses; each pause is twice as long as the previous pause, up to a minute,
 * until an event is settled. Events that cannot be read are read again after the first pause.
 *
 *	consumers_init(&all, &ops, store, 1000);
 *	rc = consumer_start(&consumer, &all, "hook", "hook", err);
 *	...
 *	consumer->added = true;		// in the transaction that adds an event
 *	consumers_wake(&all);		// after its commit
 *	...
 *	consumers_stop(&all);
 */
#ifndef SERVER_BUCKET_CONSUMER_H
#define SERVER_BUCKET_CONSUMER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct consumer;
struct penstock_error;
struct store;
struct store_annotation;
struct store_event;
struct store_event_end;

enum consumer_result {
	CONSUMER_WAIT, /* the event, and all later events, have to wait; the error has the reason */
	CONSUMER_SETTLED,
	/* The event was not delivered, and is removed before the next event. */
	CONSUMER_GAVE_UP,
};

/* Called by the threads. */
struct consumer_ops {
	const char *thread; /* name of the threads */
	const char *what; /* in messages, before the name of a consumer */
	/* Settles an event. `end` is complete except for `bytes` and its note; `note` has room for
	 * the note. Strings in both may point into the text of the event. */
	enum consumer_result (*settle)(struct consumer *c, struct store_event *event,
		struct store_event_end *end, struct store_annotation *note,
		struct penstock_error *err);
	/* Called when the queue pauses. */
	void (*paused)(struct consumer *c, const struct penstock_error *err);
	/* Called when the queue has made progress, before `retry_ms` is reset. `pause_ms` is the
	 * last pause, or 0 if the last event was given up. */
	void (*resumed)(struct consumer *c);
};

struct consumers {
	const struct consumer_ops *ops;
	struct store *store;
	int64_t pause_ms; /* length of the first pause */
	atomic_int cancel; /* the threads have to end */
	pthread_mutex_t lock;
	struct consumer *first; /* under lock */
};

struct consumer {
	struct consumers *all;
	struct consumer *next;
	const char *name, *queue;
	pthread_t thread;
	pthread_cond_t woken; /* used with `all->lock` */
	bool added; /* owned by the committer: the queue got an event */
	/* Owned by the thread: */
	int64_t retry_ms; /* end of the pause; 0 if the queue does not pause */
	int64_t pause_ms; /* length of the last pause; 0 if an event was settled after it */
	uint64_t n_dropped; /* store_event_count.dropped at the last report */
};

void consumers_init(struct consumers *all, const struct consumer_ops *ops, struct store *store,
	int64_t pause_ms);
/* Starts the thread of a zeroed consumer. `name` and `queue` are borrowed. */
int consumer_start(struct consumer *c, struct consumers *all, const char *name, const char *queue,
	struct penstock_error *err);
void consumer_wake(struct consumer *c);
/* Wakes the consumers whose queues got events. */
void consumers_wake(struct consumers *all);
/* Ends the threads. Events that are not settled stay in their queues. */
void consumers_stop(struct consumers *all);

#endif
