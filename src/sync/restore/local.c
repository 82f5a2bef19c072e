/* Decides which local files stay in a restore, and which are set aside. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "sync/plan/commits.h"
#include "sync/restore/internal.h"
#include "transfer/state/part_file.h"

int restore_add(void ***items, size_t *n, void *item)
{
	void **more = array_grow(*items, *n, sizeof(item));

	if (!more)
		return -1;
	*items = more;
	more[(*n)++] = item;
	return 0;
}

static int place_aside(
	const struct sync *s, const char *path, char **out, struct penstock_error *err)
{
	_cleanup_free_ char *first = str_printf(
		"%s/suspect/%d/%s", s->o.private_dir, s->o.attempt, path);
	_cleanup_free_ char *to = first ? strdup(first) : NULL, *parent = to ? strdup(to) : NULL;
	int rc;

	if (!parent)
		return error_memory(err);
	*strrchr(parent, '/') = '\0';
	rc = fs_mkdirs(parent, 0700, err);
	if (rc < 0)
		return rc;
	for (unsigned n = 1; to && faccessat(AT_FDCWD, to, F_OK, AT_SYMLINK_NOFOLLOW) == 0; n++) {
		free(to);
		to = str_printf("%s.%u", first, n);
	}
	*out = take_pointer(to);
	return *out ? 0 : error_memory(err);
}

int restore_set_aside(struct restore *r, const char *path, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *to = NULL;
	int rc = place_aside(r->s, path, &to, err);

	if (rc < 0)
		return rc;
	if (renameat(r->s->root_fd, path, AT_FDCWD, to) < 0)
		return error_errno(err, errno,
			"cannot move '%s' aside to '%s'; the private directory must "
			"be on the file system of the output",
			path, to);
	if (!S_ISREG(mode))
		return 0;
	r->stats.files_suspect++;
	return strlist_add(&r->aside_paths, path) < 0 || strlist_add(&r->aside_files, to) < 0
		       ? error_memory(err)
		       : 0;
}

/* Resets an entry to the state in the bucket. */
static void forget_change(struct restore *r, struct entry *e)
{
	if (!e->work)
		return;
	if (e->flags & ENTRY_PUBLISHED)
		e->seen = e->work->published;
	table_drop_work(&r->s->table, e);
}

/* Returns true if the file matches the record in the journal, and the bucket has no newer
 * version. */
static bool is_whole(const struct restore *r, const struct entry *e, const struct ident *now)
{
	if (!e)
		return false;
	if (e->state == ENTRY_CLOSED)
		return ident_equal(now, &e->seen) && !r->newer &&
		       (!r->s->doubt || (e->flags & ENTRY_SYNCED));
	/* After a restart of the machine, the content of the file is compared. */
	if (r->s->doubt)
		return false;
	if (e->state == ENTRY_SUSPECT || !(e->flags & ENTRY_PUBLISHED))
		return false;
	if (e->flags & ENTRY_APPENDED)
		return now->size >= e->seen.size && now->ino == e->seen.ino;
	return e->seen.ino != 0 && ident_equal(now, &e->seen);
}

int restore_times(
	struct restore *r, struct entry *e, int fd, const char *path, struct penstock_error *err)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
		{.tv_sec = e->seen.mtime_ns / NS_PER_S, .tv_nsec = e->seen.mtime_ns % NS_PER_S}};
	struct stat st;

	if (times[1].tv_nsec < 0) {
		times[1].tv_sec--;
		times[1].tv_nsec += NS_PER_S;
	}
	if (fd < 0 || fchmod(fd, e->mode & 07777) < 0 || futimens(fd, times) < 0 ||
		fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot restore mode and time of '%s'", path);
	if ((uint64_t)st.st_size != e->seen.size)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"cannot restore '%s': the file has %llu bytes instead of %llu", path,
			(unsigned long long)st.st_size, (unsigned long long)e->seen.size);
	ident_of_stat(&e->seen, &st);
	e->mode = st.st_mode;
	plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
	e->flags &= (uint16_t) ~(ENTRY_KEEP | ENTRY_APPENDED);
	return 0;
}

/* ---- partial downloads of a restore that was killed ---- */

static bool is_own_part(const struct sync *s, const char *path)
{
	const char *base = path_last(path);
	_cleanup_free_ char *name = strdup(path);
	const struct entry *e;
	size_t stem;

	if (!name || !part_file_is_marked(base, &stem))
		return false;
	name[(size_t)(base - path) + stem] = '\0';
	e = table_find_path(&s->table, name);
	return e && !e->below && (e->flags & ENTRY_PUBLISHED);
}

