/*
 * Saves a checkpoint, by one process or by several ranks; <penstock/checkpoint.h> shows its use.
 *
 * A checkpoint in progress is the directory DIR/step-STEP-ATTEMPT without a COMMIT.json. All files
 * and directories are synced before COMMIT.json gets its name. Ranks communicate by files in that
 * directory whose names start with COMMIT_HIDDEN:
 *
 *	.penstock-save		a random word of rank 0, written when it starts
 *	.penstock-rank-R.json  the part of rank R: a list of its files, as a commit with that word
 *			       as its run
 *
 * A rank writes its part with the word that it finds, and again when the word changes, so that a
 * leftover of a killed save of the same step is never taken for a part of a new save. A rank that
 * gives up writes a part with a metric for this purpose, and with the word, or "" if rank 0 has not
 * started. A part with the word "" may also be a leftover of a killed save. The rank removes such a
 * leftover when it starts again, so rank 0 accepts the part only after some seconds. Rank 0 removes
 * these files once COMMIT.json exists.
 */
#ifndef CHECKPOINT_SAVE_H
#define CHECKPOINT_SAVE_H

#include "checkpoint/commit.h"

struct save;

struct save_options {
	unsigned rank, world_size, attempt;
	const char *run_id;
	int64_t timeout_ms;
	const volatile int *cancel; /* may be NULL */
};

int save_begin(struct save **out, const char *dir, uint64_t step,
	const struct save_options *options, struct penstock_error *err);
const char *save_path(const struct save *s);
int save_write(struct save *s, const char *name, const void *data, size_t size,
	struct penstock_error *err);
int save_add(struct save *s, const char *name, struct penstock_error *err);
int save_metric(struct save *s, const char *name, double value, struct penstock_error *err);
int save_commit(struct save *s, struct penstock_error *err);
/* Removes an uncommitted checkpoint and frees `s`, which may be NULL. A rank other than 0 removes
 * only its own files, and no file if its part was written. */
void save_free(struct save *s);

/* Commits a file that a program has written: `DIR/NAME` gets `DIR/NAME.COMMIT.json`. Reads the file
 * for its checksum, and syncs it. Fails with PENSTOCK_E_CHANGED if the file changed meanwhile. */
int save_single(const char *dir, const char *name, uint64_t step,
	const struct save_options *options, struct penstock_error *err);

#endif
