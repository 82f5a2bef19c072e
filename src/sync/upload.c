#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/content.h"
#include "sync/kernel/lease.h"
#include "sync/record/names.h"
#include "sync/internal.h"

/* bytes: a closed file up to this size gets a checksum, by which a log that grows later is
 * recognised */
#define CRC_WHOLE (8 * MIB)
/* bytes: a file of this size or more without a recorded object is sent after a HEAD request */
#define HEAD_FIRST  (64 * MIB)
#define CONFLICTS   4 /* consecutive refused preconditions for one file */
#define SNIFF	    4096 /* bytes read to decide if a prefix of the file is useful */
#define PARTIAL_AGE 10000 /* ms: a file that has been open for less time is not sent to partial/ */

/* The upload of one file. */
struct upload {
	struct sync *s;
	const struct job *job;
	const char *path;
	int fd; /* descriptor of the bytes to send: the file, its snapshot or its copy */
	int file; /* the file */
	struct ident ident; /* identity of the version that is sent */
	uint32_t mode;
	struct buf key;
	/* ETag that the object must have; "" if there must be no object */
	char etag[OBJECT_ETAG_SIZE];
	bool prefix_only; /* send the first ident.size bytes of a file that grows */
	uint64_t crc;
	bool has_crc;
	atomic_ullong sent; /* bytes */
};

int upload_key(struct sync *s, const char *path, struct buf *key, struct penstock_error *err)
{
	bool encoded, taken, warned;
	struct entry *e;

	buf_add_str(key, s->o.prefix);
	encoded = names_key(key, path);
	if (buf_failed(key))
		return buf_error(key, "the key of a file", err);
	if (encoded) {
		pthread_mutex_lock(&s->lock);
		taken = table_find_path(&s->table, key->data + strlen(s->o.prefix)) != NULL;
		e = table_find_path(&s->table, path);
		warned = e && (e->flags & ENTRY_WARNED);
		if (e && !taken)
			e->flags |= ENTRY_WARNED;
		pthread_mutex_unlock(&s->lock);
		if (taken)
			return error_set(err, PENSTOCK_E_INVALID,
				"the name of the file is not UTF-8, and its percent-encoded form "
				"is the name of another file; rename one of these files");
		if (!warned)
			sync_emit(s, SYNC_WARNING, path, 0,
				"the name of the file is not UTF-8, which S3 requires: published "
				"as '%s'",
				buf_str(key));
	}
	if (key->len > LIMIT_S3_KEY)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the key of the file has %zu bytes, but S3 allows %d; use shorter names",
			key->len, LIMIT_S3_KEY);
	return 0;
}

/* Returns true if the file still holds the bytes that it held when the upload started. A rename of
 * another file over this one changes only the ctime. */
static bool file_unchanged(const struct upload *u)
{
	struct ident now;
	struct stat st;
	uint64_t crc;

	if (fstat(u->file, &st) < 0)
		return false;
	ident_of_stat(&now, &st);
	if (u->prefix_only)
		return now.size >= u->ident.size &&
		       content_crc64(NULL, u->file, u->ident.size, &crc, NULL) == 0 &&
		       crc == u->crc;
	if (st.st_nlink == 0)
		now.ctime_ns = u->ident.ctime_ns;
	return ident_equal(&now, &u->ident) && lease_check(u->file) != LEASE_WRITER;
}

static bool still_valid(void *cookie)
{
	struct upload *u = cookie;
	struct job job = *u->job;
	bool valid;

	job.snapshot |= u->fd != u->file;
	pthread_mutex_lock(&u->s->lock);
	valid = plan_still_valid(&u->s->plan, &job);
	pthread_mutex_unlock(&u->s->lock);
	return valid && (u->fd != u->file || file_unchanged(u));
}

static void on_parts(void *cookie, const char *key, const char *id, bool over)
{
	const struct upload *u = cookie;

	leftovers_parts(u->s, key, id, over);
}

