/*
 * Checkpoints that are there whole or not at all: saving and finding them, for programs of one process or of many.
 *
 *	struct penstock_checkpoint_options o = PENSTOCK_CHECKPOINT_OPTIONS_INIT;
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *	struct penstock_checkpoint *c = NULL;
 *
 *	o.rank = rank, o.world_size = world_size;
 *	if (penstock_checkpoint_begin(&c, getenv("PENSTOCK_CHECKPOINT_DIR"), step, &o, &err) < 0 ||
 *		penstock_checkpoint_write(c, "model.bin", model, size, &err) < 0 ||
 *		penstock_checkpoint_commit(c, &err) < 0) {
 *		fprintf(stderr, "%s\n", err.message);
 *		penstock_error_release(&err);
 *	}
 *	penstock_checkpoint_free(c);
 *
 * A checkpoint is a directory of the directory that is given, named by step and attempt. Its files are written there
 * (by these functions, or by the program below penstock_checkpoint_path()). It counts from the moment on when it has
 * its COMMIT.json, which names every file with size and CRC-64/NVME and is written last, when all of them are on the
 * disk. A program that dies at any moment leaves a checkpoint that counts and is whole, or one that does not count;
 * what does not count is removed by the next save. docs/checkpoints.md has the format.
 *
 * Many ranks. Each rank begins the same step in the same directory (of a file system that all of them see) with its
 * own `rank`, writes files of its own names, and commits. Rank 0 waits for all others, then writes COMMIT.json; the
 * others return from their commit when it is there. Whoever waits longer than `timeout_s` fails with
 * PENSTOCK_E_TIMEOUT, which names who is missing, and the checkpoint does not count.
 *
 * Threads. A handle is for one thread at a time (a thread of its own may save while the training goes on); different
 * handles are independent. Calls block until their end. After fork() a handle is of use in the parent only; the child may
 * free its own, which changes nothing on the disk.
 *
 * Ownership, results, units and compatibility are as in <penstock/transfer.h>: what goes in is not kept beyond the
 * call; 0 or a negative code and a message of one line; bytes, and nanoseconds since 1970.
 */
#ifndef PENSTOCK_CHECKPOINT_H
#define PENSTOCK_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- saving ---- */

struct penstock_checkpoint; /* one that is being saved */

struct penstock_metric {
	const char *name; /* UTF-8 */
	double value;	  /* finite */
};

struct penstock_checkpoint_options {
	size_t struct_size;
	unsigned rank;	     /* of this process: 0 to world_size - 1 */
	unsigned world_size; /* 0: 1 */
	unsigned attempt;    /* 0: $PENSTOCK_ATTEMPT, else 1; the same for all ranks */
	const char *run_id;  /* NULL: $PENSTOCK_RUN_ID, else "" */
	const struct penstock_metric *metrics; /* those of rank 0 count */
	size_t n_metrics;
	double timeout_s; /* how long a commit waits for other ranks; 0: 600 */
	/* Looked at while a commit waits; once it is not 0 the call ends with PENSTOCK_E_CANCELLED. NULL: none. */
	const volatile int *cancel;
};
/* clang-format off */
#define PENSTOCK_CHECKPOINT_OPTIONS_INIT { sizeof(struct penstock_checkpoint_options), \
	0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/*
 * Begins the checkpoint of `step` in `dir`, which is made if need be, and removes what earlier attempts left there
 * without a commit. `options` may be NULL. PENSTOCK_E_EXISTS: this step of this attempt is committed already.
 */
PENSTOCK_API int penstock_checkpoint_begin(struct penstock_checkpoint **out, const char *dir,
	uint64_t step, const struct penstock_checkpoint_options *options,
	struct penstock_error *err);

/* The directory of the checkpoint, where the program may write files itself; the handle's, until it is freed. */
PENSTOCK_API const char *penstock_checkpoint_path(const struct penstock_checkpoint *checkpoint);

/*
 * Appends to the file `name` ("model.bin", "optimizer/0.bin": relative, without ".." and hidden names), which the first
 * call makes. The checksum is made on the way, so nothing is read again.
 */
PENSTOCK_API int penstock_checkpoint_write(struct penstock_checkpoint *checkpoint, const char *name,
	const void *data, size_t size, struct penstock_error *err);

/*
 * Counts in a file that the program has written and closed below penstock_checkpoint_path(): it is read for its
 * checksum and put on the disk. With one rank, files that were never named are found by the commit.
 */
PENSTOCK_API int penstock_checkpoint_add(
	struct penstock_checkpoint *checkpoint, const char *name, struct penstock_error *err);

