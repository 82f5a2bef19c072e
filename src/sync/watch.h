/*
 * inotify for a tree: one descriptor, one watch per directory. Which directory a watch belongs to
 * is the caller's business (the `wd`).
 */
#ifndef SYNC_WATCH_H
#define SYNC_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;
struct watch;

enum watch_event {
	WATCH_MODIFIED, /* a file was written to */
	WATCH_CLOSED,	/* a file was closed by a writer, or moved into place */
	WATCH_APPEARED, /* a name was made: by open, mkdir, link, or a directory moved here */
	WATCH_GONE,	/* a name went away */
	WATCH_ATTRIB,	/* mode, times or links of it changed */
	WATCH_OVERFLOW, /* events were lost; wd and name say nothing */
	WATCH_IGNORED	/* the watch is gone, with its directory */
};
/* `is_dir`: what the name stood for. `name` is "" for the directory itself. `moved`: into place. */
typedef void (*watch_fn)(
	void *cookie, enum watch_event event, int wd, const char *name, bool is_dir, bool moved);

int watch_open(struct watch **out, struct penstock_error *err);
void watch_free(struct watch *w);
int watch_fd(const struct watch *w);
/* A descriptor of the directory, not its name, so that nothing can come between. -1: errno;
 * ENOSPC is the limit on watches. */
int watch_add(struct watch *w, int dir_fd);
void watch_remove(struct watch *w, int wd);
/* Calls `fn` for what is there, without waiting; false: there was nothing. */
bool watch_read(struct watch *w, watch_fn fn, void *cookie);

#endif
