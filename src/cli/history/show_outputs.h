/* Lists the files that a run has published, kept and set aside, from its local journal. */
#ifndef CLI_HISTORY_SHOW_OUTPUTS_H
#define CLI_HISTORY_SHOW_OUTPUTS_H

#include <jansson.h>

struct penstock_error;

/*
 * Adds to `object` the lists "outputs" (path, url, size, etag, mtime), "replaced" (path, kept,
 * etag, and for an S3 output: url, and restore, the command that restores it) and "partial" (path).
 * `base` is the URL of the output, "s3://bucket/prefix/", and `endpoint` that of its store, or
 * "embedded"; each may be NULL. A run without a journal has empty lists.
 */
int show_outputs_read(json_t *object, const char *journal_path, const char *base,
	const char *endpoint, struct penstock_error *err);

#endif
