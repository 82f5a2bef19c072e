/* What a restore has set aside: it is sent to partial/, and until it is there it stays where it was
 * put. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "sync/restore/internal.h"
#include "base/banned.h"

int restore_aside_place(
	const struct sync *s, const char *path, char **out, struct penstock_error *err)
{
	_cleanup_free_ char *to = NULL, *parent = NULL;
	int rc;

	if (asprintf(&to, "%s/suspect/%d/%s", s->o.private_dir, s->o.attempt, path) < 0) {
		to = NULL;
		return error_memory(err);
	}
	parent = strdup(to);
	if (!parent)
		return error_memory(err);
	*strrchr(parent, '/') = '\0';
	rc = fs_mkdirs(parent, 0700, err);
	if (rc < 0)
		return rc;
	for (unsigned n = 1; faccessat(AT_FDCWD, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0; n++) {
		char *next = NULL;

		if (asprintf(&next, "%s/suspect/%d/%s.%u", s->o.private_dir, s->o.attempt, path,
			    n) < 0)
			return error_memory(err);
		free(to);
		to = next;
	}
	*out = take_pointer(to);
	return 0;
}

void restore_aside_sent(struct sync *s, const char *path, uint64_t size)
{
	sync_emit(s, SYNC_PARTIAL, path, size, "%spartial/%s", s->state, path);
}

/* It is safe in its private place, and the next attempt tries again. */
void restore_aside_failed(
	struct sync *s, const char *path, const char *file, const struct penstock_error *err)
{
	sync_emit(s, SYNC_WARNING, path, 0, "the incomplete file %s stays in %s only: %s", path,
		file, err->message ? err->message : "");
}

int restore_aside_send(
	struct sync *s, const char *path, const char *file, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct stat st = {0};
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		rc = error_errno(&e, errno, "cannot read %s", file);
	else
		rc = upload_partial(s, fd, path, (uint64_t)st.st_size, s->o.cancel, &e);
	if (rc == 0) {
		restore_aside_sent(s, path, (uint64_t)st.st_size);
		unlink(file); /* a later attempt must not put it over a newer one */
		return 0;
	}
	if (rc == -PENSTOCK_E_CANCELLED)
		return error_move(err, &e);
	restore_aside_failed(s, path, file, &e);
	return 1;
}

/* Sends all regular files below `fd`, which is `dir`; 1: one could not be sent. `path` is where
 * they were in the output. */
static int send_below(
	struct sync *s, int fd, const char *dir, const char *path, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = fdopendir(fd);
	const struct dirent *d;
	int rc = 0;

	if (!list) {
		rc = error_errno(err, errno, "cannot list %s", dir);
		close(fd);
		return rc;
	}
	while (rc == 0 && (d = readdir(list))) {
		_cleanup_free_ char *below = NULL, *file = path_join(dir, d->d_name);
		struct stat st;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", d->d_name) < 0)
			below = NULL;
		if (!below || !file)
			return error_memory(err);
		if (fstatat(dirfd(list), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode)) {
			rc = restore_aside_send(s, below, file, err);
			sync_deliver(s);
		} else if (S_ISDIR(st.st_mode)) {
			int child = openat(dirfd(list), d->d_name,
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			rc = child < 0 ? 0 : send_below(s, child, file, below, err);
		}
	}
	return rc;
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
	long x = strtol((*a)->d_name, NULL, 10), y = strtol((*b)->d_name, NULL, 10);

	return (x > y) - (x < y);
}

static int is_attempt(const struct dirent *d)
{
	return d->d_name[0] >= '1' && d->d_name[0] <= '9';
}

int restore_aside_send_left(struct sync *s, struct penstock_error *err)
{
	_cleanup_free_ char *all = path_join(s->o.private_dir, "suspect");
	struct dirent **names = NULL;
	int rc = 0, n;

	if (!all)
		return error_memory(err);
	n = scandir(all, &names, is_attempt, by_number);
	/* The oldest first: what was set aside last under a name is what stays there. */
	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *dir = path_join(all, names[i]->d_name);
		int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

		if (!dir)
			rc = error_memory(err);
		else if (rc == 0 && fd >= 0)
			rc = send_below(s, fd, dir, "", err);
		else if (fd >= 0)
			close(fd);
		free(names[i]);
	}
	free(names);
	return rc < 0 ? rc : 0;
}
