/*
 * inotify for a tree: one descriptor, one watch per directory. The caller maps a watch (`wd`) to
 * its directory.
 */
#ifndef SYNC_KERNEL_WATCH_H
#define SYNC_KERNEL_WATCH_H

#include <stdbool.h>
#include <sys/types.h>

struct penstock_error;
struct watch;

enum watch_event {
	WATCH_MODIFIED, /* a file was written to */
	WATCH_CLOSED, /* a file was closed by a writer, or moved into place */
	WATCH_APPEARED, /* a name appeared: by open, mkdir or link, or as a moved directory */
	WATCH_GONE, /* a name disappeared */
	WATCH_ATTRIB, /* mode, times or number of links changed */
	WATCH_OVERFLOW, /* events were lost; wd and name are meaningless */
	WATCH_IGNORED /* the watch ended, with its directory */
};
/* `is_dir` is true if the name is a directory. `name` is "" for the watched directory itself.
 * `moved` is true if the name appeared or disappeared by a rename. */
typedef void (*watch_fn)(
	void *cookie, enum watch_event event, int wd, const char *name, bool is_dir, bool moved);

int watch_open(struct watch **out, struct penstock_error *err);
void watch_free(struct watch *w);
int watch_fd(const struct watch *w);
/* Watches the directory that is open as `dir_fd`, a descriptor, so that a rename of the directory
 * does no harm. Returns the watch, or -1 with errno, which is ENOSPC at the limit on watches. */
int watch_add(struct watch *w, int dir_fd);
void watch_remove(struct watch *w, int wd);
/* Reads up to 64 KiB of pending events, without waiting, and calls `fn` for each. Returns false if
 * no event was pending. */
bool watch_read(struct watch *w, watch_fn fn, void *cookie);

#endif
