#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "checkpoint/commit.h"
#include "copy/copy.h"
#include "sync/plan/commits.h"
#include "sync/record/names.h"
#include "sync/restore/internal.h"

/* number of times that an object is fetched again if it is replaced meanwhile */
#define FETCH_TRIES 3
/* objects that are older than the manifest by up to this time are examined, too, because a store
 * may date a multipart upload by its start */
#define LISTED_SINCE (INT64_C(3600) * NS_PER_S)

/* ---- files that were set aside ---- */

static void aside_sent(struct sync *s, const char *path, uint64_t size)
{
	sync_emit(s, SYNC_PARTIAL, path, size, "%spartial/%s", s->state, path);
}

/* Warns that a file could not be sent. The file is safe in the private directory, and the next
 * attempt tries again. */
static void aside_failed(
	struct sync *s, const char *path, const char *file, const struct penstock_error *err)
{
	sync_emit(s, SYNC_WARNING, path, 0,
		"cannot send the incomplete file '%s', which stays only in '%s': %s", path, file,
		err->message ? err->message : "");
}

/* Returns 1 if the file could not be sent and other files cannot be sent now either, else 0; a
 * negative code only if cancelled. */
static int aside_send(
	struct sync *s, const char *path, const char *file, struct penstock_error *err)
{
	_cleanup_close_ int fd = open(file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct stat st = {0};
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		rc = error_errno(&e, errno, "cannot read '%s'", file);
	else
		rc = upload_partial(s, fd, path, (uint64_t)st.st_size, s->o.cancel, &e);
	if (rc == 0) {
		aside_sent(s, path, (uint64_t)st.st_size);
		unlink(file); /* else a later attempt would overwrite a newer version */
		return 0;
	}
	if (rc == -PENSTOCK_E_CANCELLED)
		return error_move(err, &e);
	aside_failed(s, path, file, &e);
	return e.repeats || error_is_retryable(&e);
}

/* Files that earlier attempts set aside. */
struct left {
	struct sync *s;
	/* directories of the attempts before the attempt whose files are sent */
	struct strlist older;
};

/* Returns true if an older version of the file could not be sent: a later attempt sends the older
 * version, which must not replace a newer object. */
static bool has_older(const struct left *left, const char *path)
{
	bool found = false;

	for (size_t i = 0; i < left->older.n && !found; i++) {
		_cleanup_free_ char *file = path_join(left->older.items[i], path);
		struct stat st;

		found = !file || (lstat(file, &st) == 0 && S_ISREG(st.st_mode));
	}
	return found;
}

/* Warns, with the reason in errno, that the directory could not be read completely. The next
 * attempt sends the files that remain. */
static void warn_unsent(struct sync *s, const char *dir)
{
	sync_emit(s, SYNC_WARNING, NULL, 0,
		"cannot send all incomplete files below '%s': %s; they stay there", dir,
		strerror(errno));
}

/* Sends all regular files below `name` in the open directory `at`; `dir` is the path of `name`, and
 * `path` its place in the output. Returns 1, and stops, if no file can be sent now; else 0, or a
 * negative code. */
static int send_below(const struct left *left, int at, const char *name, const char *dir,
	const char *path, struct penstock_error *err)
{
	_cleanup_closedir_ DIR *list = fs_list_at(at, name);
	const struct dirent *d;
	int rc = 0;

	if (!list && errno == ENOMEM)
		return error_memory(err);
	while (list && rc == 0 && (d = fs_next_entry(list))) {
		_cleanup_free_ char *file = path_join(dir, d->d_name);
		_cleanup_free_ char *below = str_printf(
			"%s%s%s", path, *path ? "/" : "", d->d_name);
		struct stat st;

		if (!below || !file)
			return error_memory(err);
		if (fstatat(dirfd(list), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISREG(st.st_mode) && !has_older(left, below)) {
			rc = aside_send(left->s, below, file, err);
			sync_deliver(left->s);
		} else if (S_ISDIR(st.st_mode)) {
			rc = send_below(left, dirfd(list), d->d_name, file, below, err);
		}
	}
	if (rc == 0 && errno)
		warn_unsent(left->s, dir);
	return rc;
}

static int by_number(const struct dirent **a, const struct dirent **b)
{
	long x = strtol((*a)->d_name, NULL, 10), y = strtol((*b)->d_name, NULL, 10);

	return (x > y) - (x < y);
}

static int is_attempt(const struct dirent *d)
{
	return d->d_name[0] >= '1' && d->d_name[0] <= '9';
}

static int aside_send_left(struct sync *s, struct penstock_error *err)
{
	_cleanup_free_ char *all = path_join(s->o.private_dir, "suspect");
	struct left left = {.s = s};
	struct dirent **names = NULL;
	int rc = 0, n;

	if (!all)
		return error_memory(err);
	n = scandir(all, &names, is_attempt, by_number);
	if (n < 0 && errno != ENOENT)
		warn_unsent(s, all);
	/* The oldest attempt is sent first, so that the version that was set aside last stays in
	 * partial/. */
	for (int i = 0; i < n; i++) {
		_cleanup_free_ char *dir = path_join(all, names[i]->d_name);

		if (!dir)
			rc = error_memory(err);
		else if (rc == 0)
			rc = send_below(&left, AT_FDCWD, dir, dir, "", err);
		if (rc == 0 && strlist_add(&left.older, dir) < 0)
			rc = error_memory(err);
		free(names[i]);
	}
	free(names);
	strlist_release(&left.older);
	return rc < 0 ? rc : 0;
}

/* ---- objects that are newer than the manifest ---- */

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

/* Takes the object under the key as the newest version of the file, to be fetched, if this run
 * wrote the object and no unsent local version is newer. */
static int adopt(struct restore *r, const char *path, const char *key, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	const char *mode;
	struct entry *e;
	uint64_t bits = 0644;
	int64_t mtime_ns;
	bool local;
	int rc = object_head(sync_at(r->s, key), &info, err);

	if (rc < 0)
		return error_expected(rc, PENSTOCK_E_NOT_FOUND, err) ? 0 : rc;
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
	/* Published just before the kill: the local file is the same version. */
	if (local && e->seen.size == info.size && e->seen.mtime_ns == mtime_ns)
		return 0;
	mode = strlist_get(&info.metadata, "mode");
	if (mode)
		str_to_u64(mode, 0, 0177777, &bits);
	e->mode = S_IFREG | (bits & 07777);
	e->seen = (struct ident){.size = info.size, .mtime_ns = mtime_ns};
	plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_GONE);
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

	if (path)
		path = names_of_key(&decoded, path);
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
	int rc = object_list(
		sync_at(r->s, r->s->o.prefix), NULL, on_listed, &l, r->s->o.cancel, err);

	return l.rc < 0 ? l.rc : rc;
}

/* ---- fetching ---- */

/* Creates the parents of `path`. A file or a link that has the name of a parent is set aside. */
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
			rc = restore_set_aside(r, part, st.st_mode, err);
		if (rc < 0)
			return rc;
		if (!S_ISDIR(st.st_mode) && mkdirat(r->s->root_fd, part, 0755) < 0 &&
			errno != EEXIST)
			return error_errno(err, errno, "cannot create the directory '%s'", part);
		*slash = '/';
	}
	return 0;
}