static int add_metadata(struct sync *s, const struct upload *u, struct strlist *metadata)
{
	uint64_t number;

	pthread_mutex_lock(&s->lock);
	number = ++s->uploads;
	pthread_mutex_unlock(&s->lock);
	/* mtime and mode have the form that s3fs and rclone use. */
	return strlist_addf(metadata, "mtime=%" PRId64 ".%09" PRId64, u->ident.mtime_ns / NS_PER_S,
		       u->ident.mtime_ns % NS_PER_S) < 0 ||
			       strlist_addf(metadata, "mode=%u", u->mode) < 0 ||
			       strlist_addf(metadata, "penstock-run=%s", s->o.run_id) < 0 ||
			       strlist_addf(metadata, "penstock-attempt=%d", s->o.attempt) < 0 ||
			       strlist_addf(metadata, "penstock-upload=%s-%" PRIu64, s->nonce,
				       number) < 0
		       ? -1
		       : 0;
}

/* Returns true if the object is already the version to be sent, which happens after a lost reply or
 * a kill of the run. */
static bool is_same(const struct upload *u, const struct object_info *there)
{
	const char *mtime = strlist_get(&there->metadata, "mtime");
	char ours[48];

	snprintf(ours, sizeof(ours), "%" PRId64 ".%09" PRId64, u->ident.mtime_ns / NS_PER_S,
		u->ident.mtime_ns % NS_PER_S);
	return mtime && strcmp(mtime, ours) == 0 && there->size == u->ident.size &&
	       !u->prefix_only && keep_is_ours(u->s, there, u->job->older);
}

/*
 * Looks for an unexpected object under the key, and keeps a copy of the object unless
 * keep_is_ours() is true. Returns 1 if the object is the version to be sent, and fills `info`; 0 if
 * the file is to be sent, with `u->etag` set to the ETag that the object must have;
 * -PENSTOCK_E_CHANGED if the object changed meanwhile.
 */
static int look_first(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info there = {0};
	struct sync *s = u->s;
	bool owner = true;
	int rc = object_head(sync_at(s, buf_str(&u->key)), &there, err);

	if (error_expected(rc, PENSTOCK_E_NOT_FOUND, err)) {
		u->etag[0] = '\0';
		return 0;
	}
	if (rc < 0)
		return error_prefix(err, "cannot overwrite the existing object: cannot examine it");
	if (u->etag[0] && strcmp(u->etag, there.etag) == 0)
		return 0;
	rc = state_still_owner(s, &owner, err);
	if (rc == 0 && !owner) {
		state_lost(s);
		rc = error_set(err, PENSTOCK_E_PRECONDITION,
			"cannot publish: another run took this output over");
	}
	if (rc < 0)
		return rc;
	if (is_same(u, &there)) {
		*info = there;
		there = (struct object_info){0};
		return 1;
	}
	if (!keep_is_ours(s, &there, u->job->older)) {
		rc = checkpoints_may_replace(s, u->path, &there, err);
		if (rc < 0)
			return rc;
		rc = keep_object(s, u->path, buf_str(&u->key), &there, err);
		if (rc <= 0)
			return rc < 0 ? rc : -PENSTOCK_E_CHANGED;
	}
	snprintf(u->etag, sizeof(u->etag), "%s", there.etag);
	return 0;
}

/* Calls look_first() again if another program replaces the object meanwhile. */
static int resolve_conflict(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	for (unsigned n = 0; n < CONFLICTS; n++) {
		int rc = look_first(u, info, err);

		if (rc != -PENSTOCK_E_CHANGED)
			return rc;
	}
	return error_set(err, PENSTOCK_E_UNAVAILABLE,
		"cannot overwrite the existing object: another program replaces it again and "
		"again, so no copy of it can be kept");
}

