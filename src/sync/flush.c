/* The flush and the status. A flush publishes everything, or returns the reason for its failure. */
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "sync/internal.h"

#define FLUSH_POLL_MS	  100
#define REVIEWS		  3 /* reviews of one flush that may find missing or replaced objects */
#define OPEN_SIZES_LOOKED 64 /* open files whose size sync_get_status() reads */

bool flush_is_settled(const struct sync *s)
{
	return s->scans_done >= s->scans_wanted && !s->scan_all && !s->look_again &&
	       s->plan.n_busy == 0 && plan_flush_pending(&s->plan) == 0;
}

static void count_waiting(const struct sync *s, uint64_t *files, uint64_t *bytes)
{
	*files += s->plan.n_parked;
	*bytes += s->plan.parked_bytes;
	for (const struct work *w = s->table.works; w; w = w->all_next) {
		const struct entry *e = w->entry;

		if (!plan_is_waiting(w))
			continue;
		(*files)++;
		if (e->state != ENTRY_GONE)
			*bytes += (e->flags & ENTRY_APPENDED) && e->seen.size >= w->published.size
					  ? e->seen.size - w->published.size
					  : e->seen.size;
	}
}

void sync_hurry(struct sync *s, int64_t deadline_ms)
{
	LOCK_SCOPE(&s->lock);
	s->plan.deadline_ms = deadline_ms;
}

/* Sets the error that explains why the flush is not complete. Under lock. */
static int flush_failure(struct sync *s, bool late, struct penstock_error *err)
{
	const struct penstock_error *first = s->flush_error.message    ? &s->flush_error
					     : s->attach_error.message ? &s->attach_error
								       : NULL;
	uint64_t files = 0, bytes = 0;
	char size[STR_SIZE_SIZE];

	if (s->status.lost)
		return error_set(err, PENSTOCK_E_PRECONDITION,
			"cannot publish the output: another run took over '%s://%s/%s'; nothing "
			"more was published",
			object_client_scheme(s->o.client), s->o.bucket, s->o.prefix);
	if (s->plan.fault[0])
		return error_set(err, PENSTOCK_E_INTERNAL,
			"cannot publish the output: the sync has a defect: %s; the output on "
			"this machine is complete, copy it with 'penstock cp'",
			s->plan.fault);
	count_waiting(s, &files, &bytes);
	str_format_size(bytes, size);
	if (first && (!late || first->code != PENSTOCK_OK)) {
		error_set(err, first->code,
			"cannot send %llu file%s (%s) of the output to '%s://%s/%s': %s",
			(unsigned long long)files, files == 1 ? "" : "s", size,
			object_client_scheme(s->o.client), s->o.bucket, s->o.prefix,
			first->message);
		if (err)
			err->http_status = first->http_status;
		return -(int)first->code;
	}
	return error_set(err, PENSTOCK_E_TIMEOUT,
		"cannot send %llu file%s (%s) of the output to '%s://%s/%s' in time%s%s",
		(unsigned long long)files, files == 1 ? "" : "s", size,
		object_client_scheme(s->o.client), s->o.bucket, s->o.prefix,
		s->status.last_error[0] ? ": " : "", s->status.last_error);
}

/* Returns 1 if the flush is complete, 0 if it is not complete yet, or -code if it has failed. Under
 * lock. */
static int flush_state(struct sync *s, int64_t deadline_ms, struct penstock_error *err)
{
	MUST_HOLD(&s->lock);
	if (s->status.lost || s->plan.fault[0] ||
		(s->attach_error.message && !error_is_retryable(&s->attach_error)))
		return flush_failure(s, false, err);
	if (s->attached && !s->manifest_busy && flush_is_settled(s)) {
		if (s->flush_error.message)
			return flush_failure(s, false, err);
		if (!s->plan.manifest_dirty)
			return s->plan.late ? flush_failure(s, true, err) : 1;
	}
	if (s->o.cancel && atomic_load(s->o.cancel))
		return error_set(
			err, PENSTOCK_E_CANCELLED, "the flush of the output was interrupted");
	if (deadline_ms && clock_monotonic_ms() >= deadline_ms)
		return flush_failure(s, true, err);
	return 0;
}