static void end_restore(struct restore *r, struct penstock_error *err)
{
	if (r->error.code)
		penstock_error_release(err);
	else
		error_move(&r->error, err);
	copy_cancel(r->copy);
}

static void finish_file(struct restore *r, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_close_ int fd = -1;
	int rc;

	entry_path(e, &path);
	fd = openat(r->s->root_fd, buf_str(&path), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	rc = buf_failed(&path) ? error_memory(&err) : restore_times(r, e, fd, buf_str(&path), &err);
	if (rc < 0) {
		end_restore(r, &err);
		return;
	}
	r->stats.files_fetched++;
	r->stats.bytes_fetched += e->seen.size;
}

/* Leaves out a file whose object is missing or damaged, if the file is part of a checkpoint: other
 * checkpoints do not depend on the file. Returns false if the restore must fail. */
static bool leave_out(
	struct restore *r, struct entry *e, const char *path, const struct penstock_error *err)
{
	if (err->code != PENSTOCK_E_NOT_FOUND && err->code != PENSTOCK_E_CORRUPT &&
		err->code != PENSTOCK_E_PRECONDITION && err->code != PENSTOCK_E_CHANGED)
		return false;
	if (!commits_has(&r->s->table, e))
		return false;
	e->flags &= (uint16_t)~ENTRY_KEEP; /* as if the file had been deleted locally */
	sync_emit(r->s, SYNC_WARNING, path, 0,
		"'%s' is %s in the bucket: its checkpoint is restored without this file (%s)", path,
		err->code == PENSTOCK_E_NOT_FOUND ? "missing" : "damaged",
		err->message ? err->message : penstock_code_name(err->code));
	return true;
}

static void file_failed(struct restore *r, struct entry *e, const struct penstock_error *why)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool replaced = why->code == PENSTOCK_E_PRECONDITION || why->code == PENSTOCK_E_CHANGED;

	entry_path(e, &path);
	if (replaced && r->round < FETCH_TRIES) {
		if (restore_add((void ***)&r->again, &r->n_again, e) == 0)
			return;
		error_memory(&err);
	} else if (leave_out(r, e, buf_str(&path), why)) {
		return;
	} else {
		error_set(&err, why->code, "%s: %s", buf_str(&path),
			why->message ? why->message : penstock_code_name(why->code));
	}
	end_restore(r, &err);
}

