/* The local side of a bulk transfer: directories, times, modes, links, and syncing. */
#include "transfer/bulk/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "transfer/state/part_file.h"

/* ---- directories ---- */

void bulk_dir_close(struct bulk *bulk, struct bulk_dir *dir)
{
	if (!dir)
		return;
	pthread_mutex_lock(&bulk->lock);
	bool last = --dir->users == 0;
	pthread_mutex_unlock(&bulk->lock);
	if (!last)
		return;
	close(dir->fd);
	free(dir);
}

/* Creates a directory from an open descriptor, and takes ownership of `fd`, even on failure. */
static struct bulk_dir *dir_new(const char *path, size_t len, int fd)
{
	struct bulk_dir *dir = malloc(sizeof(*dir) + len + 1);

	if (!dir) {
		close(fd);
		return NULL;
	}
	dir->users = 1;
	dir->fd = fd;
	memcpy(dir->path, path, len);
	dir->path[len] = '\0';
	return dir;
}

/* Returns the directory of the last request if its path is the requested one, else NULL. */
static struct bulk_dir *dir_again(
	struct bulk *bulk, struct bulk_dir *const *kept, const char *path, size_t len)
{
	LOCK_SCOPE(&bulk->lock);

	if (!*kept || strncmp((*kept)->path, path, len) != 0 || (*kept)->path[len])
		return NULL;
	(*kept)->users++;
	return *kept;
}

static void dir_keep(struct bulk *bulk, struct bulk_dir **kept, struct bulk_dir *dir)
{
	struct bulk_dir *before;

	pthread_mutex_lock(&bulk->lock);
	before = *kept;
	*kept = dir;
	dir->users++;
	pthread_mutex_unlock(&bulk->lock);
	bulk_dir_close(bulk, before);
}

int bulk_open_root(const char *path, size_t len, struct penstock_error *err)
{
	_cleanup_free_ char *name = strndup(len ? path : ".", len ? len : 1);
	int fd;

	if (!name)
		return error_memory(err);
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? error_errno(err, errno, "cannot open directory '%s'", name) : fd;
}

static int open_named(
	const char *path, size_t len, struct bulk_dir **out, struct penstock_error *err)
{
	int fd = bulk_open_root(path, len, err);

	if (fd < 0)
		return fd;
	*out = dir_new(path, len, fd);
	return *out ? 0 : error_memory(err);
}

static int open_root(struct bulk_task *task, struct bulk_dir **out, struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;
	int r;

	*out = dir_again(bulk, &bulk->root, task->item.path, task->item.path_root);
	if (*out)
		return 0;
	r = open_named(task->item.path, task->item.path_root, out, err);
	if (r == 0)
		dir_keep(bulk, &bulk->root, *out);
	return r;
}

int bulk_make_below(
	int root, const char *path, size_t root_len, size_t len, struct penstock_error *err)
{
	size_t at = 0;
	int fd = fs_open_below(root, path + root_len, len - root_len, true, &at);

	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot create directory '%.*s': a file is in the way; remove it",
			(int)(root_len + at), path);
	return fd < 0 ? error_errno(err, errno, "cannot create directory '%.*s'",
				(int)(root_len + at), path)
		      : fd;
}

static int open_below(
	struct bulk_task *task, size_t len, struct bulk_dir **out, struct penstock_error *err)
{
	const char *path = task->item.path;
	struct bulk_dir *root = NULL;
	int fd = open_root(task, &root, err);

	if (fd < 0)
		return fd;
	fd = bulk_make_below(root->fd, path, task->item.path_root, len, err);
	bulk_dir_close(task->bulk, root);
	if (fd < 0)
		return fd;
	*out = dir_new(path, len, fd);
	return *out ? 0 : error_memory(err);
}

int bulk_dir_open(struct bulk_task *task, struct bulk_dir **out, struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;
	const char *path = task->item.path, *slash = strrchr(path, '/');
	size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
	int r;

	if (!task->item.path_root)
		return open_named(path, len, out, err);
	if (len <= task->item.path_root)
		return open_root(task, out, err);
	/* The last directory is kept open, because walks push all files of one directory in a
	 * row. */
	*out = dir_again(bulk, &bulk->dir, path, len);
	if (*out)
		return 0;
	r = open_below(task, len, out, err);
	if (r == 0)
		dir_keep(bulk, &bulk->dir, *out);
	return r;
}

/* Without /proc, `*out` has the directory's name, which another process could replace with a link
 * meanwhile. */
int bulk_dir_path(const struct bulk_task *task, const struct bulk_dir *dir, char **out,
	struct penstock_error *err)
{
	*out = task->bulk->no_proc
		       ? strdup(task->item.path)
		       : str_printf("/proc/self/fd/%d/%s", dir->fd, basename(task->item.path));
	return *out ? 0 : error_memory(err);
}

