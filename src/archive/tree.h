/*
 * The tree that members are written to: a temporary directory below the target, which tree_commit()
 * moves into place as a whole and tree_release() removes otherwise. A member below a link is
 * refused, and so is a link that leads out of the tree.
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

#include "archive/members.h"

#define TREE_PREFIX ".penstock-unpack-"

struct tree_options {
	/* the archive's file name, which no member may use; borrowed */
	const char *archive;
	uint64_t max_bytes, max_members;
	/* maximum of unpacked bytes per byte in `packed`; checked beyond LIMIT_ARCHIVE_RATIO_FROM
	 * bytes */
	uint64_t max_ratio;
	/* bytes of the archive received so far; borrowed; may be NULL */
	const atomic_ullong *packed;
	atomic_llong *budget; /* bytes that may still be written; may be NULL */
};

struct tree {
	struct tree_options options;
	char *dir, *stage; /* owned; the target, and the temporary directory */
	int dir_fd;
	mode_t umask;
	struct members members; /* below the temporary directory */
	uint64_t bytes;

	/* the file being written, if fd >= 0 */
	int fd;
	uint64_t end; /* offset after the last byte of the file */
	uint64_t position;
};

int tree_init(struct tree *t, const char *dir, const struct tree_options *options,
	struct penstock_error *err);
/* Removes everything that was not committed. */
void tree_release(struct tree *t);
/* Removes everything written so far, and starts again. On failure the tree is released. */
int tree_restart(struct tree *t, struct penstock_error *err);

/* `name` is the member's name as in the archive. `mtime` may be NULL. */
int tree_directory(struct tree *t, const char *name, mode_t mode, const struct timespec *mtime,
	struct penstock_error *err);
int tree_symlink(struct tree *t, const char *name, const char *target, const struct timespec *mtime,
	struct penstock_error *err);
/* Fails with PENSTOCK_E_INVALID if tree_symlink() would refuse the link. */
int tree_check_link(const char *name, const char *target, struct penstock_error *err);
int tree_hardlink(struct tree *t, const char *name, const char *target, struct penstock_error *err);

/* Write a file: begin, any number of writes at growing offsets (gaps are holes), end. */
int tree_file_begin(struct tree *t, const char *name, mode_t mode, struct penstock_error *err);
int tree_file_write(struct tree *t, const char *name, const void *data, size_t len, uint64_t offset,
	struct penstock_error *err);
/* `size` is the file's length if the file ends with a hole, or 0 if it ends with the last write. */
int tree_file_end(struct tree *t, const char *name, uint64_t size, const struct timespec *mtime,
	struct penstock_error *err);

/*
 * Applies the final mode to a member that was written from incomplete headers, and makes it a link
 * if it was written as a file. Returns 0, or 1 if the tree has a different member. `target` is the
 * target of a symbolic link (then `mode` is ignored) or NULL.
 */
int tree_amend(struct tree *t, const char *name, mode_t type, mode_t mode, uint64_t size,
	const char *target, struct penstock_error *err);

/*
 * Moves everything into the target directory: replaces files, and merges directories of the same
 * name. Fails and moves nothing if a file would replace a directory, if a directory would replace a
 * file, or if a member would replace the archive.
 */
int tree_commit(struct tree *t, struct penstock_error *err);

#endif
