/*
 * The last check of the files in a flush: each published object must hold the bytes of its file.
 * Most file systems need no comparison, because the kernel reports each close, and the times of a
 * file show a write through a mapping. A comparison is needed in three cases: on network file
 * systems, which show neither closes nor such writes; on tmpfs, where a write through a mapping
 * leaves no trace, if events were lost or are not available; on any file system, if the machine was
 * restarted since the file was written.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "sync/content.h"
#include "sync/internal.h"
#include "transfer/compare/object.h"

#define BATCH 1024 /* files compared between two passes over the table */

bool recheck_counts(const struct sync *s)
{
	return s->leases_unreliable || s->doubt ||
	       (s->plan.always_dirty && (s->status.polling || s->events_lost));
}

int recheck_content(struct sync *s, int fd, const char *path, uint64_t size,
	const struct published *p, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	const bool md5_known = p->etag.form == 1 && p->etag.parts == 0;
	uint8_t md5[CHECKSUM_MAX_SIZE];
	uint64_t crc;
	int rc = 0;

	if (size != p->size)
		return 0;
	if (p->has_crc)
		rc = content_crc64(s->o.cancel, fd, size, &crc, err);
	else if (md5_known)
		rc = checksum_of_file(fd, CHECKSUM_MD5, 0, size, s->o.cancel, md5, err);
	if (rc == -PENSTOCK_E_CANCELLED || rc == -PENSTOCK_E_MEMORY)
		return rc;
	if (rc < 0) { /* truncated meanwhile, or damaged */
		penstock_error_release(err);
		return 0;
	}
	if (p->has_crc)
		return crc == p->crc;
	if (md5_known && memcmp(md5, p->etag.md5, sizeof(p->etag.md5)) == 0)
		return 1;
	if (!p->etag_text[0])
		return 0;
	rc = sync_key(s, path, &key, err);
	if (rc < 0)
		return rc;
	rc = compare_with_object(
		fd, size, sync_at(s, buf_str(&key)), p->etag_text, s->o.cancel, err);
	/* Many access keys permit writes but not reads. */
	return error_expected(rc, PENSTOCK_E_PERMISSION, err) ||
			       error_expected(rc, PENSTOCK_E_CHANGED, err)
		       ? 0
		       : rc;
}

void published_of(const struct entry *e, struct published *p)
{
	p->size = e->seen.size;
	p->crc = e->crc;
	p->has_crc = (e->flags & ENTRY_HAS_CRC) != 0;
	p->etag = e->etag;
	entry_etag(e, p->etag_text);
}

static bool is_due(const struct entry *e)
{
	return e->state == ENTRY_CLEAN && !e->work && !e->below && !S_ISLNK(e->mode) &&
	       (e->flags & ENTRY_PUBLISHED) && !(e->flags & (ENTRY_OLDER | ENTRY_COMPARED));
}

struct batch {
	struct strlist paths;
	size_t left; /* files that are due in this batch and in later batches */
	bool memory;
};

static int collect(void *cookie, struct entry *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct batch *b = cookie;

	if (!is_due(e) || b->left++ >= BATCH)
		return 0;
	entry_path(e, &path);
	b->memory |= buf_failed(&path) || strlist_add(&b->paths, buf_str(&path)) < 0;
	return b->memory;
}

/* Returns 1 if the file holds the same bytes as the object or cannot be opened, else 0, with the
 * identity of the file in `now`; a negative code on error. */
static int look_at(struct sync *s, const char *path, const struct ident *seen,
	const struct published *p, struct ident *now, struct penstock_error *err)
{
	/* On a network file system, open() also makes the server send fresh times. */
	_cleanup_close_ int fd = sync_open_file(s, path);
	struct stat st;

	/* The scan handles files that are gone, and the upload has reported those that cannot be
	 * read. */
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 1;
	ident_of_stat(now, &st);
	if (now->size != seen->size || now->mtime_ns != seen->mtime_ns || now->ino != seen->ino)
		return 0;
	return recheck_content(s, fd, path, now->size, p, err);
}

/* Compares one file. Adds 1 to `again` if the file differs from its object. */
static int recheck(struct sync *s, const char *path, uint64_t *again, struct penstock_error *err)
{
	struct published p;
	struct ident seen, now;
	struct entry *e;
	bool due, same;
	int rc;

	pthread_mutex_lock(&s->lock);
	e = table_find_path(&s->table, path);
	due = e && is_due(e);
	if (due) {
		seen = e->seen;
		published_of(e, &p);
	}
	pthread_mutex_unlock(&s->lock);
	if (!due)
		return 0;
	rc = look_at(s, path, &seen, &p, &now, err);
	if (rc < 0)
		return error_prefix(err, "cannot compare '%s' with its object", path);
	same = rc == 1;
	rc = 0;
	pthread_mutex_lock(&s->lock);
	s->status.compared++;
	e = table_find_path(&s->table, path);
	/* If the file changed meanwhile, the flush handles the change. */
	if (e && is_due(e) && ident_equal(&seen, &e->seen)) {
		int64_t now_ms = clock_monotonic_ms();

		e->flags |= ENTRY_COMPARED;
		*again += !same;
		if (!same && !table_work(&s->table, e, now_ms))
			rc = error_memory(err);
		if (!same && rc == 0) {
			e->seen = now;
			/* After a restart of the machine, the object is good, and the local file
			 * may be damaged. */
			rc = (s->doubt ? plan_suspect(&s->plan, e, &now, now_ms)
				       : plan_again(&s->plan, e, false, now_ms)) < 0
				     ? error_memory(err)
				     : 0;
		}
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int forget(void *cookie, struct entry *e)
{
	(void)cookie;
	e->flags &= (uint16_t)~ENTRY_COMPARED;
	return 0;
}

void recheck_forget(struct sync *s)
{
	MUST_HOLD(&s->lock);
	table_each(&s->table, forget, NULL);
}

int recheck_output(struct sync *s, int64_t deadline_ms, uint64_t *again, struct penstock_error *err)
{
	for (;;) {
		struct batch b = {.memory = false};
		size_t i = 0;
		int rc = 0;

		pthread_mutex_lock(&s->lock);
		table_each(&s->table, collect, &b);
		pthread_mutex_unlock(&s->lock);
		for (; i < b.paths.n && rc == 0 && !b.memory; i++) {
			if (s->o.cancel && atomic_load(s->o.cancel))
				rc = error_set(err, PENSTOCK_E_CANCELLED,
					"the flush of the output was interrupted");
			else if (i && deadline_ms && clock_monotonic_ms() >= deadline_ms)
				rc = error_set(err, PENSTOCK_E_TIMEOUT,
					"cannot compare %zu files of the output with their objects "
					"in time",
					b.left - i);
			else
				rc = recheck(s, b.paths.items[i], again, err);
		}
		strlist_release(&b.paths);
		if (b.memory)
			rc = error_memory(err);
		if (rc < 0 || b.left <= i)
			return rc;
	}
}
