/* One input of a run, brought into its directory. Private to staging. */
#ifndef RUN_STAGE_INPUT_H
#define RUN_STAGE_INPUT_H

#include <stdatomic.h>
#include <stdint.h>

#include "run/stage.h"
#include "run/stage_state.h"

struct penstock_error;

struct stage_input {
	const struct stage_options *options;
	const struct workflow_input *input;
	size_t index;
	char *source; /* owned; for people: URL without user, query and fragment; s3://…; path */
	char id[65];  /* digest of where it comes from and what is made of it */
	char *dir;    /* owned; where it goes: the input directory or one below */
	char *file_name; /* owned; of the one file that it is, or NULL: a tree */
	char *fetch_dir; /* owned; where a file is fetched, on the same file system */
	char *local;	 /* owned; of LOCAL: the path resolved; else NULL */

	struct stage_state *state;
	atomic_llong *space; /* bytes that all inputs together may still take */
	const atomic_int *cancel;

	/* progress */
	atomic_llong done;
	atomic_ullong total; /* 0: unknown */
	_Atomic int64_t told_ms;
};

/* Names and paths; nothing is touched. `index` is the one in the workflow. */
int stage_input_init(struct stage_input *in, const struct stage_options *options, size_t index,
	struct penstock_error *err);
void stage_input_release(struct stage_input *in);

/* Brings it in and marks it complete. Blocks. */
int stage_input_bring(struct stage_input *in, struct penstock_error *err);

/* For those who move bytes. */
void stage_input_moved(struct stage_input *in, int64_t bytes);
void stage_input_tell(struct stage_input *in);
/* Takes `bytes` of what is free, before the first of them is written. */
int stage_input_reserve(struct stage_input *in, uint64_t bytes, struct penstock_error *err);

/* The three ways; each leaves the mark to stage_input_bring(). */
int stage_fetch_file(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);
int stage_download_prefix(
	struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);
int stage_copy_tree(struct stage_input *in, struct stage_mark *mark, struct penstock_error *err);

#endif
