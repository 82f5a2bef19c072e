/*
 * Saving a checkpoint, by one process or by many ranks; see <penstock/checkpoint.h> for how it is used.
 *
 * One that is being saved is the directory DIR/step-STEP-ATTEMPT without a COMMIT.json. Everything is on the disk (files,
 * directories) before that gets its name. Many ranks meet by files in there whose names begin with COMMIT_HIDDEN:
 *
 *	.penstock-save		a random word of rank 0's, from its begin on
 *	.penstock-rank-R.json	what rank R has written, in the form of a commit, with that word as its run
 *
 * A rank says its list under the word that it finds, and says it again when the word has changed: so what a killed
 * save of the same step has left is never taken for the part of a new one. One that gives up says so under that word, or
 * under none where rank 0 has not begun; that may be of a killed save, so it counts when the rank itself, which removes it
 * at its begin, has left it there for some seconds. When COMMIT.json is there these files go.
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
/* What is not committed is removed. NULL is fine. */
void save_free(struct save *s);

/*
 * The commit of a file that some program has written: `DIR/NAME` gets `DIR/NAME.COMMIT.json`. The file is read for its
 * checksum and synced. PENSTOCK_E_CHANGED: it changed meanwhile.
 */
int save_single(const char *dir, const char *name, uint64_t step,
	const struct save_options *options, struct penstock_error *err);

#endif
