#include "image/layer_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "base/banned.h"

#define MARK	    ".wh."
#define MARK_OPAQUE ".wh..wh..opq"
#define CHECK_EVERY (64 * MIB) /* bytes written between two checks of the free space */
#define KEEP_FREE   (128 * MIB) /* bytes of the disk that a layer must leave free */

/* Deferred attributes of a directory; its path follows. */
struct later {
	mode_t mode;
	struct timespec mtime;
	size_t len;
};

static int bad_member(
	struct penstock_error *err, enum penstock_code code, const char *name, const char *why)
{
	char shown[160];
	size_t n = 0;

	for (; name[n] && n + 1 < sizeof(shown); n++)
		shown[n] = (unsigned char)name[n] < ' ' || name[n] == 0x7F ? '?' : name[n];
	shown[n] = '\0';
	return error_set(err, code, "member '%s': %s", shown, why);
}

static int bad_errno(struct penstock_error *err, const char *name, const char *what)
{
	int saved = errno;
	char text[256];

	snprintf(text, sizeof(text), "%s: %s", what, strerror(saved));
	return bad_member(err, error_code_of_errno(saved), *name ? name : "/", text);
}

int layer_tree_init(struct layer_tree *t, const char *root, struct penstock_error *err)
{
	*t = (struct layer_tree){.root = root, .root_fd = -1, .owners = geteuid() == 0};
	buf_init(&t->later, LIMIT_ARCHIVE_DIRS);
	if (mkdir(root, 0755) < 0)
		return error_errno(err, errno, "cannot create '%s'", root);
	t->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Independent of the umask: this directory becomes "/" of containers. */
	if (t->root_fd < 0 || fchmod(t->root_fd, 0755) < 0)
		return error_errno(err, errno, "cannot open '%s'", root);
	return 0;
}

void layer_tree_release(struct layer_tree *t)
{
	dir_cache_release(&t->dirs);
	if (t->root_fd >= 0)
		close(t->root_fd);
	buf_release(&t->later);
}

/* ---- directories ---- */

/* Opens a directory that is reached through links of the layer, resolved as a container resolves
 * them. */