int bulk_dir_named(const struct bulk_dir *dir, struct penstock_error *err)
{
	_cleanup_free_ char *text = err && err->message ? strdup(err->message) : NULL;
	bool slash = str_ends(dir->path, "/");
	char own[40];
	char *at;

	snprintf(own, sizeof(own), "/proc/self/fd/%d/", dir->fd);
	at = text ? strstr(text, own) : NULL;
	if (!at)
		return err ? -(int)err->code : 0;
	return error_set(err, err->code, "%.*s%s%s%s", (int)(at - text), text, dir->path,
		slash || !dir->path[0] ? "" : "/", at + strlen(own));
}

/* ---- files ---- */

int bulk_file_create(struct bulk_task *task, const struct bulk_dir *dir, int *fd, char **part,
	struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;
	_cleanup_free_ char *path = NULL;

	*part = NULL;
	if (!atomic_load(&bulk->named_parts)) {
		/* An unnamed file leaves nothing behind, even after a kill. */
		*fd = openat(dir->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
		if (*fd >= 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
			return error_errno(err, errno, "cannot create '%s'", task->item.path);
		atomic_store(&bulk->named_parts, true);
	}
	if (bulk_dir_path(task, dir, &path, err) < 0)
		return -(int)PENSTOCK_E_MEMORY;
	return part_file_open(path, fd, part, err) < 0 ? bulk_dir_named(dir, err) : 0;
}

/* Names an unnamed file, by its descriptor alone if the kernel allows that (with
 * CAP_DAC_READ_SEARCH, or since Linux 6.10 for the process that opened the file): the lookup in
 * /proc takes a third of the time of a link. */
static int link_to(struct bulk *bulk, int fd, int dir, const char *name)
{
	bool by_proc = atomic_load(&bulk->link_by_proc);
	int r;

	if (!by_proc && linkat(fd, "", dir, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (!by_proc && errno == EEXIST)
		return -1;
	r = linkat(AT_FDCWD, fs_fd_path(fd).text, dir, name, AT_SYMLINK_FOLLOW);
	if (!by_proc && (r == 0 || errno == EEXIST))
		atomic_store(&bulk->link_by_proc, true);
	return r;
}

static int publish(struct bulk_task *task, const struct bulk_dir *dir, int fd, char **part,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;

	if (!*part && link_to(task->bulk, fd, dir->fd, basename(task->item.path)) == 0)
		return 0;
	if (bulk_dir_path(task, dir, &path, err) < 0)
		return -(int)PENSTOCK_E_MEMORY;
	if (!*part) {
		/* An existing file can only be replaced by a rename from another name. */
		if (part_file_random_name(path, part, err) < 0)
			return -(int)PENSTOCK_E_MEMORY;
		if (link_to(task->bulk, fd, AT_FDCWD, *part) < 0)
			return error_errno(err, errno, "cannot create '%s'", *part);
	}
	if (rename(*part, path) < 0) {
		if (errno == EISDIR)
			return error_set(err, PENSTOCK_E_EXISTS,
				"cannot replace '%s': it is a directory; remove it",
				task->item.path);
		return error_errno(err, errno, "cannot rename '%s'", *part);
	}
	free(*part);
	*part = NULL;
	return 0;
}

int bulk_file_publish(struct bulk_task *task, const struct bulk_dir *dir, int fd, char **part,
	struct penstock_error *err)
{
	return publish(task, dir, fd, part, err) < 0 ? bulk_dir_named(dir, err) : 0;
}

/* ---- metadata ---- */

int bulk_keep(
	struct strlist *out, const struct strlist *given, bool preserve, const struct stat *st)
{
	int r = 0;

	for (size_t i = 0; r == 0 && given && i < given->n; i++)
		r = strlist_add(out, given->items[i]);
	if (r == 0 && preserve)
		r = strlist_addf(out, "mtime=%lld.%09ld", (long long)st->st_mtim.tv_sec,
			st->st_mtim.tv_nsec);
	if (r == 0 && preserve)
		r = strlist_addf(out, "mode=0%o", (unsigned)st->st_mode);
	return r;
}

int bulk_file_metadata(struct bulk_task *task, const struct stat *st, struct strlist *out,
	struct penstock_error *err)
{
	return bulk_keep(out, task->bulk->put.metadata, task->bulk->options.preserve, st) < 0
		       ? error_memory(err)
		       : 0;
}

/* Parses "1700000000.123456789", with or without the fraction; false if it is invalid. */
bool bulk_kept_time(const struct strlist *metadata, struct timespec *out)
{
	const char *text = strlist_get(metadata, "mtime");
	char *end = NULL;
	long scale = 100000000;

	if (!text)
		return false;
	errno = 0;
	out->tv_sec = strtoll(text, &end, 10);
	out->tv_nsec = 0;
	if (errno || end == text)
		return false;
	if (*end == '.') {
		for (end++; *end >= '0' && *end <= '9'; end++, scale /= 10)
			out->tv_nsec += (*end - '0') * scale;
	}
	return *end == '\0';
}

/* Parses an octal mode with the type of the file ("100644"); false if it is invalid. */
bool bulk_kept_mode(const struct strlist *metadata, mode_t *out)
{
	const char *text = strlist_get(metadata, "mode");
	char *end = NULL;
	unsigned long mode = text ? strtoul(text, &end, 8) : 0;

	if (!text || end == text || *end || mode > 0177777)
		return false;
	*out = (mode_t)mode;
	return true;
}

bool bulk_file_is_link(const struct bulk_task *task, const struct object_info *from)
{
	mode_t mode;

	return task->bulk->options.preserve && task->bulk->options.symlinks &&
	       bulk_kept_mode(&from->metadata, &mode) && S_ISLNK(mode);
}

int bulk_file_times(
	struct bulk_task *task, int fd, const struct object_info *from, struct penstock_error *err)
{
	const struct bulk_options *o = &task->bulk->options;
	int64_t ns = task->item.known && task->known.modified_ns ? task->known.modified_ns
								 : from->modified_ns;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	mode_t mode;

	/* Set only bits that users may always set on their own files. */
	if (o->preserve && bulk_kept_mode(&from->metadata, &mode) && S_ISREG(mode) &&
		fchmod(fd, mode & 0777) < 0)
		return error_errno(err, errno, "cannot set the mode of '%s'", task->item.path);
	if (o->preserve && bulk_kept_time(&from->metadata, &times[1])) {
		/* times[1] now has the time in the metadata */
	} else if (o->set_times && ns > 0) {
		times[1] = (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
	} else {
		return 0;
	}
	if (futimens(fd, times) < 0)
		return error_errno(err, errno, "cannot set the time of '%s'", task->item.path);
	return 0;
}

/* Creates a link. Unless `new_only` is set, replaces an existing file, by a rename from another
 * name. */
static int make_link(const char *path, const char *shown, const char *target, bool new_only,
	struct penstock_error *err)
{
	_cleanup_free_ char *temporary = NULL;
	int r;

	if (new_only && symlink(target, path) < 0)
		return errno == EEXIST
			       ? error_set(err, PENSTOCK_E_PRECONDITION, "'%s' exists", shown)
			       : error_errno(err, errno, "cannot create link '%s'", shown);
	if (new_only)
		return 0;
	r = part_file_random_name(path, &temporary, err);
	if (r < 0)
		return r;
	if (symlink(target, temporary) < 0)
		return error_errno(err, errno, "cannot create link '%s'", shown);
	if (rename(temporary, path) < 0) {
		r = error_errno(err, errno, "cannot create link '%s'", shown);
		unlink(temporary);
	}
	return r;
}

int bulk_file_make_link(const struct bulk_task *task, const struct bulk_dir *dir,
	const char *target, size_t len, bool new_only, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_BULK_HELD);
	_cleanup_free_ char *path = NULL;
	int r;

	if (buf_add(&text, target, len) < 0)
		return buf_error(&text, "the target of a link", err);
	if (!len || strlen(buf_str(&text)) != len)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot create link '%s': the object has no valid target", task->item.path);
	r = bulk_dir_path(task, dir, &path, err);
	if (r == 0)
		r = make_link(path, task->item.path, buf_str(&text), new_only, err);
	return r < 0 ? bulk_dir_named(dir, err) : 0;
}

/* ---- durability ---- */

int bulk_note_device(struct bulk *bulk, int fd, struct penstock_error *err)
{
	struct stat st;
	int kept;

	if (bulk->options.no_sync)
		return 0;
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot stat a fetched file");
	LOCK_SCOPE(&bulk->lock);
	for (unsigned i = 0; i < bulk->n_devices; i++) {
		if (bulk->devices[i] == st.st_dev) {
			bulk->dirty = true;
			return 0;
		}
	}
	kept = bulk->n_devices < BULK_FILE_SYSTEMS ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
	bulk->dirty = true;
	if (kept < 0) {
		bulk->many_devices = true;
		return 0;
	}
	bulk->devices[bulk->n_devices] = st.st_dev;
	bulk->device_fds[bulk->n_devices++] = kept;
	return 0;
}

int bulk_note_dir(struct bulk *bulk, const struct bulk_dir *dir, struct penstock_error *err)
{
	/* The descriptor is O_PATH and cannot be synced. */
	_cleanup_close_ int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		return bulk_note_device(bulk, fd, err);
	LOCK_SCOPE(&bulk->lock);
	bulk->dirty = bulk->many_devices = true;
	return 0;
}

int bulk_sync(struct bulk *bulk, struct penstock_error *err)
{
	int fds[BULK_FILE_SYSTEMS];
	unsigned n;
	/* Hold the lock to the end, so that a caller that finds nothing to sync knows that an
	 * earlier sync has completed. */
	LOCK_SCOPE(&bulk->sync_lock);

	pthread_mutex_lock(&bulk->lock);
	n = bulk->dirty ? bulk->n_devices : 0;
	memcpy(fds, bulk->device_fds, sizeof(fds));
	if (bulk->dirty && bulk->many_devices)
		sync();
	bulk->dirty = false;
	pthread_mutex_unlock(&bulk->lock);
	/* Keep the first failure: the kernel reports it only once, and without the file's name. */
	for (unsigned i = 0; i < n && !bulk->sync_errno; i++) {
		if (syncfs(fds[i]) < 0)
			bulk->sync_errno = errno;
	}
	return bulk->sync_errno
		       ? error_errno(err, bulk->sync_errno, "cannot sync the fetched files to disk")
		       : 0;
}
