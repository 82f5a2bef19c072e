/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that are complete or absent: saving and finding them, for programs of one process or
 * of several.
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
 * A checkpoint is a subdirectory of the given directory, named by step and attempt. The files of
 * the checkpoint are written to that subdirectory, by these functions or by the program itself
 * (penstock_checkpoint_path()). The checkpoint is valid once it has its COMMIT.json, which lists
 * every file with size and CRC-64/NVME, and which is written last, when all files are synced. A
 * program that dies at any moment leaves either a valid and complete checkpoint, or a checkpoint
 * without COMMIT.json, which the first save of a later attempt removes. docs/checkpoints.md has the
 * format.
 *
 * Ranks. Each rank begins the same step in the same directory (of a shared file system) with its
 * own `rank`, writes files under names of its own, and commits. Rank 0 waits for all others, then
 * writes COMMIT.json; the others return from their commit once it exists. A rank that waits longer
 * than `timeout_s` fails with PENSTOCK_E_TIMEOUT, and the checkpoint is not valid. The message of
 * rank 0 names the missing ranks.
 *
 * Threads. A handle is for one thread at a time (a separate thread may save while the training
 * continues); different handles are independent. Calls block until their end. After fork() only the
 * parent can use a handle; the child may free its copy, which changes nothing on disk.
 *
 * Ownership, results, units and compatibility are as in <penstock/transfer.h>. Arguments are not
 * kept beyond the call. A function that can fail returns 0, or a negative code and a message of one
 * line. Sizes are bytes, times are nanoseconds since 1970.
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

struct penstock_checkpoint; /* a checkpoint in progress */

struct penstock_metric {
	const char *name; /* UTF-8 */
	double value; /* finite */
};

struct penstock_checkpoint_options {
	size_t struct_size;
	unsigned rank; /* number of this process: 0 to world_size - 1 */
	unsigned world_size; /* number of processes; 0 means 1 */
	/* the same for all ranks; 0 to use $PENSTOCK_ATTEMPT, or 1 if the variable is not set */
	unsigned attempt;
	/* NULL to use $PENSTOCK_RUN_ID, or "" if the variable is not set */
	const char *run_id;
	const struct penstock_metric *metrics; /* used only for rank 0 */
	size_t n_metrics;
	double timeout_s; /* seconds that a commit waits for other ranks; 0 means 600 */
	/* Polled while a commit waits; a non-zero value ends the call with PENSTOCK_E_CANCELLED.
	 * May be NULL. */
	const volatile int *cancel;
};
/* clang-format off */
#define PENSTOCK_CHECKPOINT_OPTIONS_INIT { sizeof(struct penstock_checkpoint_options), \
	0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */

/*
 * Begins the checkpoint of `step` (at most INT64_MAX) in `dir`, which is created if missing. Rank 0
 * removes the checkpoints without a commit that earlier attempts left in `dir`; a single rank also
 * removes an uncommitted checkpoint of this step and attempt. `options` may be NULL. Fails with
 * PENSTOCK_E_EXISTS if this step of this attempt is already committed.
 */
PENSTOCK_API int penstock_checkpoint_begin(struct penstock_checkpoint **out, const char *dir,
	uint64_t step, const struct penstock_checkpoint_options *options,
	struct penstock_error *err);

/* Returns the directory of the checkpoint, where the program may write files itself; the handle
 * owns the string. */
PENSTOCK_API const char *penstock_checkpoint_path(const struct penstock_checkpoint *checkpoint);

/*
 * Appends to the file `name` ("model.bin", "optimizer/0.bin": relative, without "..", not
 * COMMIT.json, and without a component that starts with ".penstock-"), which the first call
 * creates. The checksum is computed during the write, so the file is not read again.
 */
PENSTOCK_API int penstock_checkpoint_write(struct penstock_checkpoint *checkpoint, const char *name,
	const void *data, size_t size, struct penstock_error *err);

/* Adds a file that the program has written and closed below penstock_checkpoint_path(): reads it
 * for its checksum and syncs it. With one rank, the commit includes all other files of the
 * directory, too. Fails with PENSTOCK_E_EXISTS if the file was already added, or written by
 * penstock_checkpoint_write(). */
PENSTOCK_API int penstock_checkpoint_add(
	struct penstock_checkpoint *checkpoint, const char *name, struct penstock_error *err);

/* Sets a metric of the checkpoint, or replaces the metric of that name. Fails with
 * PENSTOCK_E_INVALID if `value` is not finite. Call this function on rank 0, before the commit. */
PENSTOCK_API int penstock_checkpoint_metric(struct penstock_checkpoint *checkpoint,
	const char *name, double value, struct penstock_error *err);