/* Before the commit, by rank 0; one of the same name is replaced. */
PENSTOCK_API int penstock_checkpoint_metric(struct penstock_checkpoint *checkpoint,
	const char *name, double value, struct penstock_error *err);

/*
 * Puts everything on the disk and makes it count. After a failure the checkpoint does not count, and the handle is
 * good for nothing but penstock_checkpoint_free(). Only after PENSTOCK_E_TIMEOUT and PENSTOCK_E_CANCELLED of a rank
 * other than 0 it may be committed by rank 0 after all.
 */
PENSTOCK_API int penstock_checkpoint_commit(
	struct penstock_checkpoint *checkpoint, struct penstock_error *err);

/* Frees it; what was not committed is removed (of many ranks, the files of this one). NULL is fine. */
PENSTOCK_API void penstock_checkpoint_free(struct penstock_checkpoint *checkpoint);

/* ---- finding and reading ---- */

struct penstock_commit; /* a checkpoint that counts, as its COMMIT.json describes it */

/*
 * The newest checkpoint of `dir` that verifies, every byte of it read: by attempt, then by step. Those that were passed
 * over as damaged are told to `passed` (may be NULL), newest first; `path` and `why` are valid during the call.
 * PENSTOCK_E_NOT_FOUND: there is none.
 */
PENSTOCK_API int penstock_checkpoint_latest(struct penstock_commit **out, const char *dir,
	void (*passed)(void *cookie, const char *path, const char *why), void *cookie,
	struct penstock_error *err);

/*
 * All checkpoints of `dir` that have a commit, newest first, without reading their data. One whose commit cannot be
 * read comes with `commit` NULL and `why`. `each` returns 0 to go on, 1 to end the list without an error. A directory
 * that is not there has none.
 */
PENSTOCK_API int penstock_checkpoint_list(const char *dir,
	int (*each)(void *cookie, const char *path, const struct penstock_commit *commit,
		const char *why),
	void *cookie, struct penstock_error *err);

/*
 * Reads the commit of the checkpoint `path`, which is its directory, or a file that has a "FILE.COMMIT.json" beside it.
 * PENSTOCK_E_NOT_FOUND: there is no commit. PENSTOCK_E_CORRUPT: it is cut or damaged. The data is not looked at.
 */
PENSTOCK_API int penstock_checkpoint_open(
	struct penstock_commit **out, const char *path, struct penstock_error *err);

/* Whether all its files are there with their sizes, and, `whole`, with their checksums. PENSTOCK_E_CORRUPT: no. */
PENSTOCK_API int penstock_commit_verify(
	const struct penstock_commit *commit, bool whole, struct penstock_error *err);

/* NULL is fine. */
PENSTOCK_API void penstock_commit_free(struct penstock_commit *commit);

/* Strings are the commit's. */
PENSTOCK_API const char *penstock_commit_path(const struct penstock_commit *commit);
PENSTOCK_API uint64_t penstock_commit_step(const struct penstock_commit *commit);
PENSTOCK_API unsigned penstock_commit_attempt(const struct penstock_commit *commit);
PENSTOCK_API const char *penstock_commit_run_id(const struct penstock_commit *commit);
PENSTOCK_API int64_t penstock_commit_time_ns(const struct penstock_commit *commit);
PENSTOCK_API unsigned penstock_commit_world_size(const struct penstock_commit *commit);
PENSTOCK_API uint64_t penstock_commit_size(const struct penstock_commit *commit); /* of all files */

PENSTOCK_API size_t penstock_commit_n_metrics(const struct penstock_commit *commit);
/* `i` below their number. */
PENSTOCK_API void penstock_commit_metric_at(
	const struct penstock_commit *commit, size_t i, struct penstock_metric *metric);
/* False: it has none of this name. */
PENSTOCK_API bool penstock_commit_metric(
	const struct penstock_commit *commit, const char *name, double *value);

struct penstock_commit_file {
	size_t struct_size;
	const char *name; /* below the checkpoint's directory; of a single file its own name */
	uint64_t size;
	uint64_t crc64nvme;
};
/* clang-format off */
#define PENSTOCK_COMMIT_FILE_INIT { sizeof(struct penstock_commit_file), 0, 0, 0 }
/* clang-format on */
PENSTOCK_API size_t penstock_commit_n_files(const struct penstock_commit *commit);
/* `i` below their number; in the byte order of the names. */
PENSTOCK_API int penstock_commit_file_at(const struct penstock_commit *commit, size_t i,
	struct penstock_commit_file *file, struct penstock_error *err);

#ifdef __cplusplus
}
#endif

#endif