/* Compares files with their objects if recheck_counts() requires it. Returns 1 if no difference was
 * found, 0 if some files are sent again, or a negative code. Under lock. */
static int recheck(struct sync *s, int64_t deadline_ms, struct penstock_error *err)
{
	uint64_t again = 0;
	int rc;

	if (!recheck_counts(s))
		return 1;
	pthread_mutex_unlock(&s->lock);
	rc = recheck_output(s, deadline_ms, &again, err);
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->work);
	return rc < 0 ? rc : again == 0;
}

/* Checks that the published objects still exist. Returns 1 if the bucket is as expected, 0 if files
 * are sent again or objects deleted, or a negative code. Under lock. */
static int review(struct sync *s, unsigned reviews, struct penstock_error *err)
{
	uint64_t again = 0;
	int rc;

	pthread_mutex_unlock(&s->lock);
	rc = review_output(s, &again, err);
	pthread_mutex_lock(&s->lock);
	pthread_cond_broadcast(&s->work);
	if (rc == 0 && again && reviews >= REVIEWS)
		rc = error_set(err, PENSTOCK_E_CHANGED,
			"cannot publish to '%s://%s/%s': another program removes or replaces "
			"objects again and again; give this run an output of its own",
			object_client_scheme(s->o.client), s->o.bucket, s->o.prefix);
	return rc < 0 ? rc : again == 0;
}

/* If `fresh`, the flush does not rely on scans and comparisons of earlier flushes. */
static int flush(struct sync *s, bool fresh, int64_t deadline_ms, struct penstock_error *err)
{
	unsigned reviews = 0;
	int state;

	pthread_mutex_lock(&s->lock);
	penstock_error_release(&s->flush_error);
	penstock_error_release(&s->attach_error);
	plan_flush_begin(&s->plan);
	s->scans_wanted += fresh;
	if (fresh)
		recheck_forget(s);
	s->attach_ms = 0;
	pthread_cond_broadcast(&s->work);
	sync_wake_owner(s);
	while ((state = flush_state(s, deadline_ms, err)) >= 0) {
		int64_t wake_ms = clock_monotonic_ms() + FLUSH_POLL_MS;

		if (state == 1)
			state = recheck(s, deadline_ms, err);
		if (state == 1)
			state = review(s, reviews++, err);
		if (state != 0)
			break;
		if (deadline_ms && deadline_ms < wake_ms)
			wake_ms = deadline_ms;
		clock_cond_wait_until_ms(&s->idle, &s->lock, wake_ms);
	}
	plan_flush_end(&s->plan);
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
	return state < 0 ? state : 0;
}

int sync_flush(struct sync *s, int64_t deadline_ms, struct penstock_error *err)
{
	return flush(s, true, deadline_ms, err);
}

int sync_flush_on(struct sync *s, int64_t deadline_ms, struct penstock_error *err)
{
	return flush(s, false, deadline_ms, err);
}

void sync_get_status(struct sync *s, struct sync_status *status)
{
	int64_t now_ms = clock_monotonic_ms(), oldest = now_ms;
	unsigned looked = 0;

	LOCK_SCOPE(&s->lock);
	*status = s->status;
	for (struct work *w = s->table.works; w; w = w->all_next) {
		_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
		struct stat st;

		if (w->entry->state == ENTRY_SUSPECT)
			status->files_suspect++;
		if (!plan_is_waiting(w))
			continue;
		if (w->dirty_ms < oldest)
			oldest = w->dirty_ms;
		if (w->entry->state != ENTRY_OPEN || looked++ >= OPEN_SIZES_LOOKED)
			continue;
		entry_path(w->entry, &path);
		if (!buf_failed(&path) &&
			fstatat(s->root_fd, buf_str(&path), &st, AT_SYMLINK_NOFOLLOW) == 0)
			w->entry->seen.size = (uint64_t)st.st_size;
	}
	count_waiting(s, &status->files_waiting, &status->bytes_waiting);
	status->lag_ms = now_ms - oldest;
}
