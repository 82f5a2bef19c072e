/*
 * A run's state as an object beside its output, and with it the ownership of the run.
 *
 *	lease_take(&lease, &options, &found, err);	before anything of the run is written
 *	lease_set(lease, "running", ...);		at every change of state
 *	lease_release(lease, "succeeded", ...);		the last word; frees
 *
 * The object is PREFIX.penstock/runs/ID/state.json. Every write is conditional on the ETag that this
 * owner saw last, so two owners cannot both go on; the first refused write means that the ownership
 * is lost (`lost` is called, once). A thread renews the object every third of a term. A contender
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

#define LEASE_TERM_MS 30000

struct lease_options {
	struct object_client *client; /* borrowed; outlives the lease */
	const char *bucket;
	const char *prefix;	  /* of the output: "" or "a/b/" */
	const char *state_prefix; /* ".penstock/runs/ID" */
	const char *run_id;
	const char *name; /* may be NULL */
	const char *home; /* $PENSTOCK_HOME: with the machine it names the place of the records */
	int attempt;
	const atomic_int *cancel; /* ends the watching */
	void (*waiting)(
		void *cookie, const char *text); /* told once when a term has to be watched */
	void (*lost)(void *cookie);		 /* from the lease's thread */
	void *cookie;
};

/* What was there before. */
struct lease_found {
	bool any;
	bool unfinished; /* preempted, lost, or its owner is gone */
	bool ours;	 /* the records of this home know how it ended */
	int attempt;
};

/* PENSTOCK_E_EXISTS: the run, or another one with its output, is live; the message names its owner. Strings are copied. */
int lease_take(struct lease **out, const struct lease_options *options, struct lease_found *found,
	struct penstock_error *err);
/* Failures are retried by the thread; the state of the records is what counts on this machine. */
void lease_set(struct lease *lease, const char *state);
/* NULL is not lost. */
bool lease_is_lost(struct lease *lease);
/* Writes the end. NULL is fine. PENSTOCK_E_PRECONDITION: it was lost. */
int lease_release(struct lease *lease, const char *state, const char *class, int exit_code,
	struct penstock_error *err);

#endif
