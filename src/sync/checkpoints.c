/*
 * Decides if the commit of a checkpoint may be published, and finds, verifies and deletes the files
 * of old checkpoints.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/commit.h"
#include "checkpoint/read.h"
#include "sync/internal.h"

/* ---- the files that a commit names ---- */

/* Reads and parses the commit. Returns NULL if the file is not a valid commit; `*outcome` is then
 * the outcome of the file's job. */
static struct commit *read_commit(
	int fd, uint64_t size, const char *path, enum job_outcome *outcome)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT + 1);
	struct commit *c = NULL;
	ssize_t n;

	*outcome = JOB_DONE;
	if (size > LIMIT_COMMIT || !buf_reserve(&text, (size_t)size + 1))
		return NULL;
	n = fs_pread_all(fd, text.data, (size_t)size, 0);
	buf_grown(&text, n > 0 ? (size_t)n : 0);
	if (commit_parse(&c, buf_str(&text), text.len, path, NULL) < 0 &&
		commit_is_meant(buf_str(&text), text.len))
		*outcome = JOB_DAMAGED;
	return c;
}

/* Returns JOB_WAIT if the local file has the size in the commit, so that it can still be published,
 * else JOB_DAMAGED. */
static enum job_outcome look_at(const struct sync *s, const char *path, uint64_t size)
{
	struct stat st;

	return fstatat(s->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
			       (uint64_t)st.st_size == size
		       ? JOB_WAIT
		       : JOB_DAMAGED;
}

static enum job_outcome judge(const struct sync *s, const char *path, uint64_t size)
{
	const struct entry *e = table_find_path(&s->table, path);

	if (!e || e->below)
		return look_at(s, path, size);
	switch ((enum entry_state)e->state) {
	case ENTRY_CLEAN:
		if (!(e->flags & ENTRY_PUBLISHED) || (e->flags & (ENTRY_APPENDED | ENTRY_OLDER)))
			return look_at(s, path, size);
		return e->seen.size == size ? JOB_DONE : JOB_DAMAGED;
	case ENTRY_GONE:
		return JOB_DAMAGED;
	case ENTRY_SUSPECT: /* the commit's checksum decides */
	case ENTRY_OPEN:
	case ENTRY_HELD:
	case ENTRY_CLOSED:
	case ENTRY_PARKED:
		break;
	}
	return look_at(s, path, size);
}

static void warn_once(struct sync *s, const char *path, const char *name)
{
	struct entry *e = table_find_path(&s->table, path);

	if (e && (e->flags & ENTRY_WARNED))
		return;
	if (e)
		e->flags |= ENTRY_WARNED;
	sync_emit(s, SYNC_WARNING, path, 0,
		"cannot publish '%s': the checkpoint is damaged: %s does not match the commit",
		path, name ? name : "its content");
}

/* Compares a suspect file with the checksum in the commit. Returns true if the file matches, after
 * making it ready to be published. */
static bool vouch(struct sync *s, const char *path, const struct commit_file *f)
{
	_cleanup_close_ int fd = sync_open_file(s, path);
	struct ident ident;
	struct entry *e;
	struct stat st;
	uint64_t crc;

	if (fd < 0 || commit_checksum(fd, f->size, NULL, &crc, NULL) < 0 || crc != f->crc ||
		fstat(fd, &st) < 0 || (uint64_t)st.st_size != f->size)
		return false;
	ident_of_stat(&ident, &st);
	pthread_mutex_lock(&s->lock);
	e = table_find_path(&s->table, path);
	if (e && e->state == ENTRY_SUSPECT && e->work && ident_equal(&ident, &e->seen)) {
		plan_rewritten(e);
		plan_closed(&s->plan, e, &ident, st.st_mode, CLOSE_TRUE, clock_monotonic_ms());
	}
	pthread_mutex_unlock(&s->lock);
	return true;
}

static bool is_suspect(const struct sync *s, const char *path)
{
	const struct entry *e = table_find_path(&s->table, path);

	return e && e->state == ENTRY_SUSPECT;
}

enum job_outcome checkpoints_check(struct sync *s, const char *path, int fd, uint64_t size)
{
	_cleanup_(commit_freep) struct commit *c = NULL;
	const char *slash = strrchr(path, '/');
	enum job_outcome outcome;
	bool waits = false;

