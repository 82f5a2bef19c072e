#include "sync/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <linux/magic.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "base/thread.h"
#include "sync/internal.h"

#define JOURNAL_SYNC_MS 1000 /* minimum time between two fdatasync() of the journal */
#define ATTACH_RETRY_MS 2000
#define IDLE_MS		60000
#define SEE_STEPS	2000 /* scan steps of 512 names each, at the end of a task */
/* event buffers that are read before the lock is released for a moment */
#define READS_PER_ROUND 64

/* ---- the workers ---- */

/* Stores the error for the status. */
static void remember_error(struct sync *s, const char *path, const struct penstock_error *err)
{
	const char *why = err->message ? err->message : penstock_code_name(err->code);
	size_t len = strlen(path), room = sizeof(s->status.last_error) / 3;

	snprintf(s->status.last_error, sizeof(s->status.last_error), "%s%s: %s",
		len > room ? "…" : "", len > room ? path + len - room : path, why);
	if (err->code != PENSTOCK_E_UNAVAILABLE && err->code != PENSTOCK_E_TIMEOUT)
		s->status.away_ns = 0;
	else if (!s->status.away_ns)
		s->status.away_ns = clock_wall_ns();
}

static void remember_failure(
	struct sync *s, const char *path, const struct job_result *r, struct penstock_error *err)
{
	remember_error(s, path, err);
	if (s->plan.flushing && !r->retryable && !s->flush_error.message)
		error_set(&s->flush_error, err->code, "%s: %s", path,
			err->message ? err->message : penstock_code_name(err->code));
}

static void count_success(struct sync *s, const char *path, const struct job *job,
	const struct job_result *r, int64_t now_ms)
{
	s->status.last_error[0] = '\0';
	s->status.away_ns = 0;
	if (job->kind == JOB_DELETE) {
		s->status.deleted++;
		sync_emit(s, SYNC_DELETED, path, 0, "%s", "");
	} else if (r->kind == JOB_PARTIAL) {
		sync_emit(s, SYNC_PARTIAL, path, r->ident.size, "%spartial/%s", s->state, path);
	} else {
		s->status.files_published++;
		s->status.bytes_published += r->sent;
		s->status.last_publish_ms = now_ms;
		sync_emit(s,
			r->kind == JOB_GROWN && !job->closed ? SYNC_PUBLISHED_OPEN : SYNC_PUBLISHED,
			path, r->ident.size, "%s", r->etag ? r->etag : "");
	}
}

static void run_job(struct sync *s, const struct job *job)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_SYNC_NAME);
	struct job_result r;
	int64_t now_ms;

	MUST(s->attached);
	entry_path(job->entry, &path);
	/* Other workers may find something to do, too. */
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	if (buf_failed(&path))
		r = (struct job_result){
			.outcome = JOB_FAILED, .kind = job->kind, .error = -error_memory(&err)};
	else
		upload_run(s, job, buf_str(&path), &r, &err);
	pthread_mutex_lock(&s->lock);
	now_ms = clock_monotonic_ms();
	if (r.outcome == JOB_FAILED && !s->stop)
		remember_failure(s, buf_str(&path), &r, &err);
	else if (r.outcome == JOB_DONE)
		count_success(s, buf_str(&path), job, &r, now_ms);
	plan_done(&s->plan, job, &r, now_ms);
	if (r.outcome == JOB_WAIT && job->work->settled)
		sync_emit(s, SYNC_WARNING, buf_str(&path), 0,
			"cannot publish '%s': some of the files that it names could not be "
			"published",
			buf_str(&path));
	if (r.outcome == JOB_DONE && s->look_again) {
		s->again_pause_ms = 0;
		s->again_ms = now_ms;
		sync_wake_owner(s);
	}
	state_write_journal(s);
	free(r.etag);
	pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
	pthread_mutex_lock(&s->lock);
}