static int open_through_links(const struct layer_tree *t, const char *path, size_t len)
{
	char copy[PATH_MAX];

	snprintf(copy, sizeof(copy), "%.*s", (int)len, path);
	return fs_open_in_root(t->root_fd, copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_one(void *cookie, int parent, const char *name, const char *path, size_t len)
{
	const struct layer_tree *t = cookie;
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(parent, name, flags);

	if (fd >= 0 || (errno != ENOENT && errno != ELOOP && errno != ENOTDIR))
		return fd;
	if (errno != ENOENT)
		return open_through_links(t, path, len);
	if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
		return -1;
	fd = openat(parent, name, flags);
	if (fd >= 0 && fchmod(fd, 0755) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Opens the directory path[0, len) and creates it if it is missing. The tree owns the descriptor.
 * Returns -1 with errno on failure. */
static int open_dir(struct layer_tree *t, const char *path, size_t len)
{
	return dir_cache_open(&t->dirs, t->root_fd, path, len, open_one, t);
}

static int open_parent(struct layer_tree *t, struct layer_place *place)
{
	size_t len = (size_t)(place->base - place->text);

	place->parent = open_dir(t, place->text, len ? len - 1 : 0);
	return place->parent < 0 ? -1 : 0;
}

/* Copies the name without empty and "." components. */
static int split_name(
	struct layer_place *place, const char *name, size_t *parent_len, struct penstock_error *err)
{
	const char *p = name;
	size_t depth = 0;

	place->len = *parent_len = 0;
	while (*p) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return bad_member(err, PENSTOCK_E_INVALID, name,
				"its name contains \"..\" and could lead out of the image");
		if (n > NAME_MAX)
			return bad_member(err, PENSTOCK_E_INVALID, name, "its name is too long");
		if (n > 0 && !(n == 1 && p[0] == '.')) {
			if (place->len + n + 2 > sizeof(place->text) ||
				++depth > LIMIT_ARCHIVE_DEPTH)
				return bad_member(err, PENSTOCK_E_LIMIT, name,
					"its name is too long or too deep");
			*parent_len = place->len;
			if (place->len)
				place->text[place->len++] = '/';
			memcpy(place->text + place->len, p, n);
			place->len += n;
		}
		p += n;
		p += strspn(p, "/");
	}
	place->text[place->len] = '\0';
	return 0;
}

int layer_place(struct layer_tree *t, struct layer_place *place, const char *name,
	struct penstock_error *err)
{
	size_t parent_len;
	int r = split_name(place, name, &parent_len, err);

	if (r < 0)
		return r;
	if (++t->members > LIMIT_ARCHIVE_MEMBERS)
		return error_set(err, PENSTOCK_E_LIMIT, "the layer has more than %d members",
			LIMIT_ARCHIVE_MEMBERS);
	place->base = place->text + parent_len + (parent_len ? 1 : 0);
	return open_parent(t, place) < 0 ? bad_errno(err, name, "cannot create its directory") : 0;
}

/* ---- members ---- */

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* Hides the directory of the same name in lower layers. */
static int make_opaque(int fd, const char *name, struct penstock_error *err)
{
	int trusted = fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0);
	int user = fsetxattr(fd, "user.overlay.opaque", "y", 1, 0);

	if ((geteuid() == 0 ? trusted : user) < 0 && trusted < 0 && user < 0)
		return bad_errno(err, name,
			"cannot hide the lower layers' directory; the images need a file system "
			"with extended attributes");
	return 0;
}

/*
 *
 * Removes the entry that an earlier member of that name left. Its parent may be reached through
 * links of the layer, which lead elsewhere while the layer is not "/", so never use the whole path.
 */
static int replace_earlier(
	struct layer_tree *t, struct layer_place *place, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (fstatat(place->parent, place->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : bad_errno(err, place->text, "cannot check it");
	if (!S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode)) {
		if (unlinkat(place->parent, place->base, 0) < 0)
			return bad_errno(err, place->text, "cannot replace the earlier entry");
		return 0;
	}
	r = fs_remove_tree_at(place->parent, place->base, place->text, err);
	if (r < 0)
		return r;
	t->replaced = true;
	/* Directories that were opened through it have changed or are gone. */
	dir_cache_release(&t->dirs);
	return open_parent(t, place) < 0 ? bad_errno(err, place->text, "cannot open its directory")
					 : 0;
}

/* Sets owner, mode and time of a member that is not a directory, through `fd`, or by name if `fd`
 * is -1. */
static int set_meta(const struct layer_tree *t, const struct layer_place *place,
	const struct layer_meta *meta, int fd, bool has_mode, struct penstock_error *err)
{
	const struct timespec times[2] = {meta->mtime, meta->mtime};
	mode_t mode = meta->mode & 07777;

	if (!t->owners)
		mode |= S_IRUSR;
	if (t->owners && (fd >= 0 ? fchown(fd, meta->uid, meta->gid)
				  : fchownat(place->parent, place->base, meta->uid, meta->gid,
					    AT_SYMLINK_NOFOLLOW)) < 0)
		return bad_errno(err, place->text, "cannot set its owner");
	if (has_mode &&
		(fd >= 0 ? fchmod(fd, mode) : fchmodat(place->parent, place->base, mode, 0)) < 0)
		return bad_errno(err, place->text, "cannot set its mode");
	if ((fd >= 0 ? futimens(fd, times)
		     : utimensat(place->parent, place->base, times, AT_SYMLINK_NOFOLLOW)) < 0)
		return bad_errno(err, place->text, "cannot set its time");
	return 0;
}

/* Creates the directory and replaces any other entry of that name. Sets `*marked` if that entry was
 * a whiteout, which means that a lower layer has the directory. */
static int make_dir(
	struct layer_tree *t, struct layer_place *place, bool *marked, struct penstock_error *err)
{
	struct stat st;
	int r;

	if (!place->len || mkdirat(place->parent, place->base, 0755) == 0)
		return 0;
	if (errno != EEXIST || fstatat(place->parent, place->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return bad_errno(err, place->text, "cannot create it");
	if (S_ISDIR(st.st_mode))
		return 0;
	*marked = is_whiteout(&st);
	r = replace_earlier(t, place, err);
	if (r == 0 && mkdirat(place->parent, place->base, 0755) < 0)
		r = bad_errno(err, place->text, "cannot create it");
	return r;
}

int layer_directory(struct layer_tree *t, struct layer_place *place, const struct layer_meta *meta,
	struct penstock_error *err)
{
	struct later later = {meta->mode & 07777, meta->mtime, place->len};
	bool marked = false;
	int r = make_dir(t, place, &marked, err);
	int fd;

	if (r < 0)
		return r;
	fd = open_dir(t, place->text, place->len);
	if (fd < 0)
		return bad_errno(err, place->text, "cannot open it");
	if (marked && make_opaque(fd, place->text, err) < 0)
		return -(int)err->code;
	if (t->owners && fchown(fd, meta->uid, meta->gid) < 0)
		return bad_errno(err, place->text, "cannot set its owner");
	if (!t->owners)
		later.mode |= S_IRWXU;
	buf_add(&t->later, &later, sizeof(later));
	buf_add(&t->later, place->text, place->len);
	return buf_failed(&t->later) ? buf_error(&t->later, "the layer's list of directories", err)
				     : 0;
}

int layer_symlink(struct layer_tree *t, struct layer_place *place, const char *target,
	const struct layer_meta *meta, struct penstock_error *err)
{
	int r = 0;

	if (symlinkat(target, place->parent, place->base) < 0) {
		if (errno == EEXIST)
			r = replace_earlier(t, place, err);
		if (r == 0 && symlinkat(target, place->parent, place->base) < 0)
			r = bad_errno(err, place->text, "cannot create the link");
	}
	return r < 0 ? r : set_meta(t, place, meta, -1, false, err);
}

int layer_hardlink(struct layer_tree *t, struct layer_place *place, const char *target,
	struct penstock_error *err)
{
	_cleanup_close_ int from = -1;
	struct layer_place other;
	struct stat st;
	int r = layer_place(t, &other, target, err);

	if (r < 0)
		return r;
	/* Duplicate the descriptor: opening the other directory may evict it from the cache. */
	from = fcntl(other.parent, F_DUPFD_CLOEXEC, 0);
	if (from < 0 || open_parent(t, place) < 0)
		return bad_errno(err, place->text, "cannot open its directory");
	if (fstatat(from, other.base, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode) ||
		is_whiteout(&st))
		return bad_member(err, PENSTOCK_E_CORRUPT, place->text,
			"the target of the hard link is not a file of the layer");
	if (strcmp(other.text, place->text) == 0)
		return 0;
	if (linkat(from, other.base, place->parent, place->base, 0) == 0)
		return 0;
	if (errno == EEXIST) {
		r = replace_earlier(t, place, err);
		if (r < 0)
			return r;
		if (linkat(from, other.base, place->parent, place->base, 0) == 0)
			return 0;
	}
	return bad_errno(err, place->text, "cannot create the hard link");
}

int layer_fifo(struct layer_tree *t, struct layer_place *place, const struct layer_meta *meta,
	struct penstock_error *err)
{
	int r = replace_earlier(t, place, err);

	if (r == 0 && mkfifoat(place->parent, place->base, 0600) < 0)
		r = bad_errno(err, place->text, "cannot create the FIFO");
	return r < 0 ? r : set_meta(t, place, meta, -1, true, err);
}

int layer_file_begin(
	struct layer_tree *t, struct layer_place *place, int *fd, struct penstock_error *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int r = 0;

	*fd = openat(place->parent, place->base, flags, 0600);
	if (*fd < 0 && errno == EEXIST) {
		r = replace_earlier(t, place, err);
		if (r < 0)
			return r;
		*fd = openat(place->parent, place->base, flags, 0600);
	}
	return *fd < 0 ? bad_errno(err, place->text, "cannot create the file") : 0;
}

int layer_file_end(struct layer_tree *t, const struct layer_place *place,
	const struct layer_meta *meta, int fd, struct penstock_error *err)
{
	int r = set_meta(t, place, meta, fd, true, err);

	if (close(fd) < 0 && r == 0)
		r = bad_errno(err, place->text, "cannot write it");
	return r;
}

int layer_room(struct layer_tree *t, uint64_t bytes, struct penstock_error *err)
{
	uint64_t room;

	t->bytes += bytes;
	t->unchecked += bytes;
	if (t->unchecked < CHECK_EVERY)
		return 0;
	t->unchecked = 0;
	if (fs_free_bytes(t->root, &room, NULL) < 0 || room >= KEEP_FREE)
		return 0;
	return error_set(err, PENSTOCK_E_NO_SPACE,
		"the disk of '%s' is full; free some space, or move the images with PENSTOCK_HOME",
		t->root);
}

/* ---- whiteouts ---- */

static int whiteout(struct layer_tree *t, const struct layer_place *place, const char *name,
	struct penstock_error *err)
{
	struct stat st;

	if (fstatat(place->parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		struct layer_place there = *place;
		size_t before = (size_t)(place->base - place->text);
		int fd;

		/* The layer itself has an entry of that name, which stays. For a directory, only
		 * the one of lower layers is hidden. */
		if (!S_ISDIR(st.st_mode))
			return 0;
		snprintf(there.text + before, sizeof(there.text) - before, "%s", name);
		fd = open_dir(t, there.text, strlen(there.text));
		return fd < 0 ? bad_errno(err, there.text, "cannot open it")
			      : make_opaque(fd, there.text, err);
	}
	if (mknodat(place->parent, name, S_IFCHR | 0600, makedev(0, 0)) < 0)
		return bad_errno(err, place->text,
			"cannot mark the removed entry (requires Linux 5.8 or root)");
	return 0;
}

int layer_mark(struct layer_tree *t, const struct layer_place *place, struct penstock_error *err)
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
		r = bad_member(err, PENSTOCK_E_INVALID, place->text, "the whiteout names no entry");
	else
		r = whiteout(t, place, name + strlen(MARK), err);
	return r < 0 ? r : 1;
}

/* False if a later member has replaced the directory. */
static bool is_still_there(struct layer_tree *t, const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *base = slash ? slash + 1 : path;
	struct stat st;
	int parent;

	if (!t->replaced || !len)
		return true;
	parent = open_dir(t, path, slash ? (size_t)(slash - path) : 0);
	return parent >= 0 && fstatat(parent, base, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISDIR(st.st_mode);
}

int layer_tree_finish(struct layer_tree *t, struct penstock_error *err)
{
	const char *p = t->later.data;

	/* All members are written, so modes and times set now stay. */
	for (size_t at = 0; at < t->later.len;) {
		struct later later;
		char path[PATH_MAX];
		struct timespec times[2];
		int fd;

		memcpy(&later, p + at, sizeof(later));
		at += sizeof(later);
		memcpy(path, p + at, later.len);
		path[later.len] = '\0';
		at += later.len;
		if (!is_still_there(t, path, later.len))
			continue;
		times[0] = times[1] = later.mtime;
		fd = open_dir(t, path, later.len);
		if (fd < 0 || fchmod(fd, later.mode) < 0 || futimens(fd, times) < 0)
			return bad_errno(err, path, "cannot set its mode and time");
	}
	return 0;
}
