/*
 * Staging: a run's inputs brought into its input directory, in parallel, verified, unpacked while
 * they arrive.
 *
 *	stage_inputs(&(struct stage_options){ .workflow = workflow, .stores = &stores,
 *		.layout = &layout, .cancel = &cancel }, &inputs_json, err);
 *
 * An HTTP input is kept under its URL's base name beside what was unpacked from it; an S3 input is
 * the objects below its path; `path` of an entry of `inputs` is a directory below. The directory is
 * 0700 while it is filled, `inputMode` is applied at the end. An interrupted staging goes on where
 * it was; what is complete (marks in layout->state with URL, ETag, size and digest) is not fetched
 * again. Before the first byte the known sizes are checked against the free space.
 */
#ifndef RUN_STAGE_H
#define RUN_STAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "run/layout.h"
#include "run/stores.h"
#include "workflow/model.h"

struct penstock_error;

struct stage_options {
	const struct workflow *workflow;
	struct stores *stores;
	const struct run_layout *layout;
	/* From any thread, now and then: the input's name for people, bytes so far and in all (0: unknown). */
	void (*progress)(void *cookie, const char *name, uint64_t done, uint64_t total);
	void (*warn)(void *cookie, const char *text);
	void *cookie;
	const atomic_int *cancel;
};

/*
 * Appends a JSON array to `provenance` (may be NULL): an object for each input with `source` (without
 * secrets), `etag` or `sha256`, `bytes`, `files`. The error names the input and says what to do.
 */
int stage_inputs(
	const struct stage_options *options, struct buf *provenance, struct penstock_error *err);

#endif