/* The uploads are files that were set aside. The tag of an upload is the index of the file in
 * aside_files; the tag of a download is the entry of the file. */

static void on_done(void *cookie, const struct copy_item *item)
{
	struct restore *r = cookie;
	size_t i = (size_t)(uintptr_t)item->tag;

	if (strcmp(item->action, "upload") == 0)
		aside_sent(r->s, r->aside_paths.items[i], item->size);
	else
		finish_file(r, item->tag);
	sync_deliver(r->s);
}

static void on_failed(void *cookie, const struct copy_item *item, const struct penstock_error *err)
{
	struct restore *r = cookie;
	size_t i = (size_t)(uintptr_t)item->tag;

	if (err->code == PENSTOCK_E_CANCELLED)
		return;
	if (strcmp(item->action, "upload") == 0)
		aside_failed(r->s, r->aside_paths.items[i], r->aside_files.items[i], err);
	else
		file_failed(r, item->tag, err);
	sync_deliver(r->s);
}

static int push_fetch(struct restore *r, struct entry *e, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	_cleanup_free_ char *full = NULL;
	struct object_info known = {.size = e->seen.size};
	int rc;

	entry_path(e, &path);
	full = path_join(r->s->o.dir, buf_str(&path));
	if (!full || buf_failed(&path))
		return error_memory(err);
	rc = upload_key(r->s, buf_str(&path), &key, err);
	/* The object was published again after the manifest was written. */
	if (rc == 0 && r->round)
		rc = adopt(r, buf_str(&path), buf_str(&key), err);
	if (rc < 0)
		return error_prefix(err, "%s", buf_str(&path));
	known.size = e->seen.size;
	entry_etag(e, known.etag);
	return copy_push(r->copy,
		&(struct bulk_item){.kind = BULK_DOWNLOAD,
			.from = sync_at(r->s, buf_str(&key)),
			.path = full,
			.path_root = strlen(full) - path.len - 1,
			.known = known.etag[0] ? &known : NULL,
			.tag = e},
		known.size, err);
}

/* Sends a small file together with the downloads. A large file is sent in parts, which the journal
 * must record. */
static int push_aside(struct restore *r, size_t i, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	const char *path = r->aside_paths.items[i], *file = r->aside_files.items[i];
	struct stat st;
	int rc;

	sync_partial_key(r->s, path, &key);
	if (buf_failed(&key) || key.len > LIMIT_S3_KEY || lstat(file, &st) < 0 ||
		(uint64_t)st.st_size > LIMIT_BULK_SMALL) {
		rc = aside_send(r->s, path, file, err);
		sync_deliver(r->s);
		return rc < 0 ? rc : 0;
	}
	return copy_push(r->copy,
		&(struct bulk_item){.kind = BULK_UPLOAD,
			.path = file,
			.to = sync_at(r->s, buf_str(&key)),
			.content_type = "application/octet-stream",
			/* A later attempt must not overwrite a newer version with this file. */
			.remove_source = true,
			.tag = (void *)(uintptr_t)i},
		(uint64_t)st.st_size, err);
}

