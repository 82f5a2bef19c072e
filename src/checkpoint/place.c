/* Writes the documents of a checkpoint: its commit and the parts of ranks. */
#include "checkpoint/save_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/commit.h"

int save_sync_dir(int fd, const char *path, struct penstock_error *err)
{
	return fsync(fd) < 0 && errno != EINVAL ? error_errno(err, errno, "cannot sync '%s'", path)
						: 0;
}

/*
 * Closes the file before it gets its name, so that no process can find a file of that name that is
 * open for writing. First removes any file with the hidden name, which a killed save or another
 * program may have left, because the file is created with O_EXCL.
 */
int save_place_at(int dir, const char *path, const char *hidden, const char *name,
	const struct buf *text, struct penstock_error *err)
{
	bool good;
	int saved, fd;

	unlinkat(dir, hidden, 0);
	fd = openat(dir, hidden, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	good = fd >= 0 && fs_write_all(fd, text->data, text->len) == 0 && fdatasync(fd) == 0;
	saved = errno;
	if (fd >= 0)
		close(fd);
	if (good && renameat(dir, hidden, dir, name) == 0)
		return save_sync_dir(dir, path, err);
	saved = good ? errno : saved;
	unlinkat(dir, hidden, 0);
	return error_errno(err, saved, "cannot write '%s/%s'", path, name);
}

int save_place(
	const struct save *s, const char *name, const struct buf *text, struct penstock_error *err)
{
	char hidden[64];

	snprintf(hidden, sizeof(hidden), COMMIT_HIDDEN "new-%u", s->o.rank);
	return save_place_at(s->fd, s->path, hidden, name, text, err);
}

struct commit *save_describe(const struct save *s, const char *run)
{
	_cleanup_(commit_freep) struct commit *c = commit_new();

	if (!c || !(c->run = strdup(run)))
		return NULL;
	c->step = s->step;
	c->attempt = s->o.attempt;
	c->world_size = s->o.world_size;
	c->time_ns = clock_wall_ns();
	for (const struct save_file *f = s->files; f; f = f->hh.next) {
		if (commit_add_file(c, f->name, f->size, f->crc) < 0)
			return NULL;
	}
	return take_pointer(c);
}
