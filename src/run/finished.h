/*
 * What of the tree of steps is finished, for an attempt that goes on: a file of lines behind one another,
 * in the directory that is wiped when a run begins anew.
 *
 *	d PATH		the step, or the iteration of a parallel loop, is finished
 *	i PATH N	the iterations 0 to N of a loop that runs one after the other are finished
 *	b BOOT		what follows was done in this boot of the machine
 *	s		all that these steps wrote is on the disk
 *
 * PATH is made of the numbers of steps within their lists and of iterations, "2.i17.0". Lines are not synced one by
 * one: what a crash of the machine takes is done again. Nor is what the steps write, which may take seconds: after another
 * boot nothing counts as finished, unless an attempt that ended in order had the time to bring it to the disk.
 */
#ifndef RUN_FINISHED_H
#define RUN_FINISHED_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct finished_steps;

/* Reads what there is where `continuing`, else begins with nothing. `boot`: of this machine; NULL or "": it does not matter. */
int finished_open(struct finished_steps **out, const char *path, bool continuing, const char *boot,
	struct penstock_error *err);
/* False: another boot has left it, or it is gone: no step is finished, whatever else says so. */
bool finished_is_believed(const struct finished_steps *progress);
/*
 * The attempt is over: brings what lies below the directory `storage` to the disk and notes it, if a step was finished. May
 * take seconds.
 */
int finished_settle(const char *path, const char *storage, struct penstock_error *err);
void finished_free(struct finished_steps *progress);

bool finished_has(const struct finished_steps *progress, const char *path);
/* How many iterations of the loop are finished. */
uint64_t finished_iterations(const struct finished_steps *progress, const char *path);

/* False: it could not be written, and is done again by an attempt that goes on. */
bool finished_done(struct finished_steps *progress, const char *path);
bool finished_iteration_done(struct finished_steps *progress, const char *path, uint64_t iteration);

#endif
