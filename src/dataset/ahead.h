/*
 * Reads batches in background threads into memory of the caller.
 *
 *	struct ahead *ahead = NULL;
 *	struct ahead_job *next = NULL;
 *
 *	r = ahead_new(&ahead, set, 4, err);
 *	if (r == 0)
 *		r = ahead_start(ahead, ids, 256, memory, &next, err);
 *	...
 *	r = ahead_wait(next, err);	// the batch is in memory; the job is freed
 *	ahead_free(ahead);
 *
 * Jobs begin in the order of the calls of ahead_start(). Each job starts a thread until all threads
 * run. A child after fork() starts its own threads; ahead_wait() for a job of the parent fails with
 * PENSTOCK_E_INVALID.
 */
#ifndef DATASET_AHEAD_H
#define DATASET_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ahead;
struct ahead_job;
struct dataset;
struct penstock_error;

/* The data set is borrowed, and must be freed after `ahead`. `threads` is 1 to
 * LIMIT_DATASET_THREADS, or 0 for the number of processors, from 2 to 8. */
int ahead_new(
	struct ahead **out, struct dataset *set, unsigned threads, struct penstock_error *err);
/* Cancels and frees the remaining jobs. The caller may then use or free their `data`. */
void ahead_free(struct ahead *ahead);
/* Starts to read the samples `ids` in the background. `ids` is copied. `data` is as in
 * dataset_read(), and is borrowed until ahead_wait() or ahead_drop(). */
int ahead_start(struct ahead *ahead, const uint64_t *ids, size_t n, void *data,
	struct ahead_job **out, struct penstock_error *err);
/* Waits at most `ms` for the end of the job. Returns true if the job has ended, or is a job of the
 * parent. Frees nothing. */
bool ahead_ended(struct ahead_job *job, int ms);
/* Waits for the end of the job, frees the job and returns its result. Returns -PENSTOCK_E_INVALID
 * for a job of the parent, and does not free it. */
int ahead_wait(struct ahead_job *job, struct penstock_error *err);
/* Cancels the job, waits for its end and frees the job. Does nothing for NULL or a job of the
 * parent. */
void ahead_drop(struct ahead_job *job);

#endif
