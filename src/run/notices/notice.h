/*
 * Preemption notices, which announce the end of the machine, and their sources.
 *
 *	notices_start(&notices, &(struct notices_options){ .preemption = &p, .on_notice = fn,
 *		.cookie = c }, err);
 *	... fn(c, &notice) is called for each notice, from a thread of its source
 *	notices_done(notices, alone);	// the state is written: the machine may end
 *	notices_stop(notices);
 *
 * Each source is a `struct notice_source_ops` in src/run/notices/NAME.c with its own thread, so it
 * may block. A source that the machine does not have is silent. Signals are not a source of this
 * kind: interrupts.h reads them.
 */
#ifndef RUN_NOTICES_NOTICE_H
#define RUN_NOTICES_NOTICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "workflow/model.h"

struct buf;
struct http_engine;
struct notices;
struct penstock_error;

struct notice {
	char source[24]; /* "gcp", "aws", "azure", "slurm", "signal", "file", "command", … */
	char reason[200]; /* one line, in the source's words */
	int64_t noticed_ms; /* monotonic; 0 for the current time */
	/* monotonic time of the machine's end; 0 if unknown: then the grace period counts */
	int64_t deadline_ms;
	int64_t noticed_wall; /* nanoseconds; 0 for the current time */
	/* the machine certainly ends at the deadline; if the source gave no deadline, the grace
	 * period counts */
	bool hard;
	/* a warning that the machine may end soon: the tasks may save, and no task is ended */
	bool soon;
	/* the notice of this source no longer holds; with `soon`, its warning no longer holds */
	bool withdrawn;
	unsigned origin; /* distinguishes sources of the same name; 0 for a signal */
	unsigned serial; /* number of the notice; changes with new information */
	unsigned eased; /* in interrupts.notice: number of merged notices that were withdrawn */
};

/* Clears the notice, and sets the source and the reason. Truncates `reason`, and replaces control
 * characters, with which the reason could forge a line of the log. */
void notice_set(struct notice *notice, const char *source, const char *reason);
/* Makes the notice `hard`: the machine ends `lead_ms` from now. */
void notice_set_lead(struct notice *notice, int64_t lead_ms);

struct notices_options {
	const struct workflow_preemption *preemption; /* borrowed */
	void (*on_notice)(void *cookie, const struct notice *notice); /* called from any thread */
	void *cookie;
};

int notices_start(
	struct notices **out, const struct notices_options *options, struct penstock_error *err);
/* If `alone` (this machine has no other run that may still be saving), ends the threads and calls
 * `done` of the sources. */
void notices_done(struct notices *notices, bool alone);
void notices_stop(struct notices *notices); /* `notices` may be NULL */

/* ---- for the sources ---- */

/* Shared by all sources of a run. */
struct notice_shared {
	atomic_int cancel;
	int quit_fd; /* readable once the watch ends */
	pthread_mutex_t lock;
	struct http_engine *engine; /* under lock */
};

/* One watched source; owned by its thread. */
struct notice_watch {
	const struct notice_source_ops *ops;
	struct notice_shared *shared;
	const char *value; /* the path of a `file`, or a `command` line */
	const char *base; /* the address of a metadata service, without a slash at the end */
	/* the source is expected here (by name, by a configured address or by the firmware): keep
	 * probing if it is absent */
	bool sure;
	const atomic_int *cancel; /* ends requests */
	void *state; /* private to the source */
};

/* Returns the engine shared by all sources, made on first use, or NULL if it cannot be made. */
struct http_engine *notice_engine(struct notice_watch *watch);
/* Waits for `ms`. Returns false if the watch is ending. */
bool notice_sleep(const struct notice_watch *watch, int64_t ms);
/* Waits until `every_ms` after the planned end of the previous wait, so that the duration of a
 * query does not delay the next query. `*last` is 0 at first. Returns false if the watch is
 * ending. */
bool notice_next(const struct notice_watch *watch, int64_t *last, int64_t every_ms);

struct notice_source_ops {
	const char *name;
	/* Checks if the machine has this source; may take a second. False is final unless the watch
	 * is `sure`. */
	bool (*probe)(struct notice_watch *watch);
	/* Blocks until there is a notice (true), or the watch ends (false). Called again after each
	 * notice. */
	bool (*wait)(struct notice_watch *watch, struct notice *out);
	/* Called after all steps have ended and the state is written. May be NULL. */
	void (*done)(struct notice_watch *watch);
	void (*release)(struct notice_watch *watch); /* frees `state`; may be NULL */
};

extern const struct notice_source_ops notice_file;
extern const struct notice_source_ops notice_command;
extern const struct notice_source_ops notice_gcp_preempted;
extern const struct notice_source_ops notice_gcp_maintenance;
extern const struct notice_source_ops notice_aws;
extern const struct notice_source_ops notice_azure;

/* The cloud of the machine according to its firmware. */
enum notice_cloud {
	NOTICE_CLOUD_UNKNOWN,
	NOTICE_CLOUD_NONE,
	NOTICE_CLOUD_GCP,
	NOTICE_CLOUD_AWS,
	NOTICE_CLOUD_AZURE
};
/* `dir` is /sys/class/dmi/id. Returns NOTICE_CLOUD_UNKNOWN if the directory does not exist. */
enum notice_cloud notice_machine(const char *dir);

#endif
