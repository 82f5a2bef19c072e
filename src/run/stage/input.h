/* One input of a run, staged into its directory. Private to staging. */
#ifndef RUN_STAGE_INPUT_H
#define RUN_STAGE_INPUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "run/stage/stage.h"
#include "run/stage/state.h"

struct penstock_error;

struct stage_input {
	const struct stage_options *options;
	const struct workflow_input *input;
	size_t index;
	char *source; /* owned; for display: URL without user, query and fragment; s3://…; path */
	char id[65]; /* digest of its source and its processing */
	char *dir; /* owned; destination: the input directory or a directory below it */
	char *file_name; /* owned; name of a single file, or NULL for a tree */
	char *fetch_dir; /* owned; directory for a fetched file, on the same file system */
	char *local; /* owned; resolved path of a local input, else NULL */

	struct stage_state *state;
	atomic_llong *space; /* bytes that all inputs together may still use */
	const atomic_int *cancel;

	/* progress */
	atomic_llong done;
	atomic_ullong total; /* 0 if unknown */
	_Atomic int64_t reported_ms;
};

/* Computes names and paths; changes nothing. `index` is the position in `inputs` of the
 * workflow. */
int stage_input_init(struct stage_input *in, const struct stage_options *options, size_t index,
	struct penstock_error *err);
void stage_input_release(struct stage_input *in);

/* Report progress. */
void stage_input_moved(struct stage_input *in, int64_t bytes);
void stage_input_report(struct stage_input *in);
/* Reserves `bytes` of the free space, before the first byte is written. */
int stage_input_reserve(struct stage_input *in, uint64_t bytes, struct penstock_error *err);

/* Stage the three kinds of inputs; the caller writes the final mark. */
int stage_fetch_file(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);
int stage_download_prefix(
	struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);
int stage_copy_tree(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);

#endif
