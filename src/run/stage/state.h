/*
 * The progress of a run's staging, in STATE/stage.json: one mark for each input, in their order.
 * The file is outside of the input directory, because steps can write to the input directory.
 *
 * A state belongs to one list of inputs, to one input directory (identified by inode and birth
 * time) and to one boot of the machine: inputs are not synced, so they are not trusted after a
 * power failure. If any of these differs, all staged files are removed and staging starts again.
 */
#ifndef RUN_STAGE_STATE_H
#define RUN_STAGE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/process/process.h"
#include "records/layout.h"

struct penstock_error;
struct buf;

struct stage_mark {
	char id[65]; /* digest of the input's source and processing */
	bool fetched; /* the file is complete in its fetch directory */
	bool complete; /* everything is in the input directory */
	char *source; /* owned; without secrets */
	char *etag; /* owned; NULL if the source has no ETag */
	char sha256[65]; /* "" if unknown */
	uint64_t bytes, files;
};

struct stage_state {
	char *path; /* owned */
	uint64_t device, inode, birth_ns; /* identify the input directory */
	char boot[PROCESS_BOOT_ID_SIZE]; /* ID of the machine's boot; "" if unknown */
	pthread_mutex_t lock;

	/* under lock */
	struct stage_mark *marks;
	size_t n;
	bool mode_set; /* inputMode was applied: nothing is left to do */
};

/* `ids` and `sources` belong to the n inputs. Creates the input directory (0700) and loads the
 * marks of an earlier staging of the same inputs into the same directory. */
int stage_state_open(struct stage_state *state, const struct run_layout *layout,
	const char *const *ids, const char *const *sources, size_t n, struct penstock_error *err);
void stage_state_release(struct stage_state *state);

/* Replaces the mark of input `i` (`source` and `id` stay; `etag` is copied) and saves it. */
int stage_state_set(struct stage_state *state, size_t i, const struct stage_mark *mark,
	struct penstock_error *err);
int stage_state_set_mode(struct stage_state *state, struct penstock_error *err);

bool stage_state_is_complete(const struct stage_state *state);

/* Appends a JSON array for the run's record: for each input its source, bytes and files, and its
 * ETag and SHA-256 if known. */
int stage_state_provenance(
	const struct stage_state *state, struct buf *out, struct penstock_error *err);

#endif
