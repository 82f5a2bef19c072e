/*
 * Finds and removes old copies, caches and logs, on this machine and in the stores of its runs.
 * Only the files of src/cli/prune include this header.
 *
 *	struct pruning p = {.before_ns = now - 30 * DAY};
 *
 *	prune_images(&p, err);	// reports old images, and removes them unless `dry_run`
 *	... p.removed.bytes, p.in_use.bytes
 */
#ifndef CLI_PRUNE_PRUNE_H
#define CLI_PRUNE_PRUNE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/print/util.h"
#include "records/records.h"
#include "sync/replaced.h"
#include "transfer/objects.h"

struct cli;
struct penstock_error;

struct prune_sum {
	uint64_t n, bytes;
};

struct pruning {
	const struct cli *cli;
	const char *home; /* borrowed, like `records` */
	struct records *records;
	bool dry_run;
	bool force; /* remove things that may be the only copy, too */
	bool has_age; /* --older-than was given */
	int64_t before_ns; /* things on this machine that were used later stay */
	int64_t keep; /* copies of each replaced object; -1 if the workflow decides */
	struct grid grid;
	json_t *items; /* NULL unless --json */
	struct prune_sum removed, in_use, only_copy, failed;
	size_t failures;
};

/* A thing that may be removed. */
struct prune_item {
	const char *kind, *what; /* "venvs", a path or URL */
	const char *run; /* id; NULL if the thing belongs to no run */
	uint64_t n; /* number of parts, such as copies, which the sums count; 0 counts as 1 */
	uint64_t bytes;
	int64_t used_ns;
	bool in_use; /* by a live run, deployment or transfer */
	bool only_copy; /* the only copy of something that a user or a step made */

	size_t index, cell; /* place in the report; set by prune_takes() */
};

/* ---- report.c ---- */

/* Reports that the item stays, or that it is to be removed. Returns true if the caller has to
 * remove the item now. */
bool prune_takes(struct pruning *p, struct prune_item *item);
/* Corrects the report of an item that was to be removed: `n` parts stay, because they are "in use"
 * or the removal "failed". */
void prune_stays(struct pruning *p, const struct prune_item *item, const char *why, uint64_t n,
	uint64_t bytes);
/* Reports that a thing could not be removed; the removal of other things continues. Releases the
 * error. `item` is the reported item, or NULL if the report has no item for this failure. */
void prune_failed(struct pruning *p, const struct prune_item *item, struct penstock_error *err);

/* Prints everything that was reported; returns the exit code. */
int prune_print(struct pruning *p);

/* ---- local.c ---- */

int prune_output(struct pruning *p, struct penstock_error *err);
int prune_logs(struct pruning *p, struct penstock_error *err);
int prune_venvs(struct pruning *p, struct penstock_error *err);
int prune_images(struct pruning *p, struct penstock_error *err);
int prune_modules(struct pruning *p, struct penstock_error *err);
int prune_models(struct pruning *p, struct penstock_error *err);
int prune_transfers(struct pruning *p, struct penstock_error *err);

/* ---- copies.c ---- */

/* Prunes the copies of all runs of this home that have made copies. */
int prune_replaced(struct pruning *p, struct penstock_error *err);
/* Prunes the copies of one run. */
int prune_replaced_of(struct pruning *p, const char *id, struct penstock_error *err);

/* The place of a run's copies. */
struct copies_place {
	struct object_client *client; /* borrowed */
	const char *bucket;
	const char *prefix; /* prefix of the output: "" or "a/b/" */
	const char *scheme; /* "s3" or "gs" */
	char id[RECORDS_ID_SIZE];
};
/* Prunes the copies of all runs that wrote to the output at `place`. */
int prune_replaced_at(
	struct pruning *p, const struct copies_place *place, struct penstock_error *err);

/* Returns the prefix of the state of the run, with a slash at the end; free() it. */
char *copies_state(const struct copies_place *place);
/* Returns 1 if the run is live in a home other than `home_id` (in any home if NULL) according to
 * its state in the store, else 0. Returns a negative code if the state cannot be read. */
int copies_live(const struct copies_place *place, const char *home_id, struct penstock_error *err);
/* Adds the ids of the runs that wrote to an output; the prefix ends with a slash or is empty. */
int copies_runs(struct strlist *ids, const struct copies_place *place, struct penstock_error *err);
/* Records in the journal of the run, whose lock is held, that these copies are gone. */
int copies_forget(const char *home, const char *id, const struct replaced_list *list,
	struct penstock_error *err);

#endif