static bool is_begun(const struct sync *s, const char *path)
{
	static const char journal[] = ".journal";
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_free_ char *name = strdup(path);
	_cleanup_close_ int fd = -1;
	const struct entry *e;

	if (!dir || !name || !str_ends(path, OBJECT_PART_SUFFIX))
		return false;
	name[strlen(name) - strlen(OBJECT_PART_SUFFIX)] = '\0';
	if (str_ends(name, journal))
		name[strlen(name) - strlen(journal)] = '\0';
	e = table_find_path(&s->table, name);
	if (!e || e->below || !(e->flags & ENTRY_PUBLISHED))
		return false;
	fd = openat(s->root_fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && part_file_is_ours(fd, base);
}

void restore_drop_begun(const struct restore *r)
{
	for (size_t i = 0; i < r->begun.n; i++)
		unlinkat(r->s->root_fd, r->begun.items[i], 0);
}

/* ---- checkpoints that a local commit proves to be complete ---- */

/* Returns the checkpoint that `path` may be part of, or NULL if there is no such checkpoint, or if
 * out of memory. */
static char *checkpoint_of(const struct restore *r, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	_cleanup_free_ char *commit_path = str_printf("%s" COMMIT_SUFFIX, path);
	const char *base = path_last(path);

	if (!part)
		return NULL;
	if (strcmp(base, COMMIT_NAME) != 0 && commit_is_name(base)) {
		part[strlen(part) - strlen(COMMIT_SUFFIX)] = '\0';
		return take_pointer(part);
	}
	if (commit_path && faccessat(r->s->root_fd, commit_path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return take_pointer(part);
	for (char *slash; (slash = strrchr(part, '/'));) {
		_cleanup_free_ char *commit = NULL;

		*slash = '\0';
		commit = path_join(part, COMMIT_NAME);
		if (commit && faccessat(r->s->root_fd, commit, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return take_pointer(part);
	}
	return NULL;
}

/* Returns true if a complete checkpoint names the file, or if the file is the commit of a complete
 * checkpoint. Such a file is complete, even if its writer was killed. */
static bool is_vouched_for(struct restore *r, const char *path)
{
	_cleanup_free_ char *at = checkpoint_of(r, path), *full = NULL;
	size_t len = at ? strlen(at) : 0;

	/* If another machine has owned the run since, the version in the bucket is newer. */
	if (!at || r->newer)
		return false;
	if (!r->vouch_path || strcmp(r->vouch_path, at) != 0) {
		commit_free(r->vouch);
		r->vouch = NULL;
		free(r->vouch_path);
		full = path_join(r->s->o.dir, at);
		if (full && commit_open(&r->vouch, full, NULL) == 0 &&
			commit_verify(r->vouch, true, NULL, NULL) < 0) {
			commit_free(r->vouch);
			r->vouch = NULL;
		}
		r->vouch_path = strdup(at);
	}
	if (!r->vouch)
		return false;
	if (r->vouch->single)
		return true;
	return path[len] == '/' && (strcmp(path + len + 1, COMMIT_NAME) == 0 ||
					   commit_find_file(r->vouch, path + len + 1));
}

static int keep_vouched(struct restore *r, const char *path, const struct stat *st,
	const struct ident *now, struct penstock_error *err)
{
	struct entry *e = table_get_path(&r->s->table, path);

	if (!e || e->below)
		return error_memory(err);
	plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
	e->flags &= (uint16_t)~ENTRY_KEEP;
	r->stats.files_unsent++;
	return plan_closed(&r->s->plan, e, now, st->st_mode, CLOSE_TRUE, clock_monotonic_ms()) < 0
		       ? error_memory(err)
		       : 0;
}

/* ---- each name ---- */

static int check_file(
	struct restore *r, const char *path, const struct stat *st, struct penstock_error *err)
{
	struct entry *e = table_find_path(&r->s->table, path);
	_cleanup_close_ int file = openat(r->s->root_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct published p;
	struct ident now;
	int same = 0;

	ident_of_stat(&now, st);
	if (e && e->below)
		e = NULL;
	if (!e && is_own_part(r->s, path)) {
		if (unlinkat(r->s->root_fd, path, 0) < 0)
			return error_errno(err, errno, "cannot remove '%s'", path);
		return 0;
	}
	if (!e && is_begun(r->s, path))
		/* The fetch continues this partial download. */
		return strlist_add(&r->begun, path) < 0 ? error_memory(err) : 0;
	if (e && is_whole(r, e, &now)) {
		if (e->state == ENTRY_CLOSED) {
			r->stats.files_unsent++;
		} else {
			r->stats.files_kept++;
			if (!(e->flags & ENTRY_APPENDED))
				e->seen = now;
		}
		e->flags &= (uint16_t)~ENTRY_KEEP;
		if (e->state == ENTRY_GONE)
			plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
		return 0;
	}
	if (e)
		forget_change(r, e);
	/* The file is not in the journal, or a restore that was killed has fetched it: compare the
	 * content. */
	if (e && (e->flags & ENTRY_PUBLISHED) && file >= 0) {
		published_of(e, &p);
		same = recheck_content(r->s, file, path, now.size, &p, err);
	}
	if (same < 0)
		return error_prefix(err, "%s", path);
	if (same) {
		r->stats.files_kept++;
		return restore_times(r, e, file, path, err);
	}
	if (is_vouched_for(r, path))
		return keep_vouched(r, path, st, &now, err);
	if (e && (e->flags & ENTRY_PUBLISHED)) {
		plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_GONE);
		e->flags |= ENTRY_KEEP;
	} else if (e) {
		table_remove(&r->s->table, e);
	}
	return restore_set_aside(r, path, st->st_mode, err);
}

static int check_name(
	struct restore *r, const char *path, const struct stat *st, struct penstock_error *err)
{
	struct entry *e;
	char target[PATH_MAX];
	ssize_t n;

	if (S_ISREG(st->st_mode))
		return check_file(r, path, st, err);
	if (!S_ISLNK(st->st_mode))
		return 0; /* a pipe, a socket or a device of the last attempt does no harm */
	e = table_find_path(&r->s->table, path);
	n = readlinkat(r->s->root_fd, path, target, sizeof(target) - 1);
	if (n >= 0)
		target[n] = '\0';
	if (e && S_ISLNK(e->mode) && e->text && n >= 0 && strcmp(e->text, target) == 0) {
		plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
		e->flags &= (uint16_t)~ENTRY_KEEP;
		return 0;
	}
	/* Links are not in the journal. A link stays if the table has no entry of its name: the
	 * manifest may not list the link yet. */
	return e ? restore_set_aside(r, path, st->st_mode, err) : 0;
}

int restore_check_dir(struct restore *r, const char *path, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *dir = fs_list_at(r->s->root_fd, *path ? path : ".");
	struct dirent *d;
	int rc = 0;

	if (!dir)
		return error_errno(
			err, errno, "cannot read the output directory '%s'", *path ? path : ".");
	while (rc == 0 && (d = fs_next_entry(dir))) {
		_cleanup_free_ char *below = str_printf(
			"%s%s%s", path, *path ? "/" : "", d->d_name);
		struct entry *e;
		struct stat st;

		if (!below)
			return error_memory(err);
		if (strcmp(below, ".penstock") == 0 || commits_is_hidden(d->d_name) ||
			fstatat(r->s->root_fd, below, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		e = table_find_path(&r->s->table, below);
		if (S_ISDIR(st.st_mode) && e && !e->below && (e->flags & ENTRY_KEEP))
			rc = restore_set_aside(r, below, st.st_mode, err);
		else if (S_ISDIR(st.st_mode)) {
			if (e) {
				plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
				e->flags &= (uint16_t)~ENTRY_KEEP;
			}
			rc = restore_check_dir(r, below, err);
		} else
			rc = check_name(r, below, &st, err);
	}
	if (rc == 0 && errno)
		rc = error_errno(
			err, errno, "cannot read the output directory '%s'", *path ? path : ".");
	return rc;
}

int restore_note_missing(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct restore *r = cookie;
	struct stat st;

	if (e->below || S_ISLNK(e->mode) || e->state == ENTRY_GONE)
		return 0;
	entry_path(e, &path);
	if (buf_failed(&path))
		return -1;
	if (fstatat(r->s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	forget_change(r, e);
	if (!(e->flags & ENTRY_PUBLISHED))
		return 0;
	plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_GONE);
	e->flags |= ENTRY_KEEP;
	return 0;
}
