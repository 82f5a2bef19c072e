/*
 * Staging: fetches the inputs of a run into its input directory, in parallel, verified, and
 * unpacked while they arrive.
 *
 *	stage_inputs(&(struct stage_options){ .workflow = workflow, .stores = &stores,
 *		.layout = &layout, .cancel = &cancel }, &inputs_json, err);
 *
 * The file of an HTTP input has the base name of its URL, and stays next to the files unpacked from
 * it. An S3 input consists of the objects below its path, a local input of one file or the contents
 * of a directory. `path` of an entry of `inputs` is a directory below the input directory. The
 * input directory has mode 0700 while it is filled; `inputMode` is applied at the end, if it is
 * given. An interrupted staging is resumed; complete inputs (marks in layout->state with URL, ETag,
 * size and digest) are not fetched again. Known sizes are checked against the free space before the
 * first byte is written.
 */
#ifndef RUN_STAGE_STAGE_H
#define RUN_STAGE_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "records/layout.h"
#include "run/stage/stores.h"
#include "workflow/model.h"

struct penstock_error;

struct stage_options {
	const struct workflow *workflow;
	struct stores *stores;
	const struct run_layout *layout;
	/* Called from any thread, from time to time: the input's name for display, bytes so far and
	 * in total (0 if unknown). */
	void (*progress)(void *cookie, const char *name, uint64_t done, uint64_t total);
	void *cookie;
	const atomic_int *cancel;
};

/*
 * Appends a JSON array to `provenance` (may be NULL): an object for each input with `source`
 * (without secrets), `bytes`, `files`, and `etag` and `sha256` if known. The error names the input
 * and has a hint.
 */
int stage_inputs(
	const struct stage_options *options, struct buf *provenance, struct penstock_error *err);

/* Returns the path of a local input: a relative one starts at the workflow's directory, if the
 * workflow is a local file. */
char *stage_local_path(const struct workflow *workflow, const char *path);

#endif
