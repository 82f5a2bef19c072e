/*
 * The state object of a run in its output, and with it the ownership of the run.
 *
 *	lease_take(&lease, &options, &found, err);		// before the run writes anything
 *	lease_set(lease, "running");				// at every change of state
 *	lease_release(lease, &(struct lease_end){.state = "succeeded"}, err); // last write; frees
 *
 * The object is PREFIX.penstock/runs/ID/state.json. Every write is conditional on the ETag that
 * this owner saw last, so two owners can never both continue. If another owner has changed the
 * object, the ownership is lost (`lost` is called, once). A thread renews the object every third of
 * a term. If no renewal succeeded for five sixths of a term (the process was suspended, or the
 * store did not reply), lease_gate() refuses every request that changes anything, so that a
 * contender finds no upload in flight. A contender on another machine takes over only after it has
 * watched the object unchanged for one full term on its own monotonic clock: the clocks of two
 * machines are never compared. Such a takeover fails at a store that ignores conditions. A
 * contender on the same machine, in the same container, takes over if the process of the old owner
 * is gone.
 *
 * The owner of the run also owns its output: as long as a run is live, no other run can take the
 * output of that run. If that run does not renew its lease for a term, another run can take the
 * output; the gate of the former owner is closed by then (output.c).
 *
 * The object also has the earlier attempts of all machines, for `penstock show` and `penstock ui`.
 */
#ifndef RUN_OWNER_LEASE_H
#define RUN_OWNER_LEASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct lease;
struct object_client;
struct penstock_error;

#define LEASE_TERM_MS 30000 /* default; $PENSTOCK_LEASE_TERM sets it in seconds */
enum { LEASE_TERM_MIN_S = 1, LEASE_TERM_MAX_S = 600 }; /* range of a term */

struct lease_found;
struct http_gate;

struct lease_options {
	struct object_client *client; /* borrowed; outlives the lease */
	const char *bucket;
	const char *prefix; /* prefix of the output: "" or "a/b/" */
	const char *state_prefix; /* ".penstock/runs/ID" */
	const char *run_id;
	const char *name; /* may be NULL */
	/* price of this machine per hour; NULL if unknown, or if the attempt only completes
	 * another one */
	const char *price;
	/* $PENSTOCK_HOME; the home and the machine together identify the records */
	const char *home;
	const char *home_id; /* distinguishes homes of the same path (records/records.h) */
	int attempt;
	const atomic_int *cancel; /* ends waiting */
	void (*waiting)(void *cookie, const char *text); /* called before a wait of one term */
	/* Called from the lease's thread; `owner` describes the new owner. */
	void (*lost)(void *cookie, const char *owner);
	/*
	 * Called before the state is first written. Sets `*began` to the attempt at which the run
	 * last started from scratch: to `attempt` if this attempt starts from scratch. lease_take()
	 * returns the error of `decide`. If `decide` is NULL, `began` of the object stays.
	 */
	int (*decide)(void *decide_cookie, const struct lease_found *found, int attempt, int *began,
		struct penstock_error *err);
	void *decide_cookie;
	void *cookie; /* for `waiting` and `lost` */
	bool completes; /* `penstock flush`: completes the last attempt instead of starting one */
	/* last attempt of this home that owned the run; needed if `completes` */
	int held;
};

/* State before the lease was taken. */
struct lease_found {
	bool any;
	bool unfinished; /* the run was preempted or lost, or its owner is gone */
	/* the last attempt was one of this home: the home's records count, not the state object */
	bool ours;
	/* lease_take() failed because the attempt below is or may be live, or has ended
	 * meanwhile */
	bool refused;
	int attempt; /* the last attempt; 0 if missing or unknown */
	int began; /* attempt at which the run last started from scratch; 0 if unknown */
	char state[16]; /* state of the last attempt */
	char host[65]; /* machine of the last attempt */
	/* another home of this machine, under which the owner was killed; "" if there is none */
	char home[4096];
};

/* Takes the run and its output. Returns -PENSTOCK_E_EXISTS if another owner has or may have the run
 * or its output, or has ended the run meanwhile, or, with `completes`, if the output elsewhere is
 * newer. The error names the other owner if known. All strings but `home_id` are borrowed until the
 * release. */
int lease_take(struct lease **out, const struct lease_options *options, struct lease_found *found,
	struct penstock_error *err);
/* Makes the lease's thread write the state; the thread retries after a failure. Commands on this
 * machine read the state from the records instead. `state` is a string literal; `lease` may be
 * NULL. */
void lease_set(struct lease *lease, const char *state);
/* Sets the number of finished top-level steps, which the next write of the state includes. `lease`
 * may be NULL. */
void lease_set_steps(struct lease *lease, size_t done);
struct records_sync;
/* Sets the progress of the sync, which the next write of the state includes. `lease` may be
 * NULL. */
void lease_set_sync(struct lease *lease, const struct records_sync *sync);
/* Returns the number of the attempt, counted over all machines. */
int lease_attempt(const struct lease *lease);
/* Returns the gate for all requests that change something in the output, except the lease's own.
 * The gate refuses these requests while the ownership is in doubt. */
const struct http_gate *lease_gate(const struct lease *lease);
/*
 * Calls `fn` once the ownership is confirmed, and again if the gate refused a request of `fn`,
 * because the process was suspended or the store was unavailable. Returns the result of `fn`,
 * -PENSTOCK_E_EXISTS if the ownership is lost, or -PENSTOCK_E_CANCELLED if *cancel was set
 * meanwhile.
 */
int lease_perform(struct lease *lease, const atomic_int *cancel,
	int (*fn)(void *cookie, struct penstock_error *err), void *cookie,
	struct penstock_error *err);
/* Returns true if the ownership is lost; false if `lease` is NULL. */
bool lease_is_lost(struct lease *lease);
/* Describes the owner of a lost lease: "run 'ID' is now attempt 3 on HOST (process 12, …)". */
const char *lease_owner_now(const struct lease *lease);
/* Fills in the attempt that took over the run, and its host and state. Returns false if the run is
 * still this owner's, or if the new owner is unknown. */
bool lease_moved_to(struct lease *lease, struct lease_found *found);
/* Strings are borrowed, and may be NULL except `state`. */
struct lease_end {
	const char *state, *class, *message;
	/* the real end of the attempt, if `state` is "lost" so that other machines may continue */
	const char *ended_as;
	int exit_code;
};
/* Writes the end and frees the lease, which may be NULL. Returns -PENSTOCK_E_PRECONDITION if the
 * lease was lost. */
int lease_release(struct lease *lease, const struct lease_end *end, struct penstock_error *err);

#endif
