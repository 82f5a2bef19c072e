/*
 * The newest files of an output, in a store or on this machine:
 *
 *	struct output_files files = {0};
 *
 *	output_files_in_store(&files, object_at(client, bucket, "run7/"), NULL, err);
 *	...	files.newest[0].path, files.total, files.bytes
 *	output_files_release(&files);
 */
#ifndef CLI_HISTORY_OUTPUT_FILES_H
#define CLI_HISTORY_OUTPUT_FILES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

struct penstock_error;

#define OUTPUT_FILES 20

struct output_file {
	char *path; /* below the output */
	uint64_t size;
	int64_t modified_ns;
};

struct output_files {
	struct output_file newest[OUTPUT_FILES]; /* the newest first */
	size_t n;
	uint64_t total, bytes; /* number and bytes of all files */
};

/* Finds the files of an output in a store; transfer/output_keys.h defines which objects are such
 * files. The key of `at` ends with a slash, or is "". */
int output_files_in_store(struct output_files *out, struct object_ref at, const atomic_int *cancel,
	struct penstock_error *err);
/* Finds the files of an output on this machine. A missing directory counts as empty. */
int output_files_in_dir(struct output_files *out, const char *dir, struct penstock_error *err);
void output_files_release(struct output_files *files);

#endif
