/* Internals of a lease, for the files of src/run/owner alone. */
#ifndef RUN_OWNER_LEASE_INTERNAL_H
#define RUN_OWNER_LEASE_INTERNAL_H

#include <jansson.h>
#include <pthread.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/process/process.h"
#include "net/http/http.h"
#include "records/records.h"
#include "run/owner/lease.h"
#include "transfer/objects.h"

#define LEASE_FORMAT 1

struct lease {
	struct lease_options options;
	char home_id[64];
	char *key;
	char *output_key; /* object that names the run which owns the output */
	char host[65];
	char boot_id[PROCESS_BOOT_ID_SIZE];
	char pid_ns[32]; /* "pid:[4026531836]": each container of a machine has its own namespace */
	uint64_t start_ticks; /* start time of this process */
	char since[CLOCK_RFC3339_SIZE];
	int64_t term_ms;
	struct http_gate gate;
	atomic_ulong refusals;
	/* clock_boottime_ms() until which no other owner can have the run */
	atomic_llong held_until_ms;
	atomic_int steps_done; /* finished top-level steps */
	pthread_t thread;

	json_t *earlier; /* the attempts before this one, the oldest first; may be NULL */

	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct records_sync sync; /* under lock; `last_error` is NULL */
	bool has_sync; /* under lock */
	const char *state; /* under lock; a literal */
	bool dirty; /* under lock: `state` is not yet written */
	bool stopping; /* under lock */
	bool lost; /* under lock */
	bool output_lost; /* under lock: the run is still ours, its output is not */
	char owner[384]; /* text about the new owner; written once, before `lost` */
	int owner_attempt; /* written once, before `lost`; 0 if unknown */
	char owner_host[65], owner_state[16];

	/* Used by the thread, then by lease_release(). */
	char etag[OBJECT_ETAG_SIZE]; /* "" if the object must be created */
	char output_etag[OBJECT_ETAG_SIZE];
	int64_t doubted_ms; /* time at which another run was first seen taking the output; else 0 */
	int64_t sent_ms; /* start of the last successful write, as clock_boottime_ms() */
	int64_t beat;
	int began; /* attempt at which the run last started from scratch; 0 if unknown */
	struct lease_end end; /* the member `state` is not used */
};

/* Contents of a state object, or of owner.json. */
struct seen {
	char etag[OBJECT_ETAG_SIZE]; /* "" if there is no object */
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
	int steps_done;
	int64_t pid;
	int64_t start_ticks;
	int64_t term_ms;
	bool taking; /* in owner.json: the run may still give the output back */
};

/* ---- state.c ---- */

/* Reads a state object. Returns 0, with an empty ETag, if there is no object. Fails, with the ETag
 * set, if the format is unknown. The caller frees `seen->home`. */
int lease_load(struct lease *lease, const char *key, struct seen *seen, struct penstock_error *err);
/* Like lease_load(); `text` gets the contents of the object. */
int lease_load_text(struct lease *lease, const char *key, struct seen *seen, struct buf *text,
	struct penstock_error *err);
/* Keeps the earlier attempts that a state object lists, so that the states of this attempt list
 * them, too. An attempt without an end is listed as lost. Called once, after this attempt has its
 * number. */
int lease_keep_attempts(struct lease *lease, const struct buf *text, struct penstock_error *err);
/* Writes an object if its ETag is still `etag`, or if there is no object for an `etag` of "". Then
 * sets `etag` to the new one. */
int lease_put(struct lease *lease, const char *key, char etag[static OBJECT_ETAG_SIZE],
	const char *text, size_t len, struct penstock_error *err);
/* Writes the run's state object if its ETag is still `lease->etag`. */
int lease_write_text(struct lease *lease, const char *text, size_t len, struct penstock_error *err);
/* Like lease_write_text(), with this owner and `state`. Writes once more if the store refuses
 * because the reply to an earlier write was lost, or because the object was deleted. */
int lease_write_state(struct lease *lease, const char *state, struct penstock_error *err);
/* Returns 1 if this process wrote the state object, or if the object was deleted; 0 if another
 * owner wrote the object, which `seen` describes; a negative code if the object cannot be read. */
int lease_still_ours(struct lease *lease, struct seen *seen, struct penstock_error *err);
/* Opens the gate after a write, once the output is known to be this run's. The gate stays open
 * until five sixths of a term after the write was sent. A contender waits for a whole term after it
 * has seen the write, which is never before the write was sent. */
void lease_hold(struct lease *lease);
/* Returns true if `state` is live. Unknown states count as live. */
bool lease_state_is_live(const char *state);

/* ---- output.c: contenders ---- */

/* Returns true if the owner's process would be visible here: same machine, same container. */
bool lease_owner_is_here(const struct lease *lease, const struct seen *seen);
/* Returns true if the owner's process runs. Call it only if lease_owner_is_here(). */
bool lease_owner_runs(const struct seen *seen);
/* Fails unless the store honours the conditions that a takeover from another machine needs. `run`
 * is the id of the run that `seen` describes. */
int lease_can_take_over(
	struct lease *lease, const char *run, const struct seen *seen, struct penstock_error *err);
/* Watches the object for a term of its owner; `last` gets the last contents that were read. Returns
 * 1 if the owner is live; 0 if the object did not change or was deleted, or if the run has ended; a
 * negative code on failure. */
int lease_watch_term(struct lease *lease, const char *key, struct seen *seen, struct buf *last,
	struct penstock_error *err);

/* ---- output.c: the owner of the output ---- */

/* Takes the output for this run. Returns -PENSTOCK_E_EXISTS if another run writes or may write to
 * the output; the message names that run if known. */
int lease_take_output(struct lease *lease, struct penstock_error *err);
enum lease_output { LEASE_OUTPUT_OURS, LEASE_OUTPUT_LOST, LEASE_OUTPUT_UNKNOWN };
/* Checks that the output is still this run's. Returns LEASE_OUTPUT_UNKNOWN if the store does not
 * reply, or while another run decides if it takes the output. After a term without a decision,
 * takes the output back. The caller frees `owner->home`. */
enum lease_output lease_check_output(struct lease *lease, struct seen *owner);

/* ---- take.c ---- */

/* Takes the run's state object and its output. If another owner has one of them, the error names
 * that owner. */
int lease_take_state(struct lease *lease, struct lease_found *found, struct penstock_error *err);
/* Replaces the live state of this attempt, which has done nothing yet, with the state that was
 * found. */
void lease_give_back(struct lease *lease, const struct lease_found *found);

#endif
