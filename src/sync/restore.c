#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "sync/commits.h"
#include "sync/names.h"
#include "sync/sync_internal.h"
#include "base/banned.h"

#define FETCHERS     6
#define FETCH_TRIES  3				/* objects that change while they are fetched */
#define LISTED_SINCE (INT64_C(3600) * NS_PER_S) /* multipart uploads are dated by their start */

struct restore {
	struct sync *s; /* without threads of its own */
	struct sync_restored stats;
	struct commit *vouch; /* a whole checkpoint here; NULL: that of `vouch_path` is not */
	char *vouch_path;     /* the last that was asked for */
	bool newer; /* the manifest, than the journal here: another machine had the run since */
	int64_t manifest_ns;		   /* when the store got it */
	char **aside_paths, **aside_files; /* what was set aside, and where it is now */
	size_t n_aside_paths, n_aside_files;
	char **begun; /* parts of files, and their journals, that an earlier restore has left */
	size_t n_begun;
	struct entry **fetch, **dirs, **links;
	size_t n_fetch, n_dirs, n_links;
	atomic_size_t next; /* of fetch, then of the files set aside */
	atomic_bool failed;
	struct penstock_error error; /* the first; under s->lock */
};

/* Local files: which stay, which are set aside. */

static int add_pointer(void ***items, size_t *n, void *item)
{
	if ((*n & (*n - 1)) == 0) {
		void **more = realloc(*items, (*n ? *n * 2 : 1) * sizeof(void *));

		if (!more)
			return -1;
		*items = more;
	}
	(*items)[(*n)++] = item;
	return 0;
}

/* Moves a local name out of the way. Remembers it for partial/ if it is a file. */
static int set_aside(struct restore *r, const char *path, mode_t mode, struct penstock_error *err)
{
	_cleanup_free_ char *to = NULL, *copy = NULL;
	int rc = restore_aside_place(r->s, path, &to, err);

	if (rc < 0)
		return rc;
	if (renameat(r->s->root_fd, path, AT_FDCWD, to) < 0)
		return error_errno(err, errno,
			"cannot set the incomplete %s aside to %s (the private directory must be "
			"on "
			"the file system of the output)",
			path, to);
	if (!S_ISREG(mode))
		return 0;
	r->stats.files_suspect++;
	copy = strdup(path);
	if (!copy || add_pointer((void ***)&r->aside_paths, &r->n_aside_paths, copy) < 0)
		return error_memory(err);
	copy = NULL;
	if (add_pointer((void ***)&r->aside_files, &r->n_aside_files, to) < 0)
		return error_memory(err);
	to = NULL;
	return 0;
}

/* Back to what the bucket has of it. */
static void forget_change(struct restore *r, struct entry *e)
{
	if (!e->work)
		return;
	if (e->flags & ENTRY_PUBLISHED)
		e->seen = e->work->published;
	table_drop_work(&r->s->table, e);
}

/* What the journal said about it holds, and the bucket has nothing newer. */
static bool is_whole(const struct restore *r, const struct entry *e, const struct ident *now)
{
	if (!e)
		return false;
	if (e->state == ENTRY_CLOSED)
		return ident_equal(now, &e->seen) && !r->newer &&
		       (!r->s->doubt || (e->flags & ENTRY_SYNCED));
	/* Then content tells. */
	if (r->s->doubt)
		return false;
	if (e->state == ENTRY_SUSPECT || !(e->flags & ENTRY_PUBLISHED))
		return false;
	if (e->flags & ENTRY_APPENDED)
		return now->size >= e->seen.size && now->ino == e->seen.ino;
	return e->seen.ino != 0 && ident_equal(now, &e->seen);
}

/* Mode and time as they were published; `e` is then what is here. */
static int set_times(struct entry *e, int fd, const char *path, struct penstock_error *err)
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
		return error_errno(err, errno, "cannot restore mode and time of %s", path);
	if ((uint64_t)st.st_size != e->seen.size)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"%s was restored with %llu bytes instead of %llu", path,
			(unsigned long long)st.st_size, (unsigned long long)e->seen.size);
	ident_of_stat(&e->seen, &st);
	e->mode = st.st_mode;
	e->state = ENTRY_CLEAN;
	e->flags &= (uint16_t) ~(ENTRY_KEEP | ENTRY_APPENDED);
	return 0;
}

