/*
 * Output of an attempt on its way to object storage: the store, the sync, the ownership of the
 * output (the lease), checkpoints and the log. Without an S3 output `store`, `sync` and `lease` are
 * NULL.
 *
 *	publisher_open(&p, err);	// the store; makes the bucket if it is missing
 *	...					the caller takes p.lease (run/takeover.c)
 *	publisher_start(&p, err);	// restores the output, starts the sync
 *	run_checkpoints_begin(&p, err);
 *	publisher_start_log(&p, err);
 *	publisher_flush(&p, err);	// at the end
 *	publisher_finish_log(&p, err);
 *	publisher_release(&p);
 */
#ifndef RUN_PUBLISH_PUBLISHER_H
#define RUN_PUBLISH_PUBLISHER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "run/attempt/attempt.h"
#include "run/notices/reaction.h"
#include "run/publish/checkpoints.h"
#include "run/stage/stores.h"

struct flush_clock;
struct lease;
struct log_upload;
struct penstock_error;
struct sync;
struct sync_options;

struct publisher {
	struct attempt *attempt; /* borrowed, as are the next two */
	struct reaction *reaction;
	struct stores *stores;
	struct run_store *store;
	char state_prefix[RUN_STATE_PREFIX_SIZE];
	struct sync *sync;
	struct lease *lease;
	bool fenced; /* another owner has the run: nothing is published any more */
	struct run_checkpoints checkpoints;
	struct log_upload *log, *usage;
	struct flush_clock *clock; /* NULL if no thread watches the time */
	bool away; /* the main thread has reported that the store is unavailable */
	atomic_bool out_of_time; /* the machine ends before all of the output can be published */
	/* replaced objects of which a copy was kept: their number and bytes */
	atomic_ullong kept, kept_bytes;
};

void publisher_init(struct publisher *p, struct attempt *attempt, struct reaction *reaction,
	struct stores *stores);
void publisher_release(struct publisher *p);

int publisher_open(struct publisher *p, struct penstock_error *err);
int publisher_start(struct publisher *p, struct penstock_error *err);
int publisher_start_log(struct publisher *p, struct penstock_error *err);
/* Uploads the log and the usage a last time. Does nothing if the attempt uploads neither. */
int publisher_finish_log(struct publisher *p, struct penstock_error *err);
void publisher_sync_options(struct publisher *p, const char *journal, struct sync_options *options);
/* Completes the output. On failure the local storage still has the missing files. */
int publisher_flush(struct publisher *p, struct penstock_error *err);
/* Removes copies of replaced objects that the workflow does not keep. A failure is only reported.
 * Call it after a flush. */
void publisher_bound_replaced(struct publisher *p);
/* Stops the sync and the thread of the checkpoints at once: another owner has the run. */
void publisher_fence(struct publisher *p);
/* Records the progress of the sync, for `ps` and `show`. */
void publisher_record(struct publisher *p);
/* Returns true if an HTTP output is to be sent: the steps have started and were not preempted. An
 * output that a later attempt completes must not replace a good one. */
bool publisher_sends_http(const struct publisher *p);

/* ---- patience.c ---- */

struct sync_status;
/* Reports once that the store does not reply, and once that it replies again. */
void publisher_report_store(struct publisher *p, const struct sync_status *status);
/* Flushes until all is published. Gives up if uploads fail and there is no progress for
 * `storePatience`, if the machine ends, if another owner has the run, or after a permanent
 * error. */
int publisher_flush_sync(struct publisher *p, struct penstock_error *err);
int publisher_flush_http(struct publisher *p, struct penstock_error *err);
/*
 * publisher_watch_time() starts a thread that sets interrupts.cancel once only the time for the
 * last writes of the run is left before the machine ends. After publisher_watch_last_words(), the
 * thread sets interrupts.cancel when the machine ends.
 */
void publisher_watch_time(struct publisher *p);
void publisher_watch_last_words(struct publisher *p);
void publisher_unwatch_time(struct publisher *p);
/* Returns the words in front of 'penstock flush' in the message about a flush that failed with
 * `code`, such as "; make room in the store, then". */
const char *publisher_flush_hint(enum penstock_code code);

#endif
