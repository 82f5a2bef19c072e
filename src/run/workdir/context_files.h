/*
 * The files that a working directory got from a context: their digests, to find what has changed
 * since, and their times, so that unchanged files are not read again. Sorted by path.
 *
 *	_cleanup_(context_files_release) struct context_files before = {0}, now = {0};
 *
 *	context_files_read(&before, path, err);
 *	... fill `now`, context_files_sort(&now) ...
 *	if (context_files_changes(&before, &now, &names) > 0)
 *		... buf_str(&names) is "train.py, lib/a.py and 2 more" ...
 *	context_files_write(&now, path, err);
 */
#ifndef RUN_WORKDIR_CONTEXT_FILES_H
#define RUN_WORKDIR_CONTEXT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define CONTEXT_SUM_SIZE 65 /* SHA-256 in hexadecimal */

struct buf;
struct penstock_error;

struct context_file {
	char *path; /* below the context; owned */
	char sum[CONTEXT_SUM_SIZE]; /* digest of the file's contents, or of a link's target */
	unsigned mode; /* type and permissions of the file */
	uint64_t size, inode;
	int64_t mtime_ns, ctime_ns;
};

struct context_files {
	struct context_file *items;
	size_t n, cap;
};

void context_files_release(struct context_files *files);
/* Adds a file without its digest. Returns NULL if out of memory. */
struct context_file *context_files_add(
	struct context_files *files, const char *path, const struct stat *st);
void context_files_sort(struct context_files *files);
/* Returns the file with this path; NULL if there is no such file. */
const struct context_file *context_files_find(const struct context_files *files, const char *path);

/* Returns true if the file was not touched since it was listed as `known`, so that it need not be
 * read again. */
bool context_file_is_untouched(const struct context_file *known, const struct context_file *now);
/* Returns true if both have the same contents and permissions. */
bool context_file_is_same(const struct context_file *a, const struct context_file *b);

/* Returns the number of files that were changed, added or removed; appends the names of the first
 * few. */
size_t context_files_changes(
	const struct context_files *before, const struct context_files *now, struct buf *names);
/* Computes the digest of the whole list. */
int context_files_digest(const struct context_files *files, char digest[static CONTEXT_SUM_SIZE],
	struct penstock_error *err);

/* Reads a missing or damaged list as an empty list. */
int context_files_read(struct context_files *out, const char *path, struct penstock_error *err);
int context_files_write(
	const struct context_files *files, const char *path, struct penstock_error *err);

#endif