/*
 * Syncs everything and makes the checkpoint valid. After a failure the handle can only be freed,
 * and the checkpoint is not valid, unless only the sync of COMMIT.json failed. If a rank other than
 * 0 fails with PENSTOCK_E_TIMEOUT or PENSTOCK_E_CANCELLED, rank 0 may still commit the checkpoint.
 */
PENSTOCK_API int penstock_checkpoint_commit(
	struct penstock_checkpoint *checkpoint, struct penstock_error *err);

/* Frees the handle. If the checkpoint is not committed, rank 0 removes all of it. Another rank
 * removes the files of its handle, unless its commit has waited for rank 0, which may still commit
 * the files. NULL is allowed. */
PENSTOCK_API void penstock_checkpoint_free(struct penstock_checkpoint *checkpoint);

/* ---- finding and reading ---- */

struct penstock_commit; /* a valid checkpoint, from its COMMIT.json */

/*
 * Finds the newest valid checkpoint of `dir` (the highest attempt, then the highest step) and
 * verifies all its bytes. Free `*out` with penstock_commit_free(). Damaged checkpoints that were
 * skipped are reported to `passed` (may be NULL), newest first; `path` and `why` are valid during
 * the call. Fails with PENSTOCK_E_NOT_FOUND if no checkpoint is valid.
 */
PENSTOCK_API int penstock_checkpoint_latest(struct penstock_commit **out, const char *dir,
	void (*passed)(void *cookie, const char *path, const char *why), void *cookie,
	struct penstock_error *err);

/*
 * Lists all checkpoints of `dir` that have a commit, newest first, without reading their data. An
 * invalid commit is reported with `commit` NULL and `why`. `path`, `commit` and `why` are valid
 * during the call. `each` returns 0 to continue, 1 to stop without an error. A missing directory is
 * empty.
 */
PENSTOCK_API int penstock_checkpoint_list(const char *dir,
	int (*each)(void *cookie, const char *path, const struct penstock_commit *commit,
		const char *why),
	void *cookie, struct penstock_error *err);

/*
 * Reads the commit of the checkpoint `path`, which is its directory, or a file that has a
 * "FILE.COMMIT.json" next to it. Fails with PENSTOCK_E_NOT_FOUND if there is no commit, and with
 * PENSTOCK_E_CORRUPT if the commit is truncated or damaged. The data is not read. Free `*out` with
 * penstock_commit_free().
 */
PENSTOCK_API int penstock_checkpoint_open(
	struct penstock_commit **out, const char *path, struct penstock_error *err);

/* Verifies that all files of the commit exist with their sizes and, if `whole` is true, their
 * checksums. Fails with PENSTOCK_E_CORRUPT if not. */
PENSTOCK_API int penstock_commit_verify(
	const struct penstock_commit *commit, bool whole, struct penstock_error *err);

/* NULL is allowed. */
PENSTOCK_API void penstock_commit_free(struct penstock_commit *commit);

/* Strings are owned by the commit. */
PENSTOCK_API const char *penstock_commit_path(const struct penstock_commit *commit);
PENSTOCK_API uint64_t penstock_commit_step(const struct penstock_commit *commit);
PENSTOCK_API unsigned penstock_commit_attempt(const struct penstock_commit *commit);
PENSTOCK_API const char *penstock_commit_run_id(const struct penstock_commit *commit);
PENSTOCK_API int64_t penstock_commit_time_ns(const struct penstock_commit *commit);
PENSTOCK_API unsigned penstock_commit_world_size(const struct penstock_commit *commit);
/* bytes of all files */
PENSTOCK_API uint64_t penstock_commit_size(const struct penstock_commit *commit);

PENSTOCK_API size_t penstock_commit_n_metrics(const struct penstock_commit *commit);
/* `i` must be less than penstock_commit_n_metrics(). */
PENSTOCK_API void penstock_commit_metric_at(
	const struct penstock_commit *commit, size_t i, struct penstock_metric *metric);
/* Returns false if there is no metric of this name. */
PENSTOCK_API bool penstock_commit_metric(
	const struct penstock_commit *commit, const char *name, double *value);

struct penstock_commit_file {
	size_t struct_size;
	/* relative to the checkpoint's directory; the name of the file if the checkpoint is a
	 * file */
	const char *name;
	uint64_t size;
	uint64_t crc64nvme;
};
/* clang-format off */
#define PENSTOCK_COMMIT_FILE_INIT { sizeof(struct penstock_commit_file), 0, 0, 0 }
/* clang-format on */
PENSTOCK_API size_t penstock_commit_n_files(const struct penstock_commit *commit);
/* `i` must be less than penstock_commit_n_files(), else PENSTOCK_E_INVALID; files are in byte order
 * of their names. */
PENSTOCK_API int penstock_commit_file_at(const struct penstock_commit *commit, size_t i,
	struct penstock_commit_file *file, struct penstock_error *err);

#ifdef __cplusplus
}
#endif

#endif
