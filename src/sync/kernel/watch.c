#include "sync/kernel/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

#define EVENTS                                                                                     \
	(IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE |        \
		IN_ATTRIB | IN_EXCL_UNLINK | IN_ONLYDIR)
#define READ_SIZE (64 * KIB)

struct watch {
	int fd;
	char *buffer;
};

int watch_open(struct watch **out, struct penstock_error *err)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (w)
		w->buffer = aligned_alloc(16, READ_SIZE);
	if (!w || !w->buffer) {
		free(w);
		return error_memory(err);
	}
	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->fd < 0) {
		int rc = error_errno(err, errno, "cannot watch for changes (inotify)");

		watch_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	if (w->fd >= 0)
		close(w->fd);
	free(w->buffer);
	free(w);
}

int watch_fd(const struct watch *w)
{
	return w->fd;
}

int watch_add(struct watch *w, int dir_fd)
{
	return inotify_add_watch(w->fd, fs_fd_path(dir_fd).text, EVENTS);
}

void watch_remove(struct watch *w, int wd)
{
	inotify_rm_watch(w->fd, wd);
}

bool watch_read(struct watch *w, watch_fn fn, void *cookie)
{
	ssize_t n = read(w->fd, w->buffer, READ_SIZE);

	for (ssize_t at = 0; at < n;) {
		const struct inotify_event *e = (const struct inotify_event *)(w->buffer + at);
		const char *name = e->len ? e->name : "";
		bool is_dir = (e->mask & IN_ISDIR) != 0;

		if (e->mask & IN_Q_OVERFLOW)
			fn(cookie, WATCH_OVERFLOW, -1, "", false, false);
		if (e->mask & IN_IGNORED)
			fn(cookie, WATCH_IGNORED, e->wd, "", false, false);
		if (e->mask & (IN_CREATE | IN_MOVED_TO))
			fn(cookie,
				!is_dir && (e->mask & IN_MOVED_TO) ? WATCH_CLOSED : WATCH_APPEARED,
				e->wd, name, is_dir, (e->mask & IN_MOVED_TO) != 0);
		if (e->mask & IN_MODIFY)
			fn(cookie, WATCH_MODIFIED, e->wd, name, is_dir, false);
		if (e->mask & IN_CLOSE_WRITE)
			fn(cookie, WATCH_CLOSED, e->wd, name, is_dir, false);
		if (e->mask & (IN_DELETE | IN_MOVED_FROM))
			fn(cookie, WATCH_GONE, e->wd, name, is_dir, (e->mask & IN_MOVED_FROM) != 0);
		if (e->mask & IN_ATTRIB)
			fn(cookie, WATCH_ATTRIB, e->wd, name, is_dir, false);
		at += (ssize_t)(sizeof(*e) + e->len);
	}
	return n > 0;
}
