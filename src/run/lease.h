/*
 * A run's state as an object beside its output, and with it the ownership of the run.
 *
 *	lease_take(&lease, &options, &found, err);	before anything of the run is written
 *	lease_set(lease, "running", ...);		at every change of state
 *	lease_release(lease, "succeeded", ...);		the last word; frees
 *
 * The object is PREFIX.penstock/runs/ID/state.json. Every write is conditional on the ETag that this
 * owner saw last, so two owners cannot both go on; the first refused write means that the ownership
 * is lost (`lost` is called, once). A thread renews the object every third of a term; while no renewal has
 * succeeded for five sixths of one (the process was suspended, the store was away), lease_gate() lets nothing
 * out that changes anything, so a contender finds nothing that is still on its way. A contender
 * from another machine takes over only after it has watched the object unchanged for one full term on
 * its own monotonic clock: clocks are never compared. On the same machine the old owner's process
 * decides. An endpoint that ignores conditions is refused the takeover.
 *
 * With the run comes its output: another run that is live and writes there is not joined, and whoever takes
 * the output over from a run that stood still for a term fences it just so (lease_output.c).
 */
#ifndef RUN_LEASE_H
#define RUN_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>

struct lease;
struct object_client;
struct penstock_error;

#define LEASE_TERM_MS 30000 /* unless $PENSTOCK_LEASE_TERM says how many seconds */

struct lease_found;
struct http_gate;

struct lease_options {
	struct object_client *client; /* borrowed; outlives the lease */
	const char *bucket;
	const char *prefix;	  /* of the output: "" or "a/b/" */
	const char *state_prefix; /* ".penstock/runs/ID" */
	const char *run_id;
	const char *name; /* may be NULL */
	const char *home; /* $PENSTOCK_HOME: with the machine it names the place of the records */
	const char *home_id; /* and this is no other that is called so there (records/records.h) */
	int attempt;
	const atomic_int *cancel; /* ends the watching */
	void (*waiting)(
		void *cookie, const char *text); /* told once when a term has to be watched */
	/* From the lease's thread; `owner` says who has it now. */
	void (*lost)(void *cookie, const char *owner);
	/*
	 * Called before the state is written for the first time: *began is the attempt that the one which begins now
	 * goes back to, itself where it begins anew. An error is lease_take()'s. NULL: what stands there stays.
	 */
	int (*judge)(void *judge_cookie, const struct lease_found *found, int attempt, int *began,
		struct penstock_error *err);
	void *judge_cookie;
	void *cookie;	/* of `waiting` and `lost` */
	bool completes; /* the last attempt, and begins none: `penstock flush` */
	int held; /* of which what is left to complete is: the last attempt that owned the run from here */
};

/* What was there before. */
struct lease_found {
	bool any;
	bool unfinished; /* preempted, lost, or its owner is gone */
	bool ours;	 /* the records of this home know how it ended */
	int attempt;	 /* the last one; 0: none, or not known */
	int began;	 /* the attempt with which it last began anew; 0: not known */
	char state[16];	 /* of that attempt, and where it was */
	char host[65];
	char home
		[4096]; /* of an owner that was killed on this machine, under another home; "": none */
};

/* PENSTOCK_E_EXISTS: the run, or another one with its output, is live; the message names its owner. Strings are copied. */
int lease_take(struct lease **out, const struct lease_options *options, struct lease_found *found,
	struct penstock_error *err);
/* Failures are retried by the thread; the state of the records is what counts on this machine. */
void lease_set(struct lease *lease, const char *state);
/* The number of the attempt, over all machines. */
int lease_attempt(const struct lease *lease);
/* For everything but the lease itself that changes something there. Closed while nobody can be sure that the run is
 * ours. */
const struct http_gate *lease_gate(const struct lease *lease);
/* How many requests it has stopped; whoever sees the number grow over a failure of his waits and tries again. */
unsigned long lease_refusals(const struct lease *lease);
/* Until the ownership is renewed; false: it is lost, or *cancel was set. */
bool lease_wait(struct lease *lease, const atomic_int *cancel);
/* NULL is not lost. */
bool lease_is_lost(struct lease *lease);
/* Of one that is lost: "run ID is now attempt 3 on HOST (process 12, since …)". */
const char *lease_owner_now(const struct lease *lease);
/* Writes the end. NULL is fine. PENSTOCK_E_PRECONDITION: it was lost. */
int lease_release(struct lease *lease, const char *state, const char *class, int exit_code,
	struct penstock_error *err);

#endif