	if (!commit_is_name(slash ? slash + 1 : path))
		return JOB_DONE;
	c = read_commit(fd, size, path, &outcome);
	pthread_mutex_lock(&s->lock);
	for (size_t i = 0; c && outcome == JOB_DONE && i < c->n_files; i++) {
		_cleanup_(buf_release) struct buf file = BUF_INIT(LIMIT_SYNC_NAME);

		buf_printf(&file, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
			c->files[i].name);
		outcome = buf_failed(&file) ? JOB_DAMAGED
					    : judge(s, buf_str(&file), c->files[i].size);
		if (outcome == JOB_WAIT && is_suspect(s, buf_str(&file))) {
			pthread_mutex_unlock(&s->lock);
			if (!vouch(s, buf_str(&file), &c->files[i]))
				outcome = JOB_DAMAGED;
			else if (i + 1 < c->n_files)
				outcome = JOB_DONE; /* continue: other files may be suspect, too */
			waits = true;
			pthread_mutex_lock(&s->lock);
		}
		if (outcome == JOB_DAMAGED)
			warn_once(s, path, c->files[i].name);
	}
	if (!c && outcome == JOB_DAMAGED)
		warn_once(s, path, NULL);
	pthread_mutex_unlock(&s->lock);
	return outcome == JOB_DONE && waits ? JOB_WAIT : outcome;
}

/* ---- commits of other runs and programs ---- */

/* Sets the error that names the owner of the commit and the command that moves the checkpoint
 * away. */
static int refuse(const struct sync *s, const char *commit, const struct object_info *there,
	struct penstock_error *err)
{
	const char *run = strlist_get(&there->metadata, "penstock-run");
	const char *name = path_last(commit);
	bool single = strcmp(name, COMMIT_NAME) != 0;
	size_t len = single ? strlen(commit) - strlen(COMMIT_SUFFIX) : (size_t)(name - commit);

	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot overwrite the commit '%s%s': its checkpoint was published by %s%.64s; move "
		"'%s%.*s'%s elsewhere in the bucket '%s' with 'penstock mv%s', and give the next "
		"run an output of its own",
		s->o.prefix, commit, run ? "run " : "another program", run ? run : "", s->o.prefix,
		(int)len, commit, single ? " and its commit" : "", s->o.bucket,
		single ? "" : " -r");
}

/* Returns -PENSTOCK_E_EXISTS if the commit exists and this run did not upload it. */
static int look_for_commit(struct sync *s, const char *commit, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	int r = sync_head(s, commit, &there, err);

	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	return r < 0 || keep_is_of_run(s, &there) ? r : refuse(s, commit, &there, err);
}

int checkpoints_may_replace(struct sync *s, const char *path, const struct object_info *there,
	struct penstock_error *err)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	int r = 0;

	if (keep_is_of_run(s, there))
		return 0;
	if (commit_is_name(slash ? slash + 1 : path))
		return refuse(s, path, there, err);
	for (bool single = true; r == 0; single = false) {
		_cleanup_(buf_release) struct buf commit = BUF_INIT(LIMIT_SYNC_NAME + 64);

		if (single)
			buf_printf(&commit, "%s" COMMIT_SUFFIX, path);
		else if (len)
			buf_printf(&commit, "%.*s/" COMMIT_NAME, (int)len, path);
		else
			return 0;
		if (buf_failed(&commit))
			return buf_error(&commit, "the name of a commit", err);
		r = look_for_commit(s, buf_str(&commit), err);
		while (!single && len && path[--len] != '/')
			;
	}
	return r;
}

/* ---- for the retention ---- */

/* Calls `fn` for the file `path`, or for all files below the directory `path`, until `fn` returns
 * non-zero. Returns that result, or 0. Under lock. */
static int each_file(
	struct sync *s, const char *path, int (*fn)(void *cookie, struct entry *e), void *cookie)
{
	struct entry *e = table_find_path(&s->table, path);

