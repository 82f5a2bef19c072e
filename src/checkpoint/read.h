/* Finding checkpoints in a directory, and holding them against their commits. */
#ifndef CHECKPOINT_READ_H
#define CHECKPOINT_READ_H

#include <stdatomic.h>

#include "checkpoint/commit.h"

/*
 * Of the checkpoint `path`: a directory, or a file with its commit beside it. PENSTOCK_E_NOT_FOUND: it has none;
 * PENSTOCK_E_CORRUPT: it cannot be read.
 */
int commit_open(struct commit **out, const char *path, struct penstock_error *err);

/* Whether a commit that was found at the checkpoint `name` is one of it; `single`: beside a file. PENSTOCK_E_CORRUPT: no. */
int commit_check_place(
	const struct commit *c, const char *name, bool single, struct penstock_error *err);

/*
 * Whether all files are there with their sizes and, `whole`, their checksums; no link is followed. PENSTOCK_E_CORRUPT:
 * no. `cancel` (may be NULL) is looked at now and then.
 */
int commit_verify(
	const struct commit *c, bool whole, const volatile int *cancel, struct penstock_error *err);

/* The checksum of what `fd` has from its beginning, `size` bytes of it. PENSTOCK_E_CORRUPT: there are fewer. */
int commit_checksum(int fd, uint64_t size, const volatile int *cancel, uint64_t *crc,
	struct penstock_error *err);

struct commit_entry {
	char *path;
	struct commit *commit; /* NULL: it cannot be read */
	bool single;	       /* a file, with its commit beside it */
	char *why;	       /* then this is why */
	uint64_t step;	       /* of the commit, else as its name says */
	unsigned attempt;      /* UINT_MAX: nothing says so */
};
struct commit_list {
	struct commit_entry *items; /* newest first */
	size_t n;
};
/* All of `dir` that have a commit; one that is not there has none. */
int commit_list_read(struct commit_list *list, const char *dir, struct penstock_error *err);
/* Newest first. */
void commit_list_sort(struct commit_list *list);
void commit_list_release(struct commit_list *list);

/* Takes a name apart as save.h makes them. */
bool commit_name_parse(const char *name, uint64_t *step, unsigned *attempt);

typedef void (*commit_passed_fn)(void *cookie, const char *path, const char *why);
/* The newest that verifies; those before it are told to `passed` (may be NULL). PENSTOCK_E_NOT_FOUND: none. */
int commit_latest(struct commit **out, const char *dir, commit_passed_fn passed, void *cookie,
	const volatile int *cancel, struct penstock_error *err);

#endif