static void attach(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	s->attaching = true;
	pthread_mutex_unlock(&s->lock);
	rc = state_attach(s, &err);
	sync_deliver(s);
	pthread_mutex_lock(&s->lock);
	s->attaching = false;
	s->attach_ms = clock_monotonic_ms() + ATTACH_RETRY_MS;
	penstock_error_release(&s->attach_error);
	if (rc < 0) {
		remember_error(s, "manifest.json", &err);
		error_move(&s->attach_error, &err);
	} else {
		s->status.last_error[0] = '\0';
		s->status.away_ns = 0;
	}
	pthread_cond_broadcast(&s->work);
	pthread_cond_broadcast(&s->idle);
}

static void write_manifest(struct sync *s)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int rc;

	s->manifest_busy = true;
	pthread_mutex_unlock(&s->lock);
	rc = state_write_manifest(s, &err);
	if (rc == -PENSTOCK_E_PRECONDITION)
		state_lost(s);
	sync_deliver(s);
	pthread_mutex_lock(&s->lock);
	s->manifest_busy = false;
	if (rc == 0) {
		s->status.away_ns = 0;
	} else {
		remember_error(s, "manifest.json", &err);
		if (s->plan.flushing && !error_is_retryable(&err) && !s->flush_error.message)
			error_move(&s->flush_error, &err);
	}
	pthread_cond_broadcast(&s->idle);
}

static void sync_journal(struct sync *s)
{
	s->journal_syncing = true;
	s->journal_dirty = false;
	pthread_mutex_unlock(&s->lock);
	journal_sync(s->journal);
	pthread_mutex_lock(&s->lock);
	s->journal_syncing = false;
	s->journal_sync_ms = clock_monotonic_ms() + JOURNAL_SYNC_MS;
}

static bool manifest_due(const struct sync *s, int64_t now_ms, bool nothing_else, int64_t *wake_ms)
{
	if (!s->attached || !s->plan.manifest_dirty || s->manifest_busy || s->status.lost)
		return false;
	if (s->plan.flushing)
		return nothing_else && !s->flush_error.message && flush_is_settled(s);
	if (!s->o.continuous)
		return false;
	if (now_ms < s->manifest_ms) {
		if (s->manifest_ms < *wake_ms)
			*wake_ms = s->manifest_ms;
		return false;
	}
	return true;
}

static bool attach_due(const struct sync *s, int64_t now_ms, int64_t *wake_ms)
{
	if (s->attached || s->attaching || s->status.lost || !(s->o.continuous || s->plan.flushing))
		return false;
	if (now_ms < s->attach_ms && s->attach_ms < *wake_ms)
		*wake_ms = s->attach_ms;
	return now_ms >= s->attach_ms;
}

