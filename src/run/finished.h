/*
 * What of the tree of steps is finished, for an attempt that goes on: a file of lines behind one another,
 * in the directory that is wiped when a run begins anew.
 *
 *	d PATH		the step, or the iteration of a parallel loop, is finished
 *	i PATH N	the iterations 0 to N of a loop that runs one after the other are finished
 *
 * PATH is made of the numbers of steps within their lists and of iterations, "2.i17.0". Lines are not synced one by
 * one: what a crash of the machine takes is done again.
 */
#ifndef RUN_FINISHED_H
#define RUN_FINISHED_H

#include <stdbool.h>
#include <stdint.h>

struct penstock_error;
struct finished_steps;

/* Reads what there is where `continuing`, else begins with nothing. */
int finished_open(
	struct finished_steps **out, const char *path, bool continuing, struct penstock_error *err);
void finished_free(struct finished_steps *progress);

bool finished_has(const struct finished_steps *progress, const char *path);
/* How many iterations of the loop are finished. */
uint64_t finished_iterations(const struct finished_steps *progress, const char *path);

/* False: it could not be written, and is done again by an attempt that goes on. */
bool finished_done(struct finished_steps *progress, const char *path);
bool finished_iteration_done(struct finished_steps *progress, const char *path, uint64_t iteration);

#endif