static int send(struct upload *u, struct object_info *info, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist metadata = {0};
	struct sync *s = u->s;
	bool checked = u->ident.size > LIMIT_PUT_SINGLE ? s->complete_conditions : s->conditions;
	int rc;

	if (add_metadata(s, u, &metadata) < 0)
		return error_memory(err);
	for (unsigned n = 0;; n++) {
		/* Examines the object first if the store cannot check conditions, or to avoid
		 * sending many bytes only to be refused. */
		if (n == 0 && (!checked || (!u->etag[0] && u->ident.size >= HEAD_FIRST))) {
			rc = resolve_conflict(u, info, err);
			if (rc)
				return rc < 0 ? rc : 0;
		}
		rc = object_put_file(sync_at(s, buf_str(&u->key)), u->fd, u->ident.size,
			&(struct object_put_options){
				.if_match = s->conditions && u->etag[0] ? u->etag : NULL,
				.if_none_match = s->conditions && !u->etag[0],
				.metadata = &metadata,
				.cancel = &s->cancel,
				.still_valid = still_valid,
				.parts = on_parts,
				.delta_dir = s->sent_dir,
				.sent = &u->sent,
				.cookie = u},
			info, err);
		if (rc != -PENSTOCK_E_PRECONDITION || n == CONFLICTS)
			return rc;
		penstock_error_release(err);
		rc = resolve_conflict(u, info, err);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

static void fail(struct job_result *r, int rc, const struct penstock_error *err)
{
	if (rc == -PENSTOCK_E_CHANGED) {
		r->outcome = JOB_CHANGED;
		return;
	}
	r->outcome = JOB_FAILED;
	r->error = -rc;
	r->retryable = error_is_retryable(err);
}

/* Opens the file of the job. Returns false if the open failed; the result then has the reason. */
static bool open_file(
	struct upload *u, struct stat *st, struct job_result *r, struct penstock_error *err)
{
	u->file = sync_open_file(u->s, u->path);
	if (u->file < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
		r->outcome = JOB_MISSING;
		return false;
	}
	if (u->file < 0 || fstat(u->file, st) < 0) {
		fail(r, error_errno(err, errno, "cannot read the file"), err);
		r->retryable = false;
		return false;
	}
	if (!S_ISREG(st->st_mode)) {
		r->outcome = JOB_MISSING;
		return false;
	}
	ident_of_stat(&u->ident, st);
	u->mode = st->st_mode;
	u->fd = u->file;
	return true;
}

/* Handles all pending events. Returns false if the job is no longer valid, because the file was
 * closed again since the job was made, or has another name. Files that were closed before this file
 * was copied must get their place in the queue first; otherwise a marker (plan.h) could appear
 * before its data. */
static bool is_in_turn(struct upload *u)
{
	struct job job = *u->job;

	job.snapshot = false; /* the copy is a snapshot, but perhaps of a newer version */
	LOCK_SCOPE(&u->s->lock);
	observe_catch_up(u->s);
	return plan_still_valid(&u->s->plan, &job);
}

/* Copies a small file, which may refer to other files, at a moment when all earlier closes are
 * known. The upload then sends the copy. */
static bool take_small(
	struct upload *u, struct job_result *r, int *copy, struct penstock_error *err)
{
	_cleanup_free_ struct frozen *now = NULL;
	const struct frozen *f = u->job->frozen;
	enum lease lease;

	if (!f) {
		f = now = freeze_file(u->file, &lease);
		if (!f || !is_in_turn(u)) {
			r->outcome = !f && lease == LEASE_WRITER ? JOB_WRITER : JOB_CHANGED;
			return false;
		}
	}
	*copy = memfd_create("penstock-copy", MFD_CLOEXEC);
	if (*copy < 0 || fs_pwrite_all(*copy, f->data, f->len, 0) < 0) {
		fail(r, error_errno(err, errno, "cannot copy the file"), err);
		return false;
	}
	u->ident = f->ident;
	u->mode = f->mode;
	u->fd = *copy;
	return true;
}

static void send_it(struct upload *u, struct job_result *r, struct penstock_error *err)
{
	_cleanup_(object_info_release) struct object_info info = {0};
	int rc = send(u, &info, err);

	r->ident = u->ident;
	r->sent = atomic_load(&u->sent);
	if (rc < 0) {
		fail(r, rc, err);
		r->unsure = true;
		return;
	}
	r->outcome = JOB_DONE;
	r->crc = u->crc;
	r->has_crc = u->has_crc;
	r->etag = strdup(info.etag);
}

/* Sends the file under its name. */
static void run_whole(struct upload *u, struct job_result *r, struct penstock_error *err)
{
	_cleanup_close_ int snapshot = -1, copy = -1;
	enum lease lease = LEASE_UNKNOWN;

	if (u->job->frozen || u->ident.size <= PLAN_MARKER) {
		if (!take_small(u, r, &copy, err))
			return;
	} else if (u->job->snapshot) {
		struct ident after;
		struct stat st;

		snapshot = lease_snapshot(
			u->file, u->ident.size, u->s->o.private_dir, u->job->patient, &lease, err);
		if (snapshot == -PENSTOCK_E_CHANGED) {
			r->outcome = lease == LEASE_WRITER ? JOB_WRITER : JOB_CHANGED;
			return;
		}
		if (snapshot >= 0) {
			if (fstat(u->file, &st) < 0)
				st.st_ino = 0;
			ident_of_stat(&after, &st);
			after.ctime_ns = u->ident.ctime_ns;
			if (!ident_equal(&after, &u->ident)) {
				r->outcome = JOB_CHANGED;
				return;
			}
			u->fd = snapshot;
		} else {
			/* If there is no room for a snapshot, the file itself is sent. */
			penstock_error_release(err);
			snapshot = -1;
		}
	}
	if (u->fd == u->file && lease_check(u->file) == LEASE_WRITER) {
		r->outcome = JOB_WRITER;
		return;
	}
	r->outcome = checkpoints_check(u->s, u->path, u->fd, u->ident.size);
	if (r->outcome != JOB_DONE)
		return;
	if (u->ident.size <= CRC_WHOLE)
		u->has_crc = content_crc64(NULL, u->fd, u->ident.size, &u->crc, NULL) == 0;
	send_it(u, r, err);
}

/* Returns true for text, and for the records of TensorBoard and Weights & Biases, which contain
 * lengths and checksums: a prefix of these files is useful. */
static bool beginning_makes_sense(int fd, const char *path)
{
	unsigned char head[SNIFF];
	ssize_t n = fs_pread_all(fd, head, sizeof(head), 0);

	if (n <= 0)
		return false;
	if (strstr(path, "tfevents") || str_ends(path, ".wandb"))
		return true;
	for (ssize_t i = 0; i < n; i++)
		if (!head[i] || (head[i] < ' ' && !strchr("\t\n\v\f\r\b\033", head[i])))
			return false;
	return true;
}

static bool may_grow(const struct upload *u)
{
	const struct job *job = u->job;
	uint64_t crc;

	if (u->s->o.is_whole && u->s->o.is_whole(u->s->o.cookie, u->path))
		return false;
	if (!job->appender && !beginning_makes_sense(u->file, u->path))
		return false;
	if (!job->grown_known)
		return true;
	if (u->ident.size < job->grown.size)
		return false;
	return !job->grown_has_crc
		       ? job->appender
		       : content_crc64(NULL, u->file, job->grown.size, &crc, NULL) == 0 &&
				 crc == job->grown_crc;
}

static void run_partial(struct upload *u, struct job_result *r, struct penstock_error *err)
{
	int rc;

	r->kind = JOB_PARTIAL;
	rc = upload_partial(u->s, u->file, u->path, u->ident.size, &u->s->cancel, err);
	if (rc < 0) {
		fail(r, rc, err);
		return;
	}
	r->outcome = JOB_DONE;
	r->ident = u->ident;
}

/* Sends the present content of an open file, under its name or to partial/. */
static void run_grown(struct upload *u, struct job_result *r, struct penstock_error *err)
{
	const struct job *job = u->job;
	int rc;

	if (u->ident.size == job->grown.size && u->ident.mtime_ns == job->grown.mtime_ns &&
		job->grown_known && !job->closed) {
		r->outcome = JOB_NOTHING;
		return;
	}
	if (!may_grow(u)) {
		if (!job->closed && !job->flushing &&
			(job->open_ms < PARTIAL_AGE || job->partial_ms < PLAN_PARTIAL_MS ||
				ident_equal(&u->ident, &job->sent))) {
			r->outcome = JOB_NOTHING;
			return;
		}
		run_partial(u, r, err);
		return;
	}
	u->prefix_only = true;
	rc = content_crc64(NULL, u->file, u->ident.size, &u->crc, err);
	u->has_crc = rc == 0;
	if (rc < 0)
		fail(r, rc, err);
	else
		send_it(u, r, err);
}

/*
 * Deletes an object after a HEAD request. Used if the store cannot delete by ETag, or if the
 * recorded ETag is missing or does not match. Deletes the recorded object, an upload of this sync
 * that got no reply, or an object of an attempt before the run started over, which is kept first.
 * Other objects stay.
 */
static int delete_unrecorded(struct upload *u, struct penstock_error *err)
{
	struct sync *s = u->s;
	int rc;

	for (unsigned n = 0; n < CONFLICTS; n++) {
		_cleanup_(object_info_release) struct object_info there = {0};

		rc = object_head(sync_at(s, buf_str(&u->key)), &there, err);
		if (rc < 0)
			return error_expected(rc, PENSTOCK_E_NOT_FOUND, err) ? 0 : rc;
		if (strcmp(there.etag, u->etag) != 0 && !keep_is_of_sync(s, &there)) {
			if (!u->job->older || !keep_is_of_run(s, &there))
				return 0;
			rc = keep_object(s, u->path, buf_str(&u->key), &there, err);
			if (rc < 0)
				return rc;
			if (rc == 0)
				continue; /* the object was replaced meanwhile */
		}
		rc = object_delete(sync_at(s, buf_str(&u->key)),
			s->remove_conditions ? there.etag : NULL, err);
		if (!error_expected(rc, PENSTOCK_E_PRECONDITION, err))
			return rc;
	}
	return 0; /* another program keeps replacing the object */
}

static void run_delete(struct upload *u, struct job_result *r, struct penstock_error *err)
{
	struct sync *s = u->s;
	const bool known = u->etag[0] && s->remove_conditions;
	struct stat st;
	int rc = -PENSTOCK_E_PRECONDITION;

	if ((fstatat(s->root_fd, u->path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) ||
		!is_in_turn(u)) {
		r->outcome = JOB_CHANGED;
		return;
	}
	if (known)
		rc = object_delete(sync_at(s, buf_str(&u->key)), u->etag, err);
	if (!known || error_expected(rc, PENSTOCK_E_PRECONDITION, err))
		rc = delete_unrecorded(u, err);
	if (rc < 0)
		fail(r, rc, err);
	else
		r->outcome = JOB_DONE;
}

void upload_run(struct sync *s, const struct job *job, const char *path, struct job_result *r,
	struct penstock_error *err)
{
	struct upload u = {.s = s, .job = job, .path = path, .fd = -1, .file = -1};
	struct stat st;
	int rc;

	*r = (struct job_result){.outcome = JOB_FAILED, .kind = job->kind};
	buf_init(&u.key, LIMIT_S3_KEY * 3);
	snprintf(u.etag, sizeof(u.etag), "%s", job->etag);
	rc = upload_key(s, path, &u.key, err);
	if (rc < 0) {
		fail(r, rc, err);
	} else if (job->kind == JOB_DELETE) {
		run_delete(&u, r, err);
	} else if (job->frozen || open_file(&u, &st, r, err)) {
		if (job->kind == JOB_WHOLE)
			run_whole(&u, r, err);
		else if (job->kind == JOB_GROWN)
			run_grown(&u, r, err);
		else
			run_partial(&u, r, err);
	}
	if (u.file >= 0)
		close(u.file);
	buf_release(&u.key);
}

int upload_partial(struct sync *s, int fd, const char *path, uint64_t size,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);

	sync_partial_key(s, path, &key);
	if (buf_failed(&key) || key.len > LIMIT_S3_KEY)
		return error_set(err, PENSTOCK_E_LIMIT,
			"the key of the file below partial/ would be longer than S3 allows; use "
			"shorter names");
	return object_put_file(sync_at(s, buf_str(&key)), fd, size,
		&(struct object_put_options){
			.cancel = cancel, .parts = leftovers_parts, .cookie = s},
		NULL, err);
}
