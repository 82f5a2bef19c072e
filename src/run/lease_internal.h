/* One lease while it lives; shared by lease.c and lease_output.c. */
#ifndef RUN_LEASE_INTERNAL_H
#define RUN_LEASE_INTERNAL_H

#include <pthread.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/process.h"
#include "net/http.h"
#include "run/lease.h"
#include "transfer/objects.h"

#define LEASE_FORMAT 1

struct lease {
	struct lease_options options; /* with owned copies of its strings */
	char *key;
	char *output_key; /* of the object that says which run the output belongs to */
	char host[65];
	char boot_id[PROCESS_BOOT_ID_SIZE];
	char pid_ns[32];      /* "pid:[4026531836]": containers of one machine have their own */
	uint64_t start_ticks; /* of this process */
	char since[CLOCK_RFC3339_SIZE];
	int64_t term_ms;
	struct http_gate gate;
	atomic_ulong refusals;
	atomic_llong
		held_until_ms; /* clock_boottime_ms() until which nobody can have taken it over */
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	const char *state; /* under lock; a literal */
	bool dirty;	   /* under lock: not yet written */
	bool stopping;	   /* under lock */
	bool lost;	   /* under lock */
	bool output_lost;  /* under lock: the run is ours still, and its output another's */
	char owner[384];   /* who has it now; written once, before `lost` */

	/* Owned by whoever writes: the thread, then lease_release(). */
	char etag[OBJECT_ETAG_SIZE]; /* "": create it */
	char output_etag[OBJECT_ETAG_SIZE];
	int64_t asked_ms; /* when the last write that succeeded was begun, as clock_boottime_ms() */
	int64_t beat;
	int began; /* the attempt that this one goes back to; 0: not known */
	const char *class;
	int exit_code;
};

/* What stands in a state object. */
struct seen {
	char etag[OBJECT_ETAG_SIZE]; /* "": there is none */
	char run[65];
	char state[16];
	char host[65];
	char boot_id[PROCESS_BOOT_ID_SIZE];
	char pid_ns[32];
	char since[CLOCK_RFC3339_SIZE];
	char *home; /* owned */
	char home_id[64];
	int64_t format;
	int attempt;
	int began;
	int64_t pid;
	int64_t start_ticks;
	int64_t term_ms;
};

/* lease.c */
/* 0 also where there is none; then the ETag is empty. An error where it is of no format that is known here.
 * Free `seen->home`. */
int lease_look(struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err);
bool lease_state_is_live(const char *state);
/* On this machine the process itself tells; but none is seen from another container. */
bool lease_owner_is_here(const struct lease *lease, const struct seen *seen);
/* Of an owner that is here. */
bool lease_owner_runs(const struct seen *seen);
/* Whether the store honours the conditions that a takeover from another machine needs. `run` is the owner. */
int lease_can_take_over(
	struct lease *lease, const char *run, const struct seen *seen, struct penstock_error *err);
/* 0: what stands under `key` has not moved for a full term of its owner, or has ended; 1: its owner lives. */
int lease_watch_term(
	struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err);

/* lease_output.c */
/* Makes the output this run's. PENSTOCK_E_EXISTS: a live run writes there; the message names its owner. */
int lease_take_output(struct lease *lease, struct penstock_error *err);
enum lease_output { LEASE_OUTPUT_OURS, LEASE_OUTPUT_LOST, LEASE_OUTPUT_UNKNOWN };
/* Whether it is still this run's; not known where the store does not answer. Free `owner->home`. */
enum lease_output lease_ask_output(struct lease *lease, struct seen *owner);

#endif
