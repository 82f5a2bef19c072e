/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an object like a file, at any offset, without fetching all of it.
 *
 *	struct penstock_error err = PENSTOCK_ERROR_INIT;
 *	struct penstock_file *file = NULL;
 *	char head[4096];
 *	size_t got;
 *
 *	if (penstock_file_open(&file, t, "s3://models/run-7/a.pth", NULL, &err) == 0 &&
 *		penstock_file_read(file, 0, head, sizeof(head), &got, &err) == 0)
 *		... head has the first `got` bytes of penstock_file_size(file)
 *	penstock_file_close(file);
 *
 * Names. A file is "s3://BUCKET/KEY", "gs://BUCKET/KEY", "http://…", "https://…" or a local path.
 * An HTTP server has to support ranges and to send an ETag or Last-Modified.
 *
 * After sequential reads, further bytes are read ahead in the background: the longer the sequence,
 * the more bytes. A read that does not continue a sequence fetches exactly its bytes. All bytes are
 * of the version that was opened: a read fails with PENSTOCK_E_CHANGED if the file was replaced or
 * truncated. Reads wait for an unavailable store, up to five minutes.
 *
 * Threads. Any number of threads may read one file. Close a file before you free its transfer
 * handle. After fork() only the parent can use a file.
 *
 * Results, errors, ownership, units and compatibility are as <penstock/transfer.h> says.
 */
#ifndef PENSTOCK_FILE_H
#define PENSTOCK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/transfer.h>

#ifdef __cplusplus
extern "C" {
#endif

struct penstock_file;

struct penstock_file_options {
	size_t struct_size;
	uint64_t ahead; /* maximum of bytes to read ahead, up to 1 GiB; 0 for 32 MiB */
	bool no_ahead; /* disables read-ahead */
	/* The version to open (penstock_file_version()). If the file has another version, the open,
	 * or a read if `known` is set, fails with PENSTOCK_E_CHANGED. NULL for the current
	 * version. */
	const char *version;
	/* If true, `size` is the size of `version`, so that opening the file sends no request.
	 * Ignored without `version`, and for a local path. */
	bool known;
	uint64_t size;
	/* cancels every call on the file and outlives the file; may be NULL */
	struct penstock_cancel *cancel;
	/* Called ten times a second by each thread that waits; true ends the call of that thread
	 * with PENSTOCK_E_CANCELLED. May be NULL. */
	bool (*stop)(void *cookie);
	void *cookie;
};
/* clang-format off */
#define PENSTOCK_FILE_OPTIONS_INIT { sizeof(struct penstock_file_options), \
	0, false, 0, false, 0, 0, 0, 0 }
/* clang-format on */

/* `options` may be NULL. Fails with PENSTOCK_E_NOT_FOUND if the file does not exist, and with
 * PENSTOCK_E_UNSUPPORTED if an HTTP server cannot send ranges of one version. */
PENSTOCK_API int penstock_file_open(struct penstock_file **out, struct penstock_transfer *transfer,
	const char *url, const struct penstock_file_options *options, struct penstock_error *err);
/* Closes the file and ends its read-ahead. No other call on the file may be in progress. NULL is
 * allowed. */
PENSTOCK_API void penstock_file_close(struct penstock_file *file);

PENSTOCK_API uint64_t penstock_file_size(const struct penstock_file *file);
/* Returns a text that identifies the version that was opened, such as its ETag. The text is valid
 * as long as the file. */
PENSTOCK_API const char *penstock_file_version(const struct penstock_file *file);

/* Reads `size` bytes, or fewer if the file ends earlier; `*got` is 0 at the end of the file. */
PENSTOCK_API int penstock_file_read(struct penstock_file *file, uint64_t offset, void *data,
	size_t size, size_t *got, struct penstock_error *err);

struct penstock_file_range {
	uint64_t offset;
	size_t length; /* bytes; the range lies within the file, else PENSTOCK_E_INVALID */
	void *data; /* receives the bytes */
};
/* Reads many ranges at the same time. */
PENSTOCK_API int penstock_file_read_ranges(struct penstock_file *file,
	const struct penstock_file_range *ranges, size_t n, struct penstock_error *err);

#ifdef __cplusplus
}
#endif

#endif
