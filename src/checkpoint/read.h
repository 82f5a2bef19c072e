/* Finds checkpoints in a directory, and verifies them against their commits. */
#ifndef CHECKPOINT_READ_H
#define CHECKPOINT_READ_H

#include "checkpoint/commit.h"

/* Reads the commit of checkpoint `path`: a directory, or a file with its commit next to it.
 * Fails with PENSTOCK_E_NOT_FOUND if there is no commit, with PENSTOCK_E_CORRUPT if the commit is
 * invalid, and otherwise like commit_parse(). */
int commit_open(struct commit **out, const char *path, struct penstock_error *err);

/* Verifies that the commit of checkpoint `name` names at least one file and, if `single`, only the
 * file `name`. `single` is true if the commit is next to a file. Fails with PENSTOCK_E_CORRUPT if
 * not. */
int commit_check_place(
	const struct commit *c, const char *name, bool single, struct penstock_error *err);

/* Verifies that all files have the sizes and, if `whole`, the checksums in the commit; does not
 * follow links. Fails with PENSTOCK_E_CORRUPT if not. Polls `cancel`, which may be NULL. */
int commit_verify(
	const struct commit *c, bool whole, const volatile int *cancel, struct penstock_error *err);

/* Computes the checksum of the first `size` bytes of `fd`. Fails with PENSTOCK_E_CORRUPT if the
 * file is shorter. */
int commit_checksum(int fd, uint64_t size, const volatile int *cancel, uint64_t *crc,
	struct penstock_error *err);

struct commit_entry {
	char *path;
	struct commit *commit; /* NULL if the commit is invalid or cannot be read */
	bool single; /* a file, with its commit next to it */
	bool elsewhere; /* not in the directory: the caller has added the entry to the list */
	char *why; /* reason why `commit` is NULL; NULL if `commit` is valid */
	uint64_t step; /* from the commit, or from the name if `commit` is NULL */
	unsigned attempt; /* UINT_MAX if unknown */
};
struct commit_list {
	struct commit_entry *items; /* newest first */
	size_t n;
};
/* Lists everything in `dir` that has a commit, even an invalid commit. If `dir` is missing, the
 * list is empty. */
int commit_list_read(struct commit_list *list, const char *dir, struct penstock_error *err);
/* Sorts the list, the newest checkpoint first. */
void commit_list_sort(struct commit_list *list);
void commit_list_release(struct commit_list *list);

/* Parses "step-STEP-ATTEMPT", the name of a checkpoint directory (save.h). */
bool commit_name_parse(const char *name, uint64_t *step, unsigned *attempt);

typedef void (*commit_passed_fn)(void *cookie, const char *path, const char *why);
/* Returns the newest valid checkpoint; reports newer invalid checkpoints to `passed`, which may be
 * NULL. Fails with PENSTOCK_E_NOT_FOUND if no checkpoint is valid. */
int commit_latest(struct commit **out, const char *dir, commit_passed_fn passed, void *cookie,
	const volatile int *cancel, struct penstock_error *err);

#endif