static int push_all(struct restore *r, struct penstock_error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < r->n_fetch && !r->error.code; i++)
		rc = push_fetch(r, r->fetch[i], err);
	for (size_t i = 0; rc == 0 && i < r->aside_files.n && !r->error.code; i++)
		rc = push_aside(r, i, err);
	if (rc == 0)
		rc = copy_finish(r->copy, err);
	while (rc == 0 && r->n_again && !r->error.code) {
		_cleanup_free_ struct entry **again = take_pointer(r->again);
		size_t n = r->n_again;

		r->n_again = 0;
		r->round++;
		for (size_t i = 0; rc == 0 && i < n && !r->error.code; i++)
			rc = push_fetch(r, again[i], err);
		if (rc == 0)
			rc = copy_finish(r->copy, err);
	}
	if (!r->error.code)
		return rc;
	penstock_error_release(err);
	return error_move(err, &r->error);
}

static int collect(void *cookie, struct entry *e)
{
	struct restore *r = cookie;

	if (e->state != ENTRY_GONE || !(e->flags & ENTRY_KEEP))
		return 0;
	if (e->below)
		return restore_add((void ***)&r->dirs, &r->n_dirs, e);
	if (S_ISLNK(e->mode))
		return restore_add((void ***)&r->links, &r->n_links, e);
	if (!(e->flags & ENTRY_PUBLISHED))
		return 0;
	return restore_add((void ***)&r->fetch, &r->n_fetch, e);
}

/* Creates the directories of the files, and sets aside anything else that has the name of a
 * file. */
static int make_places(struct restore *r, struct penstock_error *err)
{
	for (size_t i = 0; i < r->n_fetch; i++) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct stat st;
		int rc;

		entry_path(r->fetch[i], &path);
		rc = buf_failed(&path) ? error_memory(err) : make_parents(r, buf_str(&path), err);
		/* A pipe, or a link that was created since, has the name of the file. */
		if (rc == 0 &&
			fstatat(r->s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			!S_ISREG(st.st_mode))
			rc = restore_set_aside(r, buf_str(&path), st.st_mode, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int fetch_all(struct restore *r, struct penstock_error *err)
{
	struct copy copy;
	int rc = make_places(r, err);

	if (rc < 0 || !(r->n_fetch + r->aside_files.n))
		return rc;
	rc = copy_begin(&copy,
		&(struct copy_options){.engine = object_client_engine(r->s->o.client),
			.from = r->s->o.client,
			.to = r->s->o.client,
			.resume = true,
			.put = {.delta_dir = r->s->sent_dir},
			.cancel = r->s->o.cancel,
			.report = {.done = on_done, .failed = on_failed, .cookie = r}},
		err);
	r->copy = &copy;
	if (rc == 0)
		rc = push_all(r, err);
	copy_end(&copy);
	r->copy = NULL;
	return rc;
}

/* Restores links and empty directories, then modes and times from the bottom up. */
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
			return error_errno(err, errno, "cannot restore '%s'", buf_str(&path));
		plan_set_state(&r->s->plan, e, EVENT_RECORDED, ENTRY_CLEAN);
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
				err, errno, "cannot restore the mode of '%s'", buf_str(&path));
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
		rc = state_attach(s, err);
	if (rc < 0)
		return rc;
	r->stats.found = s->generation > 0 || s->continued;
	r->newer = s->generation > s->journal_generation;
	r->manifest_ns = s->manifest_ns;
	if (!r->stats.found)
		return 0;
	rc = aside_send_left(s, err);
	if (rc == 0)
		rc = find_newer(r, err);
	if (rc == 0)
		rc = restore_check_dir(r, "", err);
	if (rc == 0 && table_each(&s->table, restore_note_missing, r) < 0)
		rc = error_memory(err);
	if (rc == 0 && table_each(&s->table, collect, r) < 0)
		rc = error_memory(err);
	if (rc == 0)
		rc = fetch_all(r, err);
	if (rc == 0)
		restore_drop_begun(r);
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
	strlist_release(&r.begun);
	strlist_release(&r.aside_paths);
	strlist_release(&r.aside_files);
	commit_free(r.vouch);
	free(r.vouch_path);
	free(r.fetch);
	free(r.again);
	free(r.dirs);
	free(r.links);
	penstock_error_release(&r.error);
	sync_free(r.s);
	/* Return the memory of a large table to the system: sync_start() builds the table again, in
	 * blocks of other sizes. */
	malloc_trim(0);
	return rc;
}
