#include "image/layer_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"

#define MARK	    ".wh."
#define MARK_OPAQUE ".wh..wh..opq"
#define CHECK_EVERY (64 * MIB) /* bytes written between two checks of the free space */
#define KEEP_FREE   (128 * MIB) /* bytes of the disk that a layer must leave free */

/* ---- members ---- */

/* Hides the directory of the same name in lower layers. */
static int make_opaque(int fd, const char *name, struct penstock_error *err)
{
	int trusted = fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0);
	int user = fsetxattr(fd, "user.overlay.opaque", "y", 1, 0);

	if ((geteuid() == 0 ? trusted : user) < 0 && trusted < 0 && user < 0)
		return member_errno(err, name,
			"cannot hide the lower layers' directory, which needs a file system with "
			"extended attributes");
	return 0;
}

/* Opens a directory whose path leads through links of the layer. Resolves the links as in a
 * container. */
static int open_linked(const struct members *m, const char *path)
{
	return fs_open_in_root(m->root_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Removes the entry of an earlier member with the same name. The path of the entry may lead through
 * links of the layer, which are correct only if the layer is "/", so the entry is removed relative
 * to its directory. */
static int replace_earlier(
	struct members *m, struct member_place *place, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (fstatat(place->parent, place->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT
			       ? 0
			       : member_errno(err, place->text, "cannot stat the earlier entry");
	if (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
		return unlinkat(place->parent, place->base, 0) == 0
			       ? 0
			       : member_errno(err, place->text, "cannot replace the earlier entry");
	r = fs_remove_tree_at(place->parent, place->base, place->text, err);
	if (r < 0)
		return r;
	/* Close the directories that were opened through the removed entry: they have changed or
	 * are gone. */
	members_forget(m);
	return members_reopen(m, place, err);
}

static const struct member_policy policy = {.absolute = true,
	.exact = true,
	.dir_mode = 0755,
	.open_linked = open_linked,
	.replace = replace_earlier};

int layer_tree_init(struct layer_tree *t, const char *root, struct penstock_error *err)
{
	*t = (struct layer_tree){.root = root, .owners = geteuid() == 0};
	t->members = (struct members){.root_fd = -1,
		.policy = &policy,
		.max = LIMIT_ARCHIVE_MEMBERS,
		.later = BUF_INIT(LIMIT_ARCHIVE_DIRS)};
	if (mkdir(root, 0755) < 0)
		return error_errno(err, errno, "cannot create '%s'", root);
	t->members.root_fd = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Set the mode regardless of the umask, because this directory becomes "/" of
	 * containers. */
	if (t->members.root_fd < 0 || fchmod(t->members.root_fd, 0755) < 0)
		return error_errno(err, errno, "cannot open '%s'", root);
	return 0;
}

void layer_tree_release(struct layer_tree *t)
{
	members_release(&t->members);
	if (t->members.root_fd >= 0)
		close(t->members.root_fd);
}

/* Sets owner, mode and time of a member that is not a directory, through `fd`, or by name if `fd`
 * is -1. */
static int set_meta(const struct layer_tree *t, const struct member_place *place,
	const struct layer_meta *meta, int fd, bool has_mode, struct penstock_error *err)
{
	const struct timespec times[2] = {meta->mtime, meta->mtime};
	mode_t mode = meta->mode & 07777;

	if (!t->owners)
		mode |= S_IRUSR;
	if (t->owners && (fd >= 0 ? fchown(fd, meta->uid, meta->gid)
				  : fchownat(place->parent, place->base, meta->uid, meta->gid,
					    AT_SYMLINK_NOFOLLOW)) < 0)
		return member_errno(err, place->text, "cannot set the owner");
	if (has_mode &&
		(fd >= 0 ? fchmod(fd, mode) : fchmodat(place->parent, place->base, mode, 0)) < 0)
		return member_errno(err, place->text, "cannot set the mode");
	if ((fd >= 0 ? futimens(fd, times)
		     : utimensat(place->parent, place->base, times, AT_SYMLINK_NOFOLLOW)) < 0)
		return member_errno(err, place->text, "cannot set the time");
	return 0;
}

int layer_directory(struct layer_tree *t, struct member_place *place, const struct layer_meta *meta,
	struct penstock_error *err)
{
	mode_t mode = (meta->mode & 07777) | (t->owners ? 0 : S_IRWXU);
	struct stat earlier;
	/* A directory that replaces a whiteout has to hide the directory of a lower layer. */
	bool hides = place->len &&
		     fstatat(place->parent, place->base, &earlier, AT_SYMLINK_NOFOLLOW) == 0 &&
		     (S_ISCHR(earlier.st_mode) && earlier.st_rdev == makedev(0, 0));
	int fd, r = members_mkdir(&t->members, place, 0755, err);

	if (r < 0)
		return r;
	fd = members_open(&t->members, place->text, place->len, true);
	if (fd < 0)
		return member_errno(err, place->text, "cannot open the directory");
	if (hides && make_opaque(fd, place->text, err) < 0)
		return -(int)err->code;
	if (t->owners && fchown(fd, meta->uid, meta->gid) < 0)
		return member_errno(err, place->text, "cannot set the owner");
	members_later(&t->members, place, mode, &meta->mtime);
	return 0;
}

int layer_entry(struct layer_tree *t, struct member_place *place, const struct member_new *what,
	const struct layer_meta *meta, struct penstock_error *err)
{
	int r = members_create(&t->members, place, what, err);

	return r < 0 ? r : set_meta(t, place, meta, -1, what->type == S_IFIFO, err);
}

int layer_file_meta(const struct layer_tree *t, const struct member_place *place,
	const struct layer_meta *meta, int fd, struct penstock_error *err)
{
	return set_meta(t, place, meta, fd, true, err);
}

int layer_room(struct layer_tree *t, uint64_t bytes, struct penstock_error *err)
{
	uint64_t room;

	t->unchecked += bytes;
	if (t->unchecked < CHECK_EVERY)
		return 0;
	t->unchecked = 0;
	if (fs_free_bytes(t->root, &room, NULL) < 0 || room >= KEEP_FREE)
		return 0;
	return error_set(err, PENSTOCK_E_NO_SPACE,
		"cannot unpack to '%s': the disk is full; free some space, or move the images with "
		"PENSTOCK_HOME",
		t->root);
}

/* ---- whiteouts ---- */

static int whiteout(struct layer_tree *t, const struct member_place *place, const char *name,
	struct penstock_error *err)
{
	struct stat st;

	if (fstatat(place->parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		struct member_place there = *place;
		size_t before = (size_t)(place->base - place->text);
		int fd;

		/* The layer itself has an entry of that name, which stays. If the entry is a
		 * directory, the directory of lower layers is hidden. */
		if (!S_ISDIR(st.st_mode))
			return 0;
		snprintf(there.text + before, sizeof(there.text) - before, "%s", name);
		fd = members_open(&t->members, there.text, strlen(there.text), false);
		return fd < 0 ? member_errno(err, there.text, "cannot open the directory")
			      : make_opaque(fd, there.text, err);
	}
	if (mknodat(place->parent, name, S_IFCHR | 0600, makedev(0, 0)) < 0)
		return member_errno(err, place->text,
			"cannot mark the removed entry (requires Linux 5.8 or root)");
	return 0;
}

int layer_mark(struct layer_tree *t, const struct member_place *place, struct penstock_error *err)
{
	const char *name = place->base;
	int r;

	if (!str_starts(name, MARK))
		return 0;
	if (strcmp(name, MARK_OPAQUE) == 0)
		r = make_opaque(place->parent, place->text, err);
	else if (str_starts(name, MARK MARK))
		r = 0; /* metadata of aufs, which is not used here */
	else if (name[strlen(MARK)] == '\0' || strcmp(name + strlen(MARK), ".") == 0 ||
		 strcmp(name + strlen(MARK), "..") == 0)
		r = member_error(
			err, PENSTOCK_E_INVALID, place->text, "the whiteout names no entry");
	else
		r = whiteout(t, place, name + strlen(MARK), err);
	return r < 0 ? r : 1;
}
