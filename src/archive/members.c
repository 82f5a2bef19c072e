#include "archive/members.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

#define NAME_SHOWN 200 /* bytes of a member's name in a message */

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Attributes of a directory in members.later, followed by the directory's path. */
struct later {
	struct timespec mtime;
	mode_t mode;
	size_t len;
};

int member_error(
	struct penstock_error *err, enum penstock_code code, const char *name, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	size_t n = 0;
	va_list ap;

	for (const unsigned char *p = (const unsigned char *)name; *p && n < NAME_SHOWN; p++, n++) {
		if (*p < 0x20 || *p == 0x7F)
			buf_printf(&text, "\\x%02x", *p);
		else
			buf_add_char(&text, (char)*p);
	}
	buf_add_str(&text, n == NAME_SHOWN ? "...': " : "': ");
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return error_set(err, code, "member '%s", buf_str(&text));
}

int member_errno(struct penstock_error *err, const char *name, const char *what)
{
	int errnum = errno;

	/* strerror() is thread-safe since glibc 2.32. */
	return member_error(err, error_code_of_errno(errnum), *name ? name : "/", "%s: %s", what,
		strerror(errnum));
}

int member_split(
	struct member_place *place, const char *name, bool absolute, struct penstock_error *err)
{
	const char *p = name;
	size_t depth = 0;

	place->len = place->parent_len = 0;
	if (*p == '/' && !absolute)
		return member_error(err, PENSTOCK_E_INVALID, name,
			"the name is absolute; only names below the input directory are unpacked");
	while (*p) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.')
			return member_error(err, PENSTOCK_E_INVALID, name,
				"the name has '..' and could leave the directory");
		if (n > NAME_MAX)
			return member_error(err, PENSTOCK_E_INVALID, name,
				"a component of the name is longer than %d bytes", NAME_MAX);
		if (n > 0 && !(n == 1 && p[0] == '.')) {
			if (place->len + n + 2 > sizeof(place->text) ||
				++depth > LIMIT_ARCHIVE_DEPTH)
				return member_error(err, PENSTOCK_E_LIMIT, name,
					"the name is longer than %d bytes or deeper than %d "
					"directories",
					PATH_MAX, LIMIT_ARCHIVE_DEPTH);
			place->parent_len = place->len;
			if (place->len)
				place->text[place->len++] = '/';
			memcpy(place->text + place->len, p, n);
			place->len += n;
		}
		p += n;
		p += strspn(p, "/");
	}
	place->text[place->len] = '\0';
	place->base = place->text + place->parent_len + (place->parent_len ? 1 : 0);
	return 0;
}

/* ---- directories ---- */

