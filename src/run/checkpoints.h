/*
 * The checkpoints of a run: which one an attempt goes on from, the commits of files of programs that know of none, and
 * which of them stay.
 *
 *	run_checkpoints_begin(run, err);	when the output is restored and the sync has begun
 *	run_checkpoints_published(run, path);	from any thread: something was published
 *	run_checkpoints_stop(run);		before the last flush: nothing more is begun
 *	run_checkpoints_end(run);		after it, for what it is at may take as long as the store does
 *	run_checkpoints_settle(run);
 *
 * A thread commits and removes while the steps run; where the output is sent at the end only, all of it is done then.
 * Removing takes three steps, so that nothing that looks whole is without a part of it, here or in the store, wherever
 * a kill comes: the commit goes here, then its object, then all else. What is to go stands in STATE/retired before.
 */
#ifndef RUN_CHECKPOINTS_H
#define RUN_CHECKPOINTS_H

#include <stdbool.h>

struct penstock_error;
struct run;

/*
 * Finds the newest checkpoint that is whole, says which were passed over, and starts what keeps them. To be called again
 * where steps are run again in the same process.
 */
int run_checkpoints_find(struct run *run, struct penstock_error *err);
int run_checkpoints_begin(struct run *run, struct penstock_error *err);
void run_checkpoints_published(struct run *run, const char *path);
void run_checkpoints_stop(struct run *run);
/* True: it has still changed something since it was told to stop. */
bool run_checkpoints_end(struct run *run);
/* Commits and removes what is left, when all is published; also for `penstock flush`. */
int run_checkpoints_settle(struct run *run, struct penstock_error *err);

#endif
