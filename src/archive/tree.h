/*
 * Where members are written: a directory of its own below the target, which is moved into place
 * whole by tree_commit() and removed by tree_free() otherwise. Every name is walked component by
 * component from descriptors without following links, so no name reaches outside.
 *
 * Used by one thread at a time. Names are bytes; an error names the member.
 */
#ifndef ARCHIVE_TREE_H
#define ARCHIVE_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/dir_cache.h"

#define TREE_PREFIX ".penstock-unpack-"

struct tree_options {
	const char *archive; /* its file name, which no member may take; borrowed, outlives the
				tree */
	uint64_t max_bytes, max_members;
	uint64_t max_ratio;	     /* of what is written to `packed`, once it is much */
	const atomic_ullong *packed; /* bytes of the archive that came so far; borrowed; or NULL */
	atomic_llong *budget;	     /* or NULL */
};

struct tree {
	struct tree_options options;
	char *dir, *stage; /* owned; the target, and the tree's own directory */
	int dir_fd, stage_fd;
	mode_t umask;
	struct dir_cache dirs;
	uint64_t members, bytes;
	struct buf times; /* struct tree_time and name of each directory with a time */

	/* the file being written, if fd >= 0 */
	int fd;
	uint64_t end; /* bytes; behind its last one */
	uint64_t position;
};

int tree_init(struct tree *t, const char *dir, const struct tree_options *options,
	struct penstock_error *err);
/* Removes what was not committed. */
void tree_release(struct tree *t);
/* Removes what was written so far, and begins anew. On failure the tree is released. */
int tree_restart(struct tree *t, struct penstock_error *err);

/* `name` is a member's, as the archive has it. `mtime` may be NULL. */
int tree_directory(struct tree *t, const char *name, mode_t mode, const struct timespec *mtime,
	struct penstock_error *err);
int tree_symlink(struct tree *t, const char *name, const char *target, const struct timespec *mtime,
	struct penstock_error *err);
int tree_hardlink(struct tree *t, const char *name, const char *target, struct penstock_error *err);

/* Begin, any number of writes at growing offsets (what lies between is a hole), end. */
int tree_file_begin(struct tree *t, const char *name, mode_t mode, struct penstock_error *err);
int tree_file_write(struct tree *t, const char *name, const void *data, size_t len, uint64_t offset,
	struct penstock_error *err);
/* `size` is the file's length where it ends with a hole; 0: behind the last byte written. */
int tree_file_end(struct tree *t, const char *name, uint64_t size, const struct timespec *mtime,
	struct penstock_error *err);

/*
 * Makes a member that was written from incomplete headers what the whole one says: its mode, and a
 * link where its contents were written as a file. Returns 0, or 1 where what was written is not
 * this member. `target` is that of a symbolic link (then `mode` is ignored) or NULL.
 */
int tree_amend(struct tree *t, const char *name, mode_t type, mode_t mode, uint64_t size,
	const char *target, struct penstock_error *err);

/*
 * Moves everything into the target directory: over files of the same names, into directories of the
 * same names. Checked first: where a file would replace a directory, a directory a file, or a
 * member the archive itself, nothing is moved.
 */
int tree_commit(struct tree *t, struct penstock_error *err);

/* Raises "member NAME: text", with unprintable bytes of the name as \xNN. */
int member_error(struct penstock_error *err, enum penstock_code code, const char *name,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