/* Opens the directory `name` in `parent`; path[0, len) is its path from the root. */
static int open_one(const struct members *m, int parent, const char *name, const char *path,
	size_t len, bool create)
{
	int fd = openat(parent, name, OPEN_DIR);

	if (fd < 0 && (errno == ELOOP || errno == ENOTDIR) && m->policy->open_linked) {
		char whole[PATH_MAX];

		memcpy(whole, path, len);
		whole[len] = '\0';
		return m->policy->open_linked(m, whole);
	}
	if (fd >= 0 || errno != ENOENT || !create)
		return fd;
	if (mkdirat(parent, name, m->policy->dir_mode) < 0 && errno != EEXIST)
		return -1;
	fd = openat(parent, name, OPEN_DIR);
	if (fd >= 0 && m->policy->exact && fchmod(fd, m->policy->dir_mode) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int members_open(struct members *m, const char *path, size_t len, bool create)
{
	size_t parent_len = len, slot = 0;
	char name[NAME_MAX + 1];
	int parent, fd;

	if (len == 0)
		return m->root_fd;
	for (size_t i = 0; i < MEMBERS_DIRS; i++) {
		if (m->dirs[i].path && m->dirs[i].len == len &&
			memcmp(m->dirs[i].path, path, len) == 0) {
			m->dirs[i].used = ++m->clock;
			return m->dirs[i].fd;
		}
	}
	while (parent_len > 0 && path[parent_len - 1] != '/')
		parent_len--;
	memcpy(name, path + parent_len, len - parent_len);
	name[len - parent_len] = '\0';
	parent = members_open(m, path, parent_len ? parent_len - 1 : 0, create);
	fd = parent < 0 ? -1 : open_one(m, parent, name, path, len, create);
	if (fd < 0)
		return -1;
	/* Keep the descriptor in a free slot, or in place of the least recently used one. */
	for (size_t i = 1; i < MEMBERS_DIRS && m->dirs[slot].path; i++) {
		if (!m->dirs[i].path || m->dirs[i].used < m->dirs[slot].used)
			slot = i;
	}
	if (m->dirs[slot].path)
		close(m->dirs[slot].fd);
	free(m->dirs[slot].path);
	m->dirs[slot].path = strndup(path, len);
	if (!m->dirs[slot].path) {
		close(fd);
		errno = ENOMEM;
		return -1;
	}
	m->dirs[slot].len = len;
	m->dirs[slot].fd = fd;
	m->dirs[slot].used = ++m->clock;
	return fd;
}

void members_forget(struct members *m)
{
	for (size_t i = 0; i < MEMBERS_DIRS; i++) {
		if (m->dirs[i].path)
			close(m->dirs[i].fd);
		free(m->dirs[i].path);
		m->dirs[i].path = NULL;
	}
}

void members_release(struct members *m)
{
	members_forget(m);
	buf_release(&m->later);
}

int members_reopen(struct members *m, struct member_place *place, struct penstock_error *err)
{
	place->parent = members_open(m, place->text, place->parent_len, true);
	if (place->parent >= 0)
		return 0;
	if (errno == ELOOP || errno == ENOTDIR)
		return member_error(err, PENSTOCK_E_INVALID, place->text,
			"the member is below a symbolic link or a file of the same archive");
	return member_errno(err, place->text, "cannot create the parent directory");
}

int members_place(
	struct members *m, struct member_place *place, const char *name, struct penstock_error *err)
{
	int r = member_split(place, name, m->policy->absolute, err);

	if (r < 0)
		return r;
	if (++m->n > m->max)
		return error_set(err, PENSTOCK_E_LIMIT, "cannot unpack more than %llu members",
			(unsigned long long)m->max);
	return members_reopen(m, place, err);
}

/* ---- entries ---- */

static int try_create(const struct member_place *place, const struct member_new *what)
{
	switch (what->type) {
	case S_IFREG:
		return openat(place->parent, place->base,
			O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, what->mode);
	case S_IFDIR:
		return mkdirat(place->parent, place->base, what->mode);
	case S_IFLNK:
		return symlinkat(what->target, place->parent, place->base);
	case S_IFIFO:
		return mkfifoat(place->parent, place->base, what->mode);
	default:
		return linkat(what->from, what->target, place->parent, place->base, 0);
	}
}

int members_create(struct members *m, struct member_place *place, const struct member_new *what,
	struct penstock_error *err)
{
	int fd;

	if (place->len == 0)
		return member_error(err, PENSTOCK_E_INVALID, "", "the member has no name");
	fd = try_create(place, what);
	if (fd < 0 && errno == EEXIST) {
		int r = m->policy->replace(m, place, err);

		if (r < 0)
			return r;
		fd = try_create(place, what);
	}
	return fd < 0 ? member_errno(err, place->text, "cannot create the entry") : fd;
}

int members_mkdir(
	struct members *m, struct member_place *place, mode_t mode, struct penstock_error *err)
{
	struct stat st;

	if (place->len && mkdirat(place->parent, place->base, mode) == 0)
		return 0;
	if (!place->len ||
		(errno == EEXIST &&
			fstatat(place->parent, place->base, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISDIR(st.st_mode)))
		return 1;
	return members_create(m, place, &(struct member_new){S_IFDIR, mode, NULL, -1}, err);
}

int members_link(struct members *m, struct member_place *place, const char *target,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int from = -1;
	struct member_place to;
	struct stat st;
	int r;

	if (member_split(&to, target, m->policy->absolute, &why) < 0 || to.len == 0)
		return member_error(err, PENSTOCK_E_INVALID, place->text,
			"the hard link refers to a name outside of the archive");
	if (strcmp(place->text, to.text) == 0)
		return 0;
	/* Duplicate the descriptor: members_reopen() may close the directory that members_open()
	 * returned. */
	from = fcntl(members_open(m, to.text, to.parent_len, false), F_DUPFD_CLOEXEC, 0);
	if (from < 0 || fstatat(from, to.base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode))
		return member_error(err, PENSTOCK_E_INVALID, place->text,
			"the hard link refers to a file that is not before it in the archive");
	r = members_reopen(m, place, err);
	return r < 0 ? r
		     : members_create(m, place,
			       &(struct member_new){.target = to.base, .from = from}, err);
}

/* ---- attributes of directories ---- */

void members_later(struct members *m, const struct member_place *place, mode_t mode,
	const struct timespec *mtime)
{
	struct later later = {*mtime, mode, place->len};
	size_t saved = m->later.len;

	/* If `later` is full, directories keep their current mode and time; members_finish() fails
	 * if the policy is `exact`. */
	if (buf_add(&m->later, &later, sizeof(later)) < 0 ||
		buf_add(&m->later, place->text, place->len + 1) < 0)
		buf_truncate(&m->later, saved);
}

int members_finish(struct members *m, struct penstock_error *err)
{
	if (buf_failed(&m->later) && m->policy->exact)
		return buf_error(&m->later, "the list of directories", err);
	for (size_t at = 0; at < m->later.len;) {
		struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
		_cleanup_close_ int fd = -1;
		const char *path, *slash;
		struct later later;
		int parent;

		memcpy(&later, m->later.data + at, sizeof(later));
		path = m->later.data + at + sizeof(later);
		at += sizeof(later) + later.len + 1;
		slash = memrchr(path, '/', later.len);
		parent = members_open(m, path, slash ? (size_t)(slash - path) : 0, false);
		fd = parent < 0 ? -1
				: openat(parent,
					  !*path  ? "."
					  : slash ? slash + 1
						  : path,
					  OPEN_DIR);
		/* A later member may have replaced the directory. */
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
			continue;
		times[1] = later.mtime;
		if ((fd < 0 || (later.mode != (mode_t)-1 && fchmod(fd, later.mode) < 0) ||
			    futimens(fd, times) < 0) &&
			m->policy->exact)
			return member_errno(err, path, "cannot set mode and time of the directory");
	}
	return 0;
}
