/*
 * Bringing a workflow to the verbs that need one: from a file, standard input, an S3 URL, or from the
 * copy that a run keeps. Diagnostics are printed to stderr here.
 */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

#include "base/buf.h"
#include "base/str.h"
#include "workflow/model.h"

struct penstock_error;
struct records_run;

/* The bytes of "path", "-" or "s3://bucket/key". `shown` gets the name for messages and records: an absolute
 * path, "<stdin>" or the URL; free() it. */
int load_bytes(const char *source, struct buf *bytes, char **shown, struct penstock_error *err);

/* Reads the workflow and prints what was found. -PENSTOCK_E_INVALID: mistakes, which were printed; `err` counts them. */
int load_workflow(struct workflow **out, const char *shown, const struct buf *bytes,
	const struct strlist *sets, const struct strlist *env, struct penstock_error *err);

/*
 * The workflow of a recorded run. Its credentials are looked up where they came from: the workflow
 * file as it is now (or `credentials_from`, another file of the same shape), the environment, the --set given.
 */
int load_run_workflow(struct workflow **out, const char *home, const struct records_run *run,
	const char *credentials_from, const struct strlist *sets, struct penstock_error *err);

#endif
