/*
 * The members of an archive as files below a root directory. Every name is resolved component by
 * component from descriptors that are kept open, so that no member is written outside of the root,
 * not even through a link that another process creates meanwhile. The policy decides about names
 * below links and about repeated members. Used by one thread.
 *
 *	struct members m = {.root_fd = fd, .policy = &policy, .max = 1000};
 *	struct member_place place;
 *
 *	members_place(&m, &place, "a/b", err);
 *	fd = members_create(&m, &place, &(struct member_new){S_IFREG, 0644}, err);
 *	members_finish(&m, err);
 *	members_release(&m);
 */
#ifndef ARCHIVE_MEMBERS_H
#define ARCHIVE_MEMBERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <penstock/error.h>

#include "base/buf.h"

/* directories kept open; a few suffice, because archives list a directory's members together */
#define MEMBERS_DIRS 64

struct members;

/* A name without empty and "." components. */
struct member_place {
	char text[PATH_MAX];
	size_t len; /* 0 if the place is the root itself */
	size_t parent_len; /* length of the part before the last '/'; 0 if the parent is the root */
	const char *base; /* the last component, within `text` */
	int parent; /* the directory of `base`, borrowed until another directory is opened */
};

struct member_policy {
	bool absolute; /* a leading '/' is ignored, not refused */
	bool exact; /* a mode or time that cannot be set is an error */
	/* Mode of directories that no member names; if `exact`, the umask does not apply. */
	mode_t dir_mode;
	/* Opens a directory whose path leads through a link or a file. Returns -1 with errno on
	 * error. If NULL, such a path is refused. */
	int (*open_linked)(const struct members *m, const char *path);
	/* Removes the earlier member of the same name. */
	int (*replace)(struct members *m, struct member_place *place, struct penstock_error *err);
};

struct members {
	int root_fd;
	const struct member_policy *policy;
	uint64_t n, max; /* members so far, and their limit */
	struct buf later; /* attributes of directories, set by members_finish() */
	struct {
		char *path; /* owned; NULL if the slot is free */
		size_t len;
		int fd;
		uint64_t used;
	} dirs[MEMBERS_DIRS];
	uint64_t clock; /* counts uses of `dirs` */
};

void members_release(struct members *m);

/* Splits a member's name, counts the member, and opens its parent directory, which is created if
 * missing. */
int members_place(struct members *m, struct member_place *place, const char *name,
	struct penstock_error *err);
/* Does the first part of members_place(): splits the name. */
int member_split(
	struct member_place *place, const char *name, bool absolute, struct penstock_error *err);
/* Returns a descriptor of the directory path[0, len), borrowed until the next call. With `create`,
 * missing directories are created. Returns -1 with errno on error: ELOOP or ENOTDIR if the path
 * leads through a link or a file. */
int members_open(struct members *m, const char *path, size_t len, bool create);
/* Opens the parent directory of `place` again, and sets place->parent. */
int members_reopen(struct members *m, struct member_place *place, struct penstock_error *err);
/* Closes all directories. Called when members are removed or moved, because paths may then lead to
 * other directories. */
void members_forget(struct members *m);

struct member_new {
	mode_t type; /* S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO; a hard link if 0 */
	mode_t mode;
	const char *target; /* target of a link; for a hard link, a name in the directory `from` */
	int from;
};
/* Creates the entry; the policy replaces an earlier entry of that name. For a file, returns its
 * descriptor, which the caller closes; for other entries, returns 0. */
int members_create(struct members *m, struct member_place *place, const struct member_new *what,
	struct penstock_error *err);
/* Creates a directory, or keeps an existing one. Returns 1 if the directory existed, 0 if not. */
int members_mkdir(
	struct members *m, struct member_place *place, mode_t mode, struct penstock_error *err);
/* Creates a hard link to the earlier member `target`. */
int members_link(struct members *m, struct member_place *place, const char *target,
	struct penstock_error *err);

/* Records the time of a directory, and its mode unless `mode` is -1, for members_finish(). */
void members_later(struct members *m, const struct member_place *place, mode_t mode,
	const struct timespec *mtime);
/* Sets the attributes of directories. Called after the last member. */
int members_finish(struct members *m, struct penstock_error *err);

/* Raises "member NAME: text", with unprintable bytes of the name as \xNN. */
int member_error(struct penstock_error *err, enum penstock_code code, const char *name,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Raises "member NAME: WHAT: reason" for errno. */
int member_errno(struct penstock_error *err, const char *name, const char *what);

#endif
