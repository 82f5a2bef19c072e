/*
 * Notices that the machine goes away, and who brings them.
 *
 *	notices_start(&notices, &(struct notices_options){ .preemption = &p, .on_notice = fn, .cookie = c }, err);
 *	... fn(c, &notice) from a thread of the source, of each notice
 *	notices_done(notices);     the state is written: whoever waits for that may take the machine
 *	notices_stop(notices);
 *
 * Each source is a `struct notice_source_ops` in src/run/notices/NAME.c and has a thread of its own, so it may block. A
 * source that the machine does not have is silent. Signals are no source of this kind: interrupts.h reads them.
 */
#ifndef RUN_NOTICE_H
#define RUN_NOTICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "workflow/model.h"

struct buf;
struct http_engine;
struct notices;
struct penstock_error;

struct notice {
	char source[24];     /* "gcp", "aws", "azure", "slurm", "signal", "file", "command", … */
	char reason[200];    /* one line, in the source's words */
	int64_t noticed_ms;  /* monotonic; 0: now */
	int64_t deadline_ms; /* monotonic, when the machine goes; 0: not told, so the grace counts */
	int64_t noticed_wall; /* nanoseconds; 0: now */
	bool hard;	      /* the deadline was told by the source */
	bool soon;	      /* it may be soon: a good moment to save, but nothing ends */
	bool withdrawn; /* what this source has noticed does not hold any more; `soon`: what it said of soon */
	unsigned origin; /* which of several of one name has brought it; 0: a signal */
	unsigned serial; /* of those that were taken in: another number, something new */
	unsigned eased;	 /* of the whole: how often a part of it was withdrawn */
};

/* `reason` is cut, and what would forge a line is replaced. */
void notice_set(struct notice *notice, const char *source, const char *reason);
/* The same with a lead: it goes in `lead_ms` from now. */
void notice_set_lead(struct notice *notice, int64_t lead_ms);

struct notices_options {
	const struct workflow_preemption *preemption;		      /* borrowed */
	void (*on_notice)(void *cookie, const struct notice *notice); /* from any thread */
	void *cookie;
};

int notices_start(
	struct notices **out, const struct notices_options *options, struct penstock_error *err);
/* `alone`: no other run of this machine may still be saving. */
void notices_done(struct notices *notices, bool alone);
void notices_stop(struct notices *notices); /* NULL is fine */

/* ---- for the sources ---- */

/* One source while it is watched; owned by its thread. */
struct notice_watch {
	const struct notice_source_ops *ops;
	struct notices *notices;
	const char *value; /* of `file` and `command` */
	const char *base;  /* the address of a metadata service, without a slash at the end */
	bool sure;	   /* it was asked for by name: an absent one is still looked for */
	const atomic_int *cancel; /* for requests */
	void *state;		  /* of the source */
};

/* The engine that all share, made when it is first asked for; NULL: it cannot be made. */
struct http_engine *notice_engine(struct notice_watch *watch);
/* Waits; false: it is over. */
bool notice_sleep(const struct notice_watch *watch, int64_t ms);
/* Waits for the next time of those that are `every_ms` apart, however long the question took; `*last` is 0 at first. */
bool notice_next(const struct notice_watch *watch, int64_t *last, int64_t every_ms);

struct notice_source_ops {
	const char *name;
	/* Whether the machine has it; may take a second. False is final unless the source was asked for by name. */
	bool (*probe)(struct notice_watch *watch);
	/* Blocks until there is something to tell (true), or it is over (false). Called again after each notice. */
	bool (*wait)(struct notice_watch *watch, struct notice *out);
	/* All that ran here has ended and its state is written. NULL: nobody wants to know. */
	void (*done)(struct notice_watch *watch);
	void (*release)(struct notice_watch *watch); /* of `state`; may be NULL */
};

extern const struct notice_source_ops notice_file;
extern const struct notice_source_ops notice_command;
extern const struct notice_source_ops notice_gcp_preempted;
extern const struct notice_source_ops notice_gcp_maintenance;
extern const struct notice_source_ops notice_aws;
extern const struct notice_source_ops notice_azure;

/* What the firmware says of the machine. */
enum notice_cloud {
	NOTICE_CLOUD_UNKNOWN,
	NOTICE_CLOUD_NONE,
	NOTICE_CLOUD_GCP,
	NOTICE_CLOUD_AWS,
	NOTICE_CLOUD_AZURE
};
/* `dir` is /sys/class/dmi/id; UNKNOWN: it is not there. */
enum notice_cloud notice_machine(const char *dir);

#endif
