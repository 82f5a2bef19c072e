/*
 * Finds runs of any machine by the states that the runs keep next to their outputs in a store:
 *
 *	r = places_each(cli, add_run, &listing, err);	// the operands of the verb are places
 *	r = places_find(cli, 1, id, show, &shown, err);	// operand 1 is the output of a run
 *
 * A place is an output, or a prefix whose directories are outputs.
 */
#ifndef CLI_HISTORY_PLACES_H
#define CLI_HISTORY_PLACES_H

#include <jansson.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

struct buf;
struct cli;
struct penstock_error;
struct records_attempt;
struct records_run;

/*
 * Reads the state object of a run. If its owner has not renewed a live state for a term
 * (run/owner/lease.h), the state becomes "lost"; only times of the store's clock are compared.
 * `*heard_ns` is the time of the last renewal by this machine's clock; 0 if unknown. The caller
 * releases `*state`. Fails with PENSTOCK_E_NOT_FOUND if there is no such object, and with
 * PENSTOCK_E_CORRUPT if the object is not a state.
 */
int places_state(struct object_ref at, const atomic_int *cancel, json_t **state, int64_t *heard_ns,
	struct penstock_error *err);

/* A run as its state describes it. All members are borrowed. */
struct place_run {
	/* has the id, the name, the output (a place) and the last attempt; the workflow is NULL */
	const struct records_run *run;
	const char *host; /* machine of the last attempt; "" if unknown */
	/* All attempts that are known, the oldest first; the last one is that of `run`. The
	 * attempts have the members that json_add_state() prints, and a provenance with `host` and
	 * `price`. */
	const struct records_attempt *attempts;
	size_t n;
	/* the workflow of the run as it was run, for places_find(); NULL if it is missing, and for
	 * places_each() */
	const struct buf *workflow;
};
typedef int (*places_fn)(void *cookie, const struct place_run *found);

/* Passes the runs of each operand to `fn`, the newest run first. Reports and skips invalid
 * states. */
int places_each(const struct cli *cli, places_fn fn, void *cookie, struct penstock_error *err);
/* Passes the run whose output is operand `i` and whose whole id is `id` to `fn`. Fails with
 * PENSTOCK_E_NOT_FOUND if the run has no state in that place. */
int places_find(const struct cli *cli, size_t i, const char *id, places_fn fn, void *cookie,
	struct penstock_error *err);

#endif