static void *worker_main(void *arg)
{
	struct sync *s = arg;

	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		int64_t now_ms = clock_monotonic_ms(), wake_ms = now_ms + IDLE_MS;
		struct job job;

		if (attach_due(s, now_ms, &wake_ms))
			attach(s);
		else if (manifest_due(s, now_ms, false, &wake_ms))
			write_manifest(s);
		else if (s->journal_dirty && !s->journal_syncing && now_ms >= s->journal_sync_ms)
			sync_journal(s);
		else if (s->attached && plan_next(&s->plan, now_ms, &job, &wake_ms)) {
			if (job.kind == JOB_FREEZE)
				freeze_dir(s, job.dir);
			else
				run_job(s, &job);
		} else if (manifest_due(s, now_ms, true, &wake_ms))
			write_manifest(s);
		else
			clock_cond_wait_until_ms(&s->work, &s->lock, wake_ms);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- the owner of the watch ---- */

static void *owner_main(void *arg)
{
	struct sync *s = arg;
	int wait_ms = 0;

	for (;;) {
		struct pollfd fds[2] = {{.fd = s->wake_fd, .events = POLLIN},
			{.fd = s->watch ? watch_fd(s->watch) : -1, .events = POLLIN}};
		int64_t now_ms, look_ms;
		uint64_t count;

		poll(fds, 2, wait_ms);
		if (fds[0].revents & POLLIN && read(s->wake_fd, &count, sizeof(count)) < 0)
			count = 0;
		pthread_mutex_lock(&s->lock);
		if (s->stop)
			break;
		for (unsigned n = 0; n < READS_PER_ROUND && observe_events(s); n++)
			;
		if (s->scans_wanted > s->scan_for)
			dirs_push_all(s);
		now_ms = clock_monotonic_ms();
		look_ms = observe_writers(s, now_ms);
		wait_ms = observe_scan(s, now_ms);
		if (look_ms - now_ms < wait_ms)
			wait_ms = look_ms > now_ms ? (int)(look_ms - now_ms) : 0;
		state_write_journal(s);
		pthread_cond_signal(&s->work);
		pthread_mutex_unlock(&s->lock);
		sync_deliver(s);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- start and end ---- */

static int copy_options(struct sync *s, const struct sync_options *o, struct penstock_error *err)
{
	const char **texts[] = {&s->o.dir, &s->o.private_dir, &s->o.bucket, &s->o.prefix,
		&s->o.state_prefix, &s->o.run_id, &s->o.journal_path};

	_Static_assert(ARRAY_SIZE(texts) <= ARRAY_SIZE(s->strings), "one slot for each");
	s->o = *o;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (!*texts[i])
			continue;
		s->strings[i] = strdup(*texts[i]);
		if (!s->strings[i])
			return error_memory(err);
		*texts[i] = s->strings[i];
	}
	if (!s->o.quiet_ms)
		s->o.quiet_ms = SYNC_QUIET_MS;
	if (!s->o.append_ms)
		s->o.append_ms = SYNC_APPEND_MS;
	if (!s->o.scan_ms)
		s->o.scan_ms = SYNC_SCAN_MS;
	s->n_workers = s->o.workers ? s->o.workers : SYNC_WORKERS;
	if (s->n_workers > SYNC_WORKERS_MAX)
		s->n_workers = SYNC_WORKERS_MAX;
	s->sent_dir = path_join(s->o.private_dir, "sent");
	s->state = str_printf("%s%s/", s->o.prefix, s->o.state_prefix);
	s->manifest = s->state ? str_printf("%smanifest.json", s->state) : NULL;
	return s->sent_dir && s->manifest ? 0 : error_memory(err);
}

static int open_parts(struct sync *s, struct penstock_error *err)
{
	unsigned char random[8];
	struct statfs fs;
	int rc;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return error_errno(err, errno, "cannot get random numbers");
	str_hex(random, sizeof(random), s->nonce);
	process_boot_id(s->boot);
	s->started_ns = clock_wall_ns();
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		return error_errno(err, errno, "cannot start the sync");
	/* A symbolic link is refused, because it may lead to files of another program. */
	s->root_fd = open(s->o.dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->root_fd < 0)
		return error_errno(err, errno, "cannot open the output directory '%s'", s->o.dir);
	rc = fs_mkdirs(s->o.private_dir, 0700, err);
	if (rc < 0)
		return rc;
	if (table_init(&s->table) < 0)
		return error_memory(err);
	s->leases_unreliable = fs_is_network(s->o.dir);
	s->plan = (struct plan){.table = &s->table,
		.procs = &s->procs,
		.note = state_note,
		.cookie = s,
		.quiet_ms = s->o.quiet_ms,
		.append_ms = s->o.append_ms,
		.workers = s->n_workers,
		.continuous = s->o.continuous};
	/* tmpfs and ramfs keep no trace of writes through a mapping: not even the time of the file
	 * changes. */
	s->plan.always_dirty = fstatfs(s->root_fd, &fs) == 0 &&
			       ((unsigned long)fs.f_type == TMPFS_MAGIC ||
				       (unsigned long)fs.f_type == RAMFS_MAGIC);
	return 0;
}

/* Reads the journal and the directory, before any task runs. */
static int look_around(struct sync *s, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error ignored = PENSTOCK_ERROR_INIT;
	int rc = state_replay(s, err);

	if (rc == 0)
		rc = state_reconcile(s, err);
	if (rc < 0)
		return rc;
	s->initial = true;
	observe_start(s);
	while (s->scan_all)
		observe_scan(s, clock_monotonic_ms());
	s->initial = false;
	if (state_rewrite_journal(s, &ignored) < 0)
		sync_emit(s, SYNC_WARNING, NULL, 0, "%s", ignored.message);
	return 0;
}

int sync_new(struct sync **out, const struct sync_options *options, struct penstock_error *err)
{
	struct sync *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return error_memory(err);
	s->root_fd = s->wake_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->event_lock, NULL);
	clock_cond_init(&s->work);
	clock_cond_init(&s->idle);
	rc = copy_options(s, options, err);
	if (rc == 0)
		rc = open_parts(s, err);
	if (rc < 0) {
		sync_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

int sync_start(struct sync **out, const struct sync_options *options, struct penstock_error *err)
{
	struct sync *s = NULL;
	int rc = sync_new(&s, options, err);

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = look_around(s, err);
	pthread_mutex_unlock(&s->lock);
	if (rc == 0) {
		rc = thread_start(&s->owner, "sync", owner_main, s, err);
		s->owner_started = rc == 0;
	}
	while (rc == 0 && s->n_started < s->n_workers) {
		rc = thread_start(&s->workers[s->n_started], "upload", worker_main, s, err);
		s->n_started += rc == 0;
	}
	sync_deliver(s);
	if (rc < 0) {
		sync_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

void sync_free(struct sync *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	atomic_store(&s->cancel, 1);
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	if (s->owner_started) {
		sync_wake_owner(s);
		pthread_join(s->owner, NULL);
	}
	for (int i = 0; i < s->n_started; i++)
		pthread_join(s->workers[i], NULL);
	sync_deliver(s);
	if (s->journal) {
		if (journal_damaged(s->journal))
			state_rewrite_journal(s, NULL);
		journal_write(s->journal);
		journal_sync(s->journal);
		journal_free(s->journal);
	}
	observe_stop(s);
	leftovers_free(s);
	strlist_release(&s->nonces);
	table_release(&s->table);
	procs_release(&s->procs);
	keep_free(s);
	penstock_error_release(&s->flush_error);
	penstock_error_release(&s->attach_error);
	if (s->root_fd >= 0)
		close(s->root_fd);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	for (size_t i = 0; i < ARRAY_SIZE(s->strings); i++)
		free(s->strings[i]);
	free(s->state);
	free(s->manifest);
	free(s->sent_dir);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->event_lock);
	free(s);
}

void sync_task_ended(struct sync *s, bool killed)
{
	unsigned n = 0;

	pthread_mutex_lock(&s->lock);
	/* The closes of killed processes are in the queue of the watch already; files that they
	 * made in new directories are found by a scan. Processes that stay alive may keep writing,
	 * so the lock is released between steps, and the number of steps is limited. */
	for (observe_catch_up(s); (s->scan_dir || s->scan_first) && n < SEE_STEPS;
		observe_catch_up(s), n++) {
		observe_scan(s, clock_monotonic_ms());
		pthread_mutex_unlock(&s->lock);
		pthread_mutex_lock(&s->lock);
	}
	plan_task_ended(&s->plan, killed, clock_monotonic_ms());
	/* A finished step is not run again, so its output must be recorded. */
	state_write_journal(s);
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->lock);
	sync_wake_owner(s);
	sync_deliver(s);
}

void sync_kill_coming(struct sync *s)
{
	pthread_mutex_lock(&s->lock);
	observe_catch_up(s);
	observe_doomed(s);
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
}

void sync_kill_over(struct sync *s)
{
	pthread_mutex_lock(&s->lock);
	observe_catch_up(s);
	for (struct work *w = s->table.works; w; w = w->all_next)
		plan_doom(w, false);
	pthread_mutex_unlock(&s->lock);
	sync_deliver(s);
}
