/*
 * The finished part of the tree of steps, for an attempt that continues: a file of lines, in the
 * directory that is wiped when a run starts from scratch.
 *
 *	d PATH		the step, or the iteration of a parallel loop, is finished
 *	i PATH N	the iterations 0 to N of a sequential loop are finished
 *	b BOOT		the lines below are from this boot of the machine
 *	s		everything that the steps above wrote is on the disk
 *
 * PATH is made of the numbers of steps within their lists and of iterations, "2.i17.0". Lines are
 * not synced one by one: a step whose line is lost in a crash of the machine runs again. The files
 * that steps write are not synced either, because that may take seconds: after another boot nothing
 * counts as finished, unless an attempt synced these files at its end.
 */
#ifndef RUN_WALK_FINISHED_H
#define RUN_WALK_FINISHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct finished_steps;

/* Reads the entries if `continuing`, else starts without entries. `boot` is the ID of this
 * machine's boot; NULL or "" if the boot does not matter. */
int finished_open(struct finished_steps **out, const char *path, bool continuing, const char *boot,
	struct penstock_error *err);
/* Reads the entries for a program that only shows them: nothing is written, now or later. A file
 * that is missing, or whose entries do not count (finished_is_believed()), has no entries. */
int finished_read(struct finished_steps **out, const char *path, const char *boot,
	struct penstock_error *err);
/* Returns false if another boot left the file without a sync, or the file is missing: then no step
 * counts as finished. Returns true if the boot does not matter. */
bool finished_is_believed(const struct finished_steps *progress);
/* If a step finished, syncs the file system of `storage` and records the sync. May take seconds.
 * Call it at the end of an attempt. */
int finished_settle(const char *path, const char *storage, struct penstock_error *err);
void finished_free(struct finished_steps *progress);
/* Removes the entries of the top-level step number `first` and of all steps after it. */
int finished_cut(const char *path, size_t first, struct penstock_error *err);

bool finished_has(const struct finished_steps *progress, const char *path);
/* Returns the number of finished iterations of a sequential loop. */
uint64_t finished_iterations(const struct finished_steps *progress, const char *path);
/* Returns the number of finished iterations of a parallel loop. */
uint64_t finished_parallel(const struct finished_steps *progress, const char *path);

/* Return false if the line could not be written: an attempt that continues repeats the step. */
bool finished_done(struct finished_steps *progress, const char *path);
bool finished_iteration_done(struct finished_steps *progress, const char *path, uint64_t iteration);

#endif
