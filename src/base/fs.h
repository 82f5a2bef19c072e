/*
 * Files and directories: whole reads, durable writes, trees. All paths are plain strings; all
 * descriptors are opened close-on-exec.
 */
#ifndef BASE_FS_H
#define BASE_FS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"

struct penstock_error;

/* "a/b" from "a" and "b" (also from "a/" and "b"); free() it. NULL: out of memory. */
char *path_join(const char *dir, const char *name);

/* Creates `path` and its missing parents with `mode`. Existing directories are fine. */
int fs_mkdirs(const char *path, mode_t mode, struct penstock_error *err);

/* Appends the whole file; its size must fit in `out`. */
int fs_read(const char *path, struct buf *out, struct penstock_error *err);
/*
 * The same of a file in a place where others write, such as a step: links are not followed, and what is no file (a FIFO
 * would keep its reader waiting) is INVALID.
 */
int fs_read_plain(const char *path, struct buf *out, struct penstock_error *err);
/* Opens such a file without waiting for anybody; `flags` and `mode` as of open(). Below 0: the error. */
int fs_open_plain(const char *path, int flags, mode_t mode, struct penstock_error *err);

/*
 * Replaces `path` by `data`: temporary file beside it, fdatasync, rename, fsync of the directory.
 * After a crash at any instant the old or the new file is there, whole.
 */
int fs_write_atomic(
	const char *path, const void *data, size_t len, mode_t mode, struct penstock_error *err);

/*
 * Gives `from` the name `to`, unless there is something under it. -1: errno (EEXIST: there is). Where the file system
 * can do neither this nor a second name, it looks first, and what appears in that moment is replaced.
 */
int fs_rename_new(const char *from, const char *to);

int fs_fsync_dir(const char *path, struct penstock_error *err);

/* Writes or reads all of `len`, through EINTR and short counts. -1: errno; a short read returns
 * less. */
int fs_write_all(int fd, const void *data, size_t len);
int fs_pwrite_all(int fd, const void *data, size_t len, off_t offset);
ssize_t fs_pread_all(int fd, void *data, size_t len, off_t offset);

/*
 * Opens the directory that the first `len` bytes of `path` name below `root` (O_PATH), through no link on the way;
 * `make`: missing ones are made. -1: errno (ENOTDIR: something else is in its place), and `*at` is how much of the path
 * leads to what failed.
 */
int fs_open_below(int root, const char *path, size_t len, bool make, size_t *at);

/*
 * Opens `path` as a program would to which the directory `root` is "/": links lead nowhere else, absolute ones and "..",
 * too. -1: errno.
 */
int fs_open_in_root(int root, const char *path, int flags);

/* Removes a tree without following links; a missing one is fine. Unwritable directories are opened
 * up. */
int fs_remove_tree(const char *path, struct penstock_error *err);
/* The same of what has the `name` in the open directory `parent`; `shown` names it in messages. */
int fs_remove_tree_at(int parent, const char *name, const char *shown, struct penstock_error *err);

/*
 * Locks the whole file, opened for writing, for this process alone until the descriptor (and every copy
 * of it) is closed. 1: somebody else has it. -1: errno.
 */
int fs_lock(int fd);
/* The same, waiting for whoever has it, unless `cancel` (may be NULL) is set: 1. Nobody may hold it for long. */
int fs_lock_wait(int fd, const atomic_int *cancel);
/* For any number of processes, none of which has it alone. */
int fs_lock_shared(int fd);
/* Whether anybody else has it, alone or with others. */
bool fs_lock_in_use(int fd);
/* Whether anybody else has locked it. Only asks: it is never in the way of one who takes the lock. */
bool fs_lock_held(int fd);

/* Whether `path`, itself no link, still leads to the open file: somebody may have renamed or removed it before its lock was ours. */
bool fs_is_named(int fd, const char *path);

/* Free bytes that an unprivileged writer may use below `path`. */
int fs_free_bytes(const char *path, uint64_t *bytes, struct penstock_error *err);

/* Whether the file system at `path` is a network one (NFS, CIFS, Lustre, FUSE…): no flock, no WAL.
 */
bool fs_is_network(const char *path);

/*
 * The first file of that name in the absolute directories of `path`, a list like PATH, that can be run; free() it. NULL: none.
 * Relative ones mean another place to each process.
 */
char *fs_find_program(const char *path, const char *name);
/* On our own PATH, else where administrators' programs are, which users' PATHs may lack. */
char *fs_find_tool(const char *name);

#endif
