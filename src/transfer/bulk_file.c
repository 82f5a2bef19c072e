/* The local side of a bulk transfer: directories, times, modes, links, and what is to be synced. */
#include "transfer/bulk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "transfer/part_file.h"
#include "base/banned.h"

/* ---- directories ---- */

/* Creates the directories one by one; a link among them would lead out of the tree. */
static int make_below(char *path, size_t root, struct penstock_error *err)
{
	struct stat st;

	for (char *slash = strchr(path + root, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		if (slash == path || slash[-1] == '/')
			continue;
		*slash = '\0';
		r = strlen(path) <= root || mkdir(path, 0777) == 0 ? 0 : errno;
		if (r == EEXIST && lstat(path, &st) == 0)
			r = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
		if (r == ENOTDIR)
			return error_set(err, PENSTOCK_E_EXISTS,
				"%s is in the way of a directory; remove it", path);
		if (r)
			return error_errno(err, r, "cannot create %s", path);
		*slash = '/';
	}
	return 0;
}

int bulk_make_parents(struct bulk_task *task, struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;
	const char *path = task->item.path, *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	_cleanup_free_ char *copy = NULL;
	bool there;
	int r;

	if (!task->item.path_root || len <= task->item.path_root)
		return 0;
	/* Walks go through one directory after the other. */
	pthread_mutex_lock(&bulk->lock);
	there = bulk->made && strncmp(bulk->made, path, len) == 0 && bulk->made[len] == '\0';
	pthread_mutex_unlock(&bulk->lock);
	if (there)
		return 0;
	copy = strdup(path);
	if (!copy)
		return error_memory(err);
	r = make_below(copy, task->item.path_root, err);
	if (r < 0)
		return r;
	copy[len] = '\0';
	LOCK_SCOPE(&bulk->lock);
	free(bulk->made);
	bulk->made = take_pointer(copy);
	return 0;
}

/* ---- files ---- */

/* A file without a name leaves nothing behind, however we end. */
static int create_nameless(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX] = ".";

	if (slash == path) {
		dir[0] = '/';
	} else if (slash) {
		if ((size_t)(slash - path) >= sizeof(dir))
			return -1;
		memcpy(dir, path, (size_t)(slash - path));
		dir[slash - path] = '\0';
	}
	return open(dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
}

int bulk_file_create(struct bulk_task *task, int *fd, char **part, struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;

	*part = NULL;
	if (!atomic_load(&bulk->named_parts)) {
		*fd = create_nameless(task->item.path);
		if (*fd >= 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)
			return error_errno(err, errno, "cannot create %s", task->item.path);
		atomic_store(&bulk->named_parts, true);
	}
	return part_file_open(task->item.path, fd, part, err);
}

static int link_to(int fd, const char *path)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

int bulk_file_publish(struct bulk_task *task, int fd, char **part, struct penstock_error *err)
{
	const char *path = task->item.path;

	if (!*part) {
		if (link_to(fd, path) == 0)
			return 0;
		/* Over what is there it gets only by way of another name. */
		if (part_file_random_name(path, part, err) < 0)
			return -(int)PENSTOCK_E_MEMORY;
		if (link_to(fd, *part) < 0)
			return error_errno(err, errno, "cannot create %s", *part);
	}
	if (rename(*part, path) < 0) {
		if (errno == EISDIR)
			return error_set(err, PENSTOCK_E_EXISTS,
				"%s is a directory and in the way of a file; remove it", path);
		return error_errno(err, errno, "cannot rename %s", *part);
	}
	free(*part);
	*part = NULL;
	return 0;
}

/* ---- metadata ---- */

int bulk_file_metadata(struct bulk_task *task, const struct stat *st, struct strlist *out,
	struct penstock_error *err)
{
	const struct strlist *given = task->bulk->put.metadata;
	int r = 0;

	for (size_t i = 0; r == 0 && given && i < given->n; i++)
		r = strlist_add(out, given->items[i]);
	if (r == 0 && task->bulk->options.preserve)
		r = strlist_addf(out, "mtime=%lld.%09ld", (long long)st->st_mtim.tv_sec,
			st->st_mtim.tv_nsec);
	if (r == 0 && task->bulk->options.preserve)
		r = strlist_addf(out, "mode=0%o", (unsigned)st->st_mode);
	return r < 0 ? error_memory(err) : 0;
}

/* "1700000000.123456789", also without the fraction; false: something else. */
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

/* Octal with the type of the file ("100644"); false: no such thing. */
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

	/* Of foreign bits only those that any user may give a file of its own. */
	if (o->preserve && bulk_kept_mode(&from->metadata, &mode) && S_ISREG(mode) &&
		fchmod(fd, mode & 0777) < 0)
		return error_errno(err, errno, "cannot set the mode of %s", task->item.path);
	if (o->preserve && bulk_kept_time(&from->metadata, &times[1])) {
		/* as it says */
	} else if (o->set_times && ns > 0) {
		times[1] = (struct timespec){ns / NS_PER_S, ns % NS_PER_S};
	} else {
		return 0;
	}
	if (futimens(fd, times) < 0)
		return error_errno(err, errno, "cannot set the time of %s", task->item.path);
	return 0;
}

int bulk_file_make_link(const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf target = BUF_INIT(PATH_MAX);
	_cleanup_free_ char *beside = NULL;
	int r = fs_read(path, &target, err);

	if (r < 0)
		return r;
	if (!target.len || strlen(buf_str(&target)) != target.len)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"%s: the object says that it is a link, but leads nowhere", path);
	r = part_file_random_name(path, &beside, err);
	if (r < 0)
		return r;
	if (symlink(buf_str(&target), beside) < 0)
		return error_errno(err, errno, "cannot make the link %s", path);
	if (rename(beside, path) < 0) {
		r = error_errno(err, errno, "cannot make the link %s", path);
		unlink(beside);
	}
	return r;
}

/* ---- making it durable ---- */

int bulk_note_device(struct bulk *bulk, int fd, struct penstock_error *err)
{
	struct stat st;
	int kept;

	if (bulk->options.no_sync)
		return 0;
	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot look at a file that was fetched");
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

static int sync_failed(const struct bulk *bulk, struct penstock_error *err)
{
	return error_errno(err, bulk->sync_errno, "cannot sync what was fetched to the disk");
}

int bulk_sync(struct bulk *bulk, struct penstock_error *err)
{
	int fds[BULK_FILE_SYSTEMS];
	unsigned n;
	/* Whoever finds nothing to be done must know that it is done, and not under way. */
	LOCK_SCOPE(&bulk->sync_lock);

	pthread_mutex_lock(&bulk->lock);
	n = bulk->dirty ? bulk->n_devices : 0;
	memcpy(fds, bulk->device_fds, sizeof(fds));
	if (bulk->dirty && bulk->many_devices)
		sync();
	bulk->dirty = false;
	pthread_mutex_unlock(&bulk->lock);
	/* The kernel tells of a failure once, but nobody knows whose file it was. */
	for (unsigned i = 0; i < n && !bulk->sync_errno; i++) {
		if (syncfs(fds[i]) < 0)
			bulk->sync_errno = errno;
	}
	return bulk->sync_errno ? sync_failed(bulk, err) : 0;
}