	return !e ? 0 : e->below ? table_each_below(e->below, fn, cookie) : fn(cookie, e);
}

/* Returns true if the file exists only as an object from before the run started over. */
static bool is_older(const struct entry *e)
{
	return !e->below && e->state == ENTRY_GONE && !e->work && (e->flags & ENTRY_PUBLISHED) &&
	       (e->flags & ENTRY_OLDER);
}

bool sync_is_older(struct sync *s, const char *path)
{
	const struct entry *e;

	LOCK_SCOPE(&s->lock);
	e = table_find_path(&s->table, path);
	return e && is_older(e);
}

struct older {
	struct strlist *commits;
	bool memory;
};

static int note_older(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct older *older = cookie;

	if (!is_older(e))
		return 0;
	entry_path(e, &path);
	if (commit_is_name(path_last(buf_str(&path))))
		older->memory |= buf_failed(&path) ||
				 strlist_add(older->commits, buf_str(&path)) < 0;
	return older->memory;
}

int sync_older_commits(struct sync *s, struct strlist *commits, struct penstock_error *err)
{
	struct older older = {.commits = commits};

	LOCK_SCOPE(&s->lock);
	table_each(&s->table, note_older, &older);
	return older.memory ? error_memory(err) : s->attached;
}

static int retire(void *cookie, struct entry *e)
{
	struct sync *s = cookie;

	if (e->below || !(e->flags & ENTRY_PUBLISHED))
		return 0;
	/* Skip an object from before the run started over if its name has a file again, which will
	 * replace the object. Without a file such an object is deleted, because it also belongs to
	 * this run. */
	if ((e->flags & ENTRY_OLDER) && !is_older(e))
		return 0;
	e->flags &= (uint16_t)~ENTRY_OLDER;
	e->flags |= ENTRY_RETIRED;
	plan_delete(&s->plan, e, clock_monotonic_ms());
	return 0;
}

bool sync_retire(struct sync *s, const char *path)
{
	bool may;

	LOCK_SCOPE(&s->lock);
	may = s->attached && s->plan.may_retire;
	if (may)
		each_file(s, path, retire, s);
	pthread_cond_broadcast(&s->work);
	return may;
}

static int has_object(void *cookie, struct entry *e)
{
	(void)cookie;
	return !e->below && (e->flags & ENTRY_PUBLISHED) && !(e->flags & ENTRY_OLDER);
}

bool sync_has_object(struct sync *s, const char *path)
{
	LOCK_SCOPE(&s->lock);
	return each_file(s, path, has_object, NULL) != 0;
}

static bool is_settled(const struct entry *e)
{
	return e->state == ENTRY_CLEAN && !e->work && (e->flags & ENTRY_PUBLISHED) &&
	       !(e->flags & (ENTRY_APPENDED | ENTRY_OLDER));
}

bool sync_is_published(struct sync *s, const char *path)
{
	const struct entry *e;

	LOCK_SCOPE(&s->lock);
	e = table_find_path(&s->table, path);
	return e && !e->below && S_ISREG(e->mode) && is_settled(e);
}

int sync_verify_object(struct sync *s, const char *path, uint64_t size, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	char etag[ENTRY_ETAG_SIZE] = "";
	const struct entry *e;
	bool settled;
	int r;

	pthread_mutex_lock(&s->lock);
	e = table_find_path(&s->table, path);
	settled = e && !e->below && is_settled(e) && e->seen.size == size;
	if (settled)
		entry_etag(e, etag);
	pthread_mutex_unlock(&s->lock);
	if (!settled)
		return error_set(err, PENSTOCK_E_CHANGED,
			"'%s' is not published in its present version", path);
	r = sync_head(s, path, &there, err);
	if (r < 0)
		return error_prefix(err, "%s", path);
	return there.size == size && (!etag[0] || strcmp(etag, there.etag) == 0)
		       ? 0
		       : error_set(err, PENSTOCK_E_CORRUPT,
				 "the object of '%s' was replaced by another program", path);
}
