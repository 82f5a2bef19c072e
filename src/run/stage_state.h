/*
 * What a run's staging has reached, in STATE/stage.json: one mark for each input, in their order.
 * Kept outside of the input directory, which belongs to the steps.
 *
 * A state belongs to one list of inputs, to one input directory (told by inode and birth) and to one
 * boot of the machine: inputs are not synced, so after a loss of power nothing vouches for them. If
 * any of these differs, everything that was staged is removed and staging starts anew.
 */
#ifndef RUN_STAGE_STATE_H
#define RUN_STAGE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "run/layout.h"

struct penstock_error;
struct buf;

struct stage_mark {
	char id[65];	 /* digest of where it comes from and what is made of it */
	bool fetched;	 /* the file is whole in its fetch directory */
	bool complete;	 /* everything is in the input directory */
	char *source;	 /* owned; without secrets */
	char *etag;	 /* owned; or NULL */
	char sha256[65]; /* "" where not known */
	uint64_t bytes, files;
};

struct stage_state {
	char *path;			  /* owned */
	uint64_t device, inode, birth_ns; /* of the input directory */
	char boot[40];			  /* of the machine; "" where it is not told */
	pthread_mutex_t lock;

	/* under lock */
	struct stage_mark *marks;
	size_t n;
	bool mode_set; /* inputMode was applied: nothing is left to do */
};

/*
 * `ids` and `sources` of the n inputs. Makes the input directory (0700) and takes over the marks of
 * an earlier staging of the same inputs into the same directory.
 */
int stage_state_open(struct stage_state *state, const struct run_layout *layout,
	const char *const *ids, const char *const *sources, size_t n, struct penstock_error *err);
void stage_state_release(struct stage_state *state);

/* Replaces what is known of input `i` (`source` and `id` stay; `etag` is copied) and saves it. */
int stage_state_set(struct stage_state *state, size_t i, const struct stage_mark *mark,
	struct penstock_error *err);
int stage_state_set_mode(struct stage_state *state, struct penstock_error *err);

bool stage_state_is_complete(const struct stage_state *state);

/* Appends the array for the run's record. */
int stage_state_provenance(
	const struct stage_state *state, struct buf *out, struct penstock_error *err);

#endif
