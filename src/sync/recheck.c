/*
 * The last look of a flush at the files: does what was published hold what they hold? Most often that needs no look at
 * their bytes, for the kernel tells of each close, and of a store through a mapping by the times. It does on a file system
 * of another machine, which tells neither; in memory, where such a store leaves no trace, once events were lost or there
 * are none; and where the machine stopped since a file was written, so that what is there may not be what was.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "sync/content.h"
#include "sync/names.h"
#include "sync/sync_internal.h"
#include "transfer/compare_object.h"
#include "base/banned.h"

#define BATCH 1024 /* files between two looks at the table */

bool recheck_counts(const struct sync *s)
{
	return s->leases_unreliable || s->doubt ||
	       (s->plan.always_dirty && (s->polling || s->events_lost));
}

int recheck_content(struct sync *s, int fd, const char *path, uint64_t size,
	const struct published *p, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);
	const bool md5_known = p->etag.form == 1 && p->etag.parts == 0;
	unsigned char md5[16];
	uint64_t crc;
	int rc = 0;

	if (size != p->size)
		return 0;
	if (p->has_crc)
		rc = content_crc64_unless(s->o.cancel, fd, size, &crc, err);
	else if (md5_known)
		rc = content_md5_unless(s->o.cancel, fd, size, md5, err);
	if (rc == -PENSTOCK_E_CANCELLED || rc == -PENSTOCK_E_MEMORY)
		return rc;
	if (rc < 0) { /* cut meanwhile, or damaged */
		penstock_error_release(err);
		return 0;
	}
	if (p->has_crc)
		return crc == p->crc;
	if (md5_known && memcmp(md5, p->etag.md5, sizeof(md5)) == 0)
		return 1;
	if (!p->etag_text[0])
		return 0;
	buf_add_str(&key, s->o.prefix);
	names_key(&key, path);
	if (buf_failed(&key))
		return buf_error(&key, "the key of a file", err);
	rc = compare_with_object(
		fd, size, s->o.client, s->o.bucket, buf_str(&key), p->etag_text, s->o.cancel, err);
	/* Keys that may write and not look are common. */
	if (rc == -PENSTOCK_E_PERMISSION || rc == -PENSTOCK_E_CHANGED) {
		penstock_error_release(err);
		return 0;
	}
	return rc;
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
	size_t left; /* in all */
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

/* 1: it holds the same; 0: it does not, and `now` is what it is. */
static int look_at(struct sync *s, const char *path, const struct ident *seen,
	const struct published *p, struct ident *now, struct penstock_error *err)
{
	/* Opening it also asks a server for its times. */
	_cleanup_close_ int fd = openat(
		s->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	/* What is gone is a matter of the scan, and what cannot be read was named when it was to be sent. */
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 1;
	ident_of_stat(now, &st);
	if (now->size != seen->size || now->mtime_ns != seen->mtime_ns || now->ino != seen->ino)
		return 0;
	return recheck_content(s, fd, path, now->size, p, err);
}

/* One file. 0 or an error; `again` counts those that are sent once more. */
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
		return error_prefix(err, "%s cannot be compared with what was published", path);
	same = rc == 1;
	rc = 0;
	pthread_mutex_lock(&s->lock);
	s->n_compared++;
	e = table_find_path(&s->table, path);
	/* Whatever has happened to it meanwhile, the flush deals with. */
	if (e && is_due(e) && ident_equal(&seen, &e->seen)) {
		int64_t now_ms = clock_monotonic_ms();

		e->flags |= ENTRY_COMPARED;
		*again += !same;
		if (!same && !table_work(&s->table, e, now_ms))
			rc = error_memory(err);
		if (!same && rc == 0) {
			e->seen = now;
			/* The object is good then, and what is here may be torn. */
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

void recheck_over(struct sync *s)
{
	if (recheck_counts(s))
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
					"%zu files of the output not compared with what was "
					"published in time",
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
