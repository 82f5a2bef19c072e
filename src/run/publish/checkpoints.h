/*
 * Checkpoints of a run: finds the checkpoint that an attempt continues from, commits the files of
 * programs that write no commits, and removes the checkpoints that the workflow does not keep.
 *
 *	run_checkpoints_begin(p, err);	// after the output is restored and the sync has started
 *	run_checkpoints_published(p, path);	// from any thread: an object was published
 *	run_checkpoints_stop(p);	// before the last flush: nothing more is started
 *	run_checkpoints_end(p);	// after the last flush; may take as long as the store does
 *	run_checkpoints_settle(p, true, err);
 *
 * A thread commits and removes while the steps run. If the output is sent only at the end,
 * run_checkpoints_settle() commits and removes instead. A removal takes three steps, so that no
 * checkpoint that looks whole ever lacks a part, here or in the store, even after a kill: the
 * commit is removed here, then its object, then all the rest. Each checkpoint to be removed is
 * first recorded in STATE/retired and in the store, and stays recorded until the store has no
 * object of the checkpoint: the next attempt removes the rest.
 */
#ifndef RUN_PUBLISH_CHECKPOINTS_H
#define RUN_PUBLISH_CHECKPOINTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct checkpoint_keeper;
struct penstock_error;
struct publisher;

struct run_checkpoints {
	/* owned; path below the output of the newest complete checkpoint; NULL if there is none */
	char *newest;
	/* Owned by the thread while it runs. */
	size_t removed; /* number of checkpoints removed in this attempt */
	bool said_link, said_name; /* each of the two warnings is given once */
	pthread_mutex_t lock;
	struct checkpoint_keeper *keeper; /* under lock; NULL if no thread runs */
};

void run_checkpoints_init(struct run_checkpoints *checkpoints);
void run_checkpoints_release(struct run_checkpoints *checkpoints);

/* Finds the newest whole checkpoint and reports those that it skips. Call it again if steps run
 * again in the same process. */
int run_checkpoints_find(struct publisher *p, struct penstock_error *err);
/* If the attempt continues, commits restored files and calls run_checkpoints_find(). Then starts
 * the thread if there is work for it. */
int run_checkpoints_begin(struct publisher *p, struct penstock_error *err);
void run_checkpoints_published(struct publisher *p, const char *path);
void run_checkpoints_stop(struct publisher *p);
/* Returns true if the thread may have changed files after the request to stop. */
bool run_checkpoints_end(struct publisher *p);
/* After all output was published, commits the files and removes the checkpoints that the thread has
 * left; also for `penstock flush`. If the attempt has not succeeded, checkpoints from before the
 * run started over stay. */
int run_checkpoints_settle(struct publisher *p, bool succeeded, struct penstock_error *err);
/* Reports the number of removed checkpoints. */
void run_checkpoints_report(const struct publisher *p);

#endif
