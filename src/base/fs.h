/*
 * Files and directories: reading whole files, durable writes, trees. All paths are plain strings;
 * all descriptors are opened close-on-exec.
 */
#ifndef BASE_FS_H
#define BASE_FS_H

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"

struct penstock_error;

/* Joins "a" (or "a/") and "b" to "a/b"; the caller frees it. Returns NULL if out of memory. */
char *path_join(const char *dir, const char *name);
/* Returns the part of `path` after its last slash. */
const char *path_last(const char *path);
/* Returns the absolute path of the directory with all of penstock's local data: $PENSTOCK_HOME,
 * else $XDG_DATA_HOME/penstock, else ~/.local/share/penstock (below /root without $HOME). Does not
 * create the directory. The caller frees the path. Returns NULL if out of memory or if getcwd()
 * fails. */
char *home_path(void);

/* Creates `path` and its missing parents with `mode`. Existing directories are not an error. */
int fs_mkdirs(const char *path, mode_t mode, struct penstock_error *err);

/* Appends the whole file to `out`; PENSTOCK_E_LIMIT if the file does not fit. */
int fs_read(const char *path, struct buf *out, struct penstock_error *err);
/* Warns if the mode of a file with secrets lets every user of the machine read it. */
void fs_warn_readable(const char *path);
/* Like fs_read() for a file in a directory that other programs, such as steps, can write to:
 * symbolic links are not followed, and PENSTOCK_E_INVALID is returned for anything but a regular
 * file (a FIFO would block the reader). */
int fs_read_plain(const char *path, struct buf *out, struct penstock_error *err);
/* Opens a file like fs_read_plain(), without blocking, for reading or writing; `flags` and `mode`
 * are as in open(). Returns a negative code on failure. */
int fs_open_plain(const char *path, int flags, mode_t mode, struct penstock_error *err);

/* Fails if users other than the owner may read or write the file, which contains secrets. */
int fs_check_private(const char *path, struct penstock_error *err);

/* Replaces `path` with `data`: temporary file in the same directory, fdatasync, rename, fsync of
 * the directory. After a crash at any instant, the complete old or the complete new file exists. */
int fs_write_atomic(
	const char *path, const void *data, size_t len, mode_t mode, struct penstock_error *err);

/*
 * Renames `from` to `to` unless `to` exists. Returns -1 with errno (EEXIST if `to` exists). On a
 * file system that supports neither RENAME_NOREPLACE nor hard links there is a short race: a file
 * created between the check and the rename is replaced.
 */
int fs_rename_new(const char *from, const char *to);

/*
 * Replaces the file `name` in the open directory without a sync: the file is useless after a crash
 * of the machine, and a sync takes long. Other processes may have put links or FIFOs into the
 * directory, so the function does not follow links and does not open existing files. Returns -1
 * with errno.
 */
int fs_write_text_at(int dir, const char *name, const char *text, mode_t mode);

int fs_fsync_dir(const char *path, struct penstock_error *err);

/* Returns the next entry of a directory other than "." and "..". Returns NULL at the end, with an
 * errno of 0, and after an error, with its errno. */
struct dirent *fs_next_entry(DIR *dir);
/* Opens the directory `name` below `dir`, not through a symbolic link, for fs_next_entry(). Returns
 * NULL with errno. */
DIR *fs_list_at(int dir, const char *name);

/* Write or read all of `len` bytes; retry after EINTR and short counts. Return -1 with errno;
 * fs_pread_all() returns less than `len` at the end of the file. */
int fs_write_all(int fd, const void *data, size_t len);
int fs_pwrite_all(int fd, const void *data, size_t len, off_t offset);
ssize_t fs_pread_all(int fd, void *data, size_t len, off_t offset);
/* Copies up to `len` bytes at the offset `at` of both files, in the kernel if the file systems
 * support it. Returns the number of bytes, 0 at the end of `from`, or -1 with errno. */
ssize_t fs_copy_range(int from, int to, off_t at, size_t len);

/*
 * Opens (O_PATH) the directory that the first `len` bytes of `path` name below `root`, without
 * following symbolic links. `make` creates missing directories. Returns -1 with errno (ENOTDIR if a
 * component is not a directory); `*at` is then the length of the path up to and including the
 * component that failed.
 */
int fs_open_below(int root, const char *path, size_t len, bool make, size_t *at);

/* Opens `path` as if `root` were "/": symbolic links, absolute paths and ".." cannot leave `root`.
 * Returns -1 with errno. */
int fs_open_in_root(int root, const char *path, int flags);

/* Removes a tree without following symbolic links; a missing tree is not an error. Unwritable
 * directories are made writable first. */
int fs_remove_tree(const char *path, struct penstock_error *err);
/* Like fs_remove_tree() for `name` in the open directory `parent`; messages name the tree
 * `shown`. */
int fs_remove_tree_at(int parent, const char *name, const char *shown, struct penstock_error *err);

/* Takes an exclusive lock on the whole file, which must be open for writing. The lock ends with
 * fs_unlock(), or when the descriptor and all copies of it are closed. Returns 1 if another open()
 * of the file, even in this process, holds a lock. Returns -1 with errno on failure. */
int fs_lock(int fd);
/* Releases the lock for all copies of the descriptor, such as those of forked children. */
void fs_unlock(int fd);
/* Like fs_lock(), but waits for the lock. Returns 1 if `cancel` is set meanwhile; `cancel` may be
 * NULL. Polls every few milliseconds. */
int fs_lock_wait(int fd, const atomic_int *cancel);
/* Opens `path`, which is created if missing, and waits for its lock. Returns the descriptor. */
int fs_lock_file(const char *path, struct penstock_error *err);
/* Like fs_lock(), but shared: any number of processes can hold it if none holds it exclusively. */
int fs_lock_shared(int fd);
/* Returns true if the file is locked, exclusively or shared, through another open() of the file, or
 * if the query fails. */
bool fs_lock_in_use(int fd);
/* Like fs_lock_in_use(), but ignores shared locks. Both functions only query: they never take the
 * lock, so they cannot block another process that takes it. */
bool fs_lock_held(int fd);

/* The path through /proc of an open file, even if it was opened with O_PATH: for calls that take no
 * descriptor, such as chmod(fs_fd_path(fd).text, mode). */
struct fs_fd_path {
	char text[32];
};
struct fs_fd_path fs_fd_path(int fd);

/* Returns true if `path`, not a symbolic link, still leads to the open file: the file may have been
 * renamed or removed before we got its lock. */
bool fs_is_named(int fd, const char *path);

/* Returns the allocated bytes of a file or a tree, which its removal would free. A file with N hard
 * links counts for 1/N. */
uint64_t fs_disk_bytes(const char *path);
/* Gets the free bytes that an unprivileged writer may use below `path`. */
int fs_free_bytes(const char *path, uint64_t *bytes, struct penstock_error *err);

/* Returns true if the file system at `path` is a network file system (NFS, CIFS, Lustre, FUSE…),
 * where flock() and SQLite's WAL are not reliable. */
bool fs_is_network(const char *path);

/*
 * Finds the first executable file called `name` in the absolute directories of `path`, a list like
 * PATH; the caller frees the result. Returns NULL if there is none. Relative directories are
 * skipped, because they differ between processes.
 */
char *fs_find_program(const char *path, const char *name);
/* Searches our own PATH, then the system directories (sbin), which a user's PATH may lack. */
char *fs_find_tool(const char *name);

/* Opens an unnamed file in $TMPDIR, else /var/tmp, for data that may not fit into memory; `what`
 * names the data in the error message. */
int fs_open_unnamed(const char *what, struct penstock_error *err);

#endif