/* The fetch goes on from there. */
static int note_begun(struct restore *r, const char *path, struct penstock_error *err)
{
	char *copy = strdup(path);

	if (!copy || add_pointer((void ***)&r->begun, &r->n_begun, copy) < 0) {
		free(copy);
		return error_memory(err);
	}
	return 0;
}

/* What is still there after all: the file need not be fetched any more. */
static void drop_begun(const struct restore *r)
{
	for (size_t i = 0; i < r->n_begun; i++)
		unlinkat(r->s->root_fd, r->begun[i], 0);
}

/* ---- what a commit here says is whole ---- */

/* Where the checkpoint is that `path` may be part of; NULL: nowhere. */
static char *checkpoint_of(const struct restore *r, const char *path)
{
	_cleanup_free_ char *part = strdup(path), *beside = NULL;
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	if (!part)
		return NULL;
	if (strcmp(base, COMMIT_NAME) != 0 && commit_is_name(base)) {
		part[strlen(part) - strlen(COMMIT_SUFFIX)] = '\0';
		return take_pointer(part);
	}
	if (asprintf(&beside, "%s" COMMIT_SUFFIX, path) < 0)
		beside = NULL;
	if (beside && faccessat(r->s->root_fd, beside, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return take_pointer(part);
	for (char *slash; (slash = strrchr(part, '/'));) {
		_cleanup_free_ char *commit = NULL;

		*slash = '\0';
		if (asprintf(&commit, "%s/" COMMIT_NAME, part) < 0)
			commit = NULL;
		if (commit && faccessat(r->s->root_fd, commit, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return take_pointer(part);
	}
	return NULL;
}

/* Whether a checkpoint that is whole names it, or it is its commit: then it was closed, whoever was killed. */
static bool is_vouched_for(struct restore *r, const char *path)
{
	_cleanup_free_ char *at = checkpoint_of(r, path), *full = NULL;
	size_t len = at ? strlen(at) : 0;

	/* What another machine has published since is newer. */
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
	e->state = ENTRY_CLEAN;
	e->flags &= (uint16_t)~ENTRY_KEEP;
	r->stats.files_unsent++;
	return plan_closed(&r->s->plan, e, now, st->st_mode, CLOSE_TRUE, clock_monotonic_ms()) < 0
		       ? error_memory(err)
		       : 0;
}

static int look_at_file(
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
	if (!e && restore_is_own_part(r->s, path)) {
		if (unlinkat(r->s->root_fd, path, 0) < 0)
			return error_errno(err, errno, "cannot remove %s", path);
		return 0;
	}
	if (!e && restore_is_begun(r->s, path))
		return note_begun(r, path, err);
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
			e->state = ENTRY_CLEAN;
		return 0;
	}
	if (e)
		forget_change(r, e);
	/* No journal here knows it, or a restore that was killed has fetched it: content tells. */
	if (e && (e->flags & ENTRY_PUBLISHED) && file >= 0) {
		published_of(e, &p);
		same = recheck_content(r->s, file, path, now.size, &p, err);
	}
	if (same < 0)
		return error_prefix(err, "%s", path);
	if (same) {
		r->stats.files_kept++;
		return set_times(e, file, path, err);
	}
	if (is_vouched_for(r, path))
		return keep_vouched(r, path, st, &now, err);
	if (e && (e->flags & ENTRY_PUBLISHED)) {
		e->state = ENTRY_GONE;
		e->flags |= ENTRY_KEEP;
	} else if (e) {
		table_remove(&r->s->table, e);
	}
	return set_aside(r, path, st->st_mode, err);
}

static int look_at_name(
	struct restore *r, const char *path, const struct stat *st, struct penstock_error *err)
{
	struct entry *e;
	char target[PATH_MAX];
	ssize_t n;

	if (S_ISREG(st->st_mode))
		return look_at_file(r, path, st, err);
	if (!S_ISLNK(st->st_mode))
		return 0; /* a pipe or a socket of the last attempt harms nobody */
	e = table_find_path(&r->s->table, path);
	n = readlinkat(r->s->root_fd, path, target, sizeof(target) - 1);
	if (n >= 0)
		target[n] = '\0';
	if (e && S_ISLNK(e->mode) && e->text && n >= 0 && strcmp(e->text, target) == 0) {
		e->state = ENTRY_CLEAN;
		e->flags &= (uint16_t)~ENTRY_KEEP;
		return 0;
	}
	/* Links are not in the journal: one that the manifest does not know yet is as good as new,
	 * unless a file or directory is to stand there. */
	return e ? set_aside(r, path, st->st_mode, err) : 0;
}

static int look_at_dir(struct restore *r, const char *path, struct penstock_error *err)
{
	int fd = openat(
		r->s->root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int rc = 0;

	if (!dir)
		return error_errno(err, errno, "cannot read the output directory %s", path);
	while (rc == 0 && (d = readdir(dir))) {
		_cleanup_free_ char *below = NULL;
		struct entry *e;
		struct stat st;

		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", d->d_name) < 0)
			return error_memory(err);
		if (strcmp(below, ".penstock") == 0 || commits_is_hidden(d->d_name) ||
			fstatat(r->s->root_fd, below, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		e = table_find_path(&r->s->table, below);
		if (S_ISDIR(st.st_mode) && e && !e->below && (e->flags & ENTRY_KEEP))
			rc = set_aside(r, below, st.st_mode, err);
		else if (S_ISDIR(st.st_mode)) {
			if (e) {
				e->state = ENTRY_CLEAN;
				e->flags &= (uint16_t)~ENTRY_KEEP;
			}
			rc = look_at_dir(r, below, err);
		} else
			rc = look_at_name(r, below, &st, err);
	}
	return rc;
}

/* Files that the journal knew and that are not there. */
static int note_missing(void *cookie, struct entry *e)
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
	e->state = ENTRY_GONE;
	e->flags |= ENTRY_KEEP;
	return 0;
}

/* Objects that are newer than the manifest. */

static const char *path_of_key(const struct restore *r, const char *key)
{
	size_t prefix = strlen(r->s->o.prefix);

	if (strncmp(key, r->s->o.prefix, prefix) != 0 || str_starts(key + prefix, ".penstock/") ||
		strlen(key) <= prefix || str_ends(key, "/"))
		return NULL;
	return key + prefix;
}

static int64_t mtime_of(const struct object_info *info)
{
	const char *text = strlist_get(&info->metadata, "mtime");
	const char *dot = text ? strchr(text, '.') : NULL;
	char seconds[24], nanos[10];
	int64_t s = 0, ns = 0;

	if (!dot || dot - text >= (ptrdiff_t)sizeof(seconds) || strlen(dot + 1) != 9)
		return info->modified_ns;
	snprintf(seconds, sizeof(seconds), "%.*s", (int)(dot - text), text);
	snprintf(nanos, sizeof(nanos), "%s", dot + 1);
	if (!str_to_i64(seconds, INT32_MIN, INT64_MAX / NS_PER_S - 1, &s) ||
		!str_to_i64(nanos, 0, NS_PER_S - 1, &ns))
		return info->modified_ns;
	return s * NS_PER_S + ns;
}

/* Takes the object for what is to be restored, if this run wrote it. */
static int adopt(struct restore *r, const char *path, const char *key, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	const char *mode;
	struct entry *e;
	uint64_t bits = 0644;
	int64_t mtime_ns;
	bool local;
	int rc = object_head(r->s->o.client, r->s->o.bucket, key, &info, err);

	if (rc == -PENSTOCK_E_NOT_FOUND) {
		penstock_error_release(err);
		return 0;
	}
	if (rc < 0)
		return rc;
	if (!keep_is_ours(r->s, &info, false))
		return 0;
	e = table_get_path(&r->s->table, path);
	if (!e && errno == ENOMEM)
		return error_memory(err);
	if (!e || e->below || S_ISLNK(e->mode))
		return 0;
	mtime_ns = mtime_of(&info);
	local = e->state != ENTRY_GONE && e->seen.ino != 0;
	if (entry_set_etag(e, info.etag) < 0)
		return error_memory(err);
	e->flags |= ENTRY_PUBLISHED;
	e->flags &= (uint16_t) ~(ENTRY_HAS_CRC | ENTRY_OLDER);
	if (e->work) { /* closed here and not sent yet: newer than any object */
		e->work->published = (struct ident){.size = info.size, .mtime_ns = mtime_ns};
		return 0;
	}
	/* Published just before the kill: the file here is the same one. */
	if (local && e->seen.size == info.size && e->seen.mtime_ns == mtime_ns)
		return 0;
	mode = strlist_get(&info.metadata, "mode");
	if (mode)
		str_to_u64(mode, 0, 0177777, &bits);
	e->mode = S_IFREG | (bits & 07777);
	e->seen = (struct ident){.size = info.size, .mtime_ns = mtime_ns};
	e->state = ENTRY_GONE;
	e->flags |= ENTRY_KEEP;
	return 0;
}

struct listing {
	struct restore *r;
	int rc;
	struct penstock_error *err;
};

static int on_listed(void *cookie, const struct object_info *info)
{
	_cleanup_(buf_release) struct buf decoded = BUF_INIT(LIMIT_S3_KEY + 1);
	struct listing *l = cookie;
	struct restore *r = l->r;
	const char *path = path_of_key(r, info->key);
	char etag[ENTRY_ETAG_SIZE];
	struct entry *e;

	/* Such a key is what a name that is not UTF-8 became. */
	if (path && names_decode(&decoded, path) == 0 && !names_is_utf8(decoded.data, decoded.len))
		path = buf_str(&decoded);
	if (decoded.failure == BUF_NO_MEMORY) {
		l->rc = error_memory(l->err);
		return 1;
	}
	if (!path || info->modified_ns < r->manifest_ns - LISTED_SINCE)
		return 0;
	e = table_find_path(&r->s->table, path);
	if (e && (e->flags & ENTRY_PUBLISHED)) {
		entry_etag(e, etag);
		if (strcmp(etag, info->etag) == 0)
			return 0;
	}
	l->rc = adopt(r, path, info->key, l->err);
	return l->rc < 0;
}

static int find_newer(struct restore *r, struct penstock_error *err)
{
	struct listing l = {.r = r, .err = err};
	int rc = object_list(r->s->o.client, r->s->o.bucket, r->s->o.prefix, NULL, on_listed, &l,
		r->s->o.cancel, err);

	return l.rc < 0 ? l.rc : rc;
}

/* Fetching. */

/* The parents of `path`, none of them a link: what stands in the way is set aside. */
static int make_parents(struct restore *r, const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *part = strdup(path);

	if (!part)
		return error_memory(err);
	for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
		struct stat st;
		int rc = 0;

		*slash = '\0';
		if (fstatat(r->s->root_fd, part, &st, AT_SYMLINK_NOFOLLOW) < 0)
			st.st_mode = 0;
		else if (!S_ISDIR(st.st_mode))
			rc = set_aside(r, part, st.st_mode, err);
		if (rc < 0)
			return rc;
		if (!S_ISDIR(st.st_mode) && mkdirat(r->s->root_fd, part, 0755) < 0 &&
			errno != EEXIST)
			return error_errno(err, errno, "cannot make the directory %s", part);
		*slash = '/';
	}
	return 0;
}

static int finish_file(struct restore *r, struct entry *e, const char *path, const char *key,
	const struct object_info *info, struct penstock_error *err)
{
	_cleanup_close_ int fd = openat(r->s->root_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	int rc;

	pthread_mutex_lock(&r->s->lock);
	rc = set_times(e, fd, path, err);
	if (rc == 0) {
		r->stats.files_fetched++;
		r->stats.bytes_fetched += e->seen.size;
	}
	pthread_mutex_unlock(&r->s->lock);
	if (rc == 0)
		object_remember(r->s->o.client, r->s->o.bucket, key, info->etag, fd, info->size,
			r->s->sent_dir, r->s->o.cancel);
	return rc;
}

/* Of a checkpoint of which something is damaged in the bucket the others do not depend: they are restored. */
static bool pass_over(
	struct restore *r, struct entry *e, const char *path, int rc, struct penstock_error *err)
{
	if (rc != -PENSTOCK_E_NOT_FOUND && rc != -PENSTOCK_E_CORRUPT &&
		rc != -PENSTOCK_E_PRECONDITION && rc != -PENSTOCK_E_CHANGED)
		return false;
	pthread_mutex_lock(&r->s->lock);
	if (!commits_has(&r->s->table, e)) {
		pthread_mutex_unlock(&r->s->lock);
		return false;
	}
	e->flags &= (uint16_t)~ENTRY_KEEP; /* as if it had been deleted here */
	pthread_mutex_unlock(&r->s->lock);
	sync_emit(r->s, SYNC_WARNING, path, 0,
		"%s is %s in the bucket: its checkpoint is not restored whole (%s)", path,
		rc == -PENSTOCK_E_NOT_FOUND ? "missing" : "damaged",
		err && err->message ? err->message : penstock_code_name((enum penstock_code) - rc));
	penstock_error_release(err);
	return true;
}

static int fetch(struct restore *r, struct entry *e, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	_cleanup_free_ char *full = NULL;
	char etag[ENTRY_ETAG_SIZE];
	int rc = 0;

	entry_path(e, &path);
	full = path_join(r->s->o.dir, buf_str(&path));
	if (!full || buf_failed(&path))
		return error_memory(err);
	rc = upload_key(r->s, NULL, buf_str(&path), &key, err);
	for (unsigned n = 0; rc == 0; n++) {
		_cleanup_(object_info_release) struct object_info info = {0};

		entry_etag(e, etag);
		rc = object_get_file(r->s->o.client, r->s->o.bucket, buf_str(&key), full,
			&(struct object_get_options){.if_match = *etag ? etag : NULL,
				.resume = e->seen.size > LIMIT_GET_SINGLE,
				.cancel = r->s->o.cancel},
			&info, err);
		if (rc == 0)
			return finish_file(r, e, buf_str(&path), buf_str(&key), &info, err);
		if (rc != -PENSTOCK_E_PRECONDITION || n == FETCH_TRIES)
			break;
		/* It was published again after the manifest. */
		penstock_error_release(err);
		pthread_mutex_lock(&r->s->lock);
		rc = adopt(r, buf_str(&path), buf_str(&key), err);
		pthread_mutex_unlock(&r->s->lock);
	}
	return pass_over(r, e, buf_str(&path), rc, err) ? 0
							: error_prefix(err, "%s", buf_str(&path));
}

static void *fetcher_main(void *arg)
{
	struct restore *r = arg;

	for (;;) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		size_t i = atomic_fetch_add(&r->next, 1);
		int rc;

		if (i >= r->n_fetch + r->n_aside_files || atomic_load(&r->failed))
			return NULL;
		rc = i < r->n_fetch ? fetch(r, r->fetch[i], &err)
				    : restore_aside_send(r->s, r->aside_paths[i - r->n_fetch],
					      r->aside_files[i - r->n_fetch], &err);
		pthread_mutex_lock(&r->s->lock);
		if (rc < 0 && !atomic_exchange(&r->failed, true))
			error_move(&r->error, &err);
		pthread_mutex_unlock(&r->s->lock);
		penstock_error_release(&err);
		sync_deliver(r->s);
	}
}

static int collect(void *cookie, struct entry *e)
{
	struct restore *r = cookie;

	if (e->state != ENTRY_GONE || !(e->flags & ENTRY_KEEP))
		return 0;
	if (e->below)
		return add_pointer((void ***)&r->dirs, &r->n_dirs, e);
	if (S_ISLNK(e->mode))
		return add_pointer((void ***)&r->links, &r->n_links, e);
	if (!(e->flags & ENTRY_PUBLISHED))
		return 0;
	return add_pointer((void ***)&r->fetch, &r->n_fetch, e);
}

static int fetch_all(struct restore *r, struct penstock_error *err)
{
	pthread_t threads[FETCHERS];
	size_t n = 0, wanted = r->n_fetch + r->n_aside_files;

	for (size_t i = 0; i < r->n_fetch; i++) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		int rc;

		entry_path(r->fetch[i], &path);
		rc = buf_failed(&path) ? error_memory(err) : make_parents(r, buf_str(&path), err);
		if (rc < 0)
			return rc;
	}
	while (n < FETCHERS && n < wanted &&
		pthread_create(&threads[n], NULL, fetcher_main, r) == 0)
		n++;
	if (n == 0)
		fetcher_main(r);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (atomic_load(&r->failed))
		return error_move(err, &r->error);
	return 0;
}

/* Links, empty directories, and the modes and times of directories, from the bottom up. */
static int restore_rest(struct restore *r, struct penstock_error *err)
{
	for (size_t i = 0; i < r->n_dirs + r->n_links; i++) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct entry *e = i < r->n_dirs ? r->dirs[i] : r->links[i - r->n_dirs];
		int rc;

		entry_path(e, &path);
		rc = buf_failed(&path) ? error_memory(err) : make_parents(r, buf_str(&path), err);
		if (rc < 0)
			return rc;
		rc = e->below ? mkdirat(r->s->root_fd, buf_str(&path), 0755)
			      : symlinkat(e->text ? e->text : "", r->s->root_fd, buf_str(&path));
		if (rc < 0 && errno != EEXIST)
			return error_errno(err, errno, "cannot restore %s", buf_str(&path));
		e->state = ENTRY_CLEAN;
		e->flags &= (uint16_t)~ENTRY_KEEP;
	}
	for (size_t i = r->n_links + r->n_dirs; i-- > 0;) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct entry *e = i < r->n_dirs ? r->dirs[i] : r->links[i - r->n_dirs];
		struct timespec times[2] = {
			{.tv_nsec = UTIME_OMIT}, {.tv_sec = e->seen.mtime_ns / NS_PER_S,
							 .tv_nsec = e->seen.mtime_ns % NS_PER_S}};

		entry_path(e, &path);
		if (buf_failed(&path))
			return error_memory(err);
		if (e->below && fchmodat(r->s->root_fd, buf_str(&path), e->mode & 07777, 0) < 0)
			return error_errno(
				err, errno, "cannot restore the mode of %s", buf_str(&path));
		if (times[1].tv_nsec >= 0)
			utimensat(r->s->root_fd, buf_str(&path), times, AT_SYMLINK_NOFOLLOW);
	}
	return 0;
}

static int bring_back(struct restore *r, struct penstock_error *err)
{
	struct sync *s = r->s;
	int rc = state_replay(s, err);

	if (rc == 0)
		rc = journal_open(&s->journal, s->o.journal_path, err);
	if (rc == 0)
		rc = state_attach(s, err);
	if (rc < 0)
		return rc;
	r->stats.found = s->generation > 0 || s->continued;
	r->newer = s->generation > s->journal_generation;
	r->manifest_ns = s->manifest_ns;
	if (!r->stats.found)
		return 0;
	rc = restore_aside_send_left(s, err);
	if (rc == 0)
		rc = find_newer(r, err);
	if (rc == 0)
		rc = look_at_dir(r, "", err);
	if (rc == 0 && table_each(&s->table, note_missing, r) < 0)
		rc = error_memory(err);
	if (rc == 0 && table_each(&s->table, collect, r) < 0)
		rc = error_memory(err);
	if (rc == 0)
		rc = fetch_all(r, err);
	if (rc == 0)
		drop_begun(r);
	if (rc == 0)
		rc = restore_rest(r, err);
	if (rc < 0)
		return rc;
	s->journal_generation = s->restored_generation = s->generation;
	boot_believe(s);
	return state_rewrite_journal(s, err);
}

int sync_restore(const struct sync_options *options, struct sync_restored *restored,
	struct penstock_error *err)
{
	struct restore r = {.error = PENSTOCK_ERROR_INIT};
	int rc = sync_new(&r.s, options, err);

	if (rc == 0)
		rc = bring_back(&r, err);
	if (rc == 0 && restored)
		*restored = r.stats;
	for (size_t i = 0; i < r.n_aside_paths; i++)
		free(r.aside_paths[i]);
	for (size_t i = 0; i < r.n_aside_files; i++)
		free(r.aside_files[i]);
	for (size_t i = 0; i < r.n_begun; i++)
		free(r.begun[i]);
	free(r.begun);
	free(r.aside_paths);
	free(r.aside_files);
	commit_free(r.vouch);
	free(r.vouch_path);
	free(r.fetch);
	free(r.dirs);
	free(r.links);
	penstock_error_release(&r.error);
	sync_free(r.s);
	/* The table of a large output is built again by sync_start(), in pieces of other sizes. */
	malloc_trim(0);
	return rc;
}
