#include "run/publish/checkpoints.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "checkpoint/read.h"
#include "run/publish/keeper.h"
#include "run/publish/publisher.h"

/* Pauses between two checks for the objects of removed checkpoints, and for newer checkpoints that
 * no event of the sync reports. */
enum { CHECK_MS = 250, CHECK_NEWER_MS = 2000 };

struct checkpoint_keeper {
	struct keeper keeper;
	pthread_t thread;
	atomic_int cancel;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop, published; /* under lock */
};

void run_checkpoints_init(struct run_checkpoints *checkpoints)
{
	pthread_mutex_init(&checkpoints->lock, NULL);
}

void run_checkpoints_release(struct run_checkpoints *checkpoints)
{
	free(take_pointer(checkpoints->newest));
}

/* ---- the checkpoint to continue from ---- */

static void on_skipped(void *cookie, const char *path, const char *why)
{
	const struct publisher *p = cookie;

	(void)path;
	run_say(&p->attempt->voice, RUN_EVENT_WARNING, "skipped: %s", why);
}

int run_checkpoints_find(struct publisher *p, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_(keeper_release) struct keeper k = {0};
	char size[STR_SIZE_SIZE];
	int r = keeper_init(&k, p, err);

	if (r < 0)
		return r;
	free(take_pointer(p->checkpoints.newest));
	r = commit_latest(&c, k.dir, on_skipped, p, (const volatile int *)k.cancel, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	p->checkpoints.newest = keeper_relative(p, path_last(c->path));
	if (!p->checkpoints.newest)
		return error_memory(err);
	str_format_size(commit_size(c), size);
	run_say(&p->attempt->voice, RUN_EVENT_MESSAGE,
		"continues from the checkpoint %s: step %" PRIu64 ", %s", p->checkpoints.newest,
		c->step, size);
	return 0;
}

/* ---- while the steps run ---- */

/* Waits for a publication, at most `ms` (-1: no limit). Returns false if the thread must stop. */
static bool wait_for_work(struct checkpoint_keeper *c, int ms)
{
	LOCK_SCOPE(&c->lock);
	while (ms < 0 && !c->stop && !c->published)
		pthread_cond_wait(&c->wake, &c->lock);
	if (!c->stop && !c->published)
		clock_cond_wait_ms(&c->wake, &c->lock, ms);
	c->published = false;
	return !c->stop;
}

static void *keeper_main(void *cookie)
{
	struct checkpoint_keeper *c = cookie;
	struct keeper *k = &c->keeper;
	bool synced = k->publisher->sync != NULL;
	int pause_ms = k->going.n ? 0 : synced ? -1 : CHECK_NEWER_MS;

	while (wait_for_work(c, pause_ms)) {
		bool all = true;
		size_t n;

		if (k->publisher->attempt->workflow->checkpoints.pattern.value &&
			k->publisher->sync)
			all = keeper_commit_files(k, false, &n);
		all &= keeper_retire(k);
		pause_ms = !keeper_remove_rest(k) ? CHECK_MS : all && synced ? -1 : CHECK_NEWER_MS;
		k->late = atomic_load(k->cancel);
	}
	return NULL;
}

static int start(struct publisher *p, struct penstock_error *err)
{
	struct checkpoint_keeper *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_memory(err);
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->wake);
	r = keeper_init(&c->keeper, p, err);
	if (r == 0)
		r = keeper_load_retired(&c->keeper, err);
	keeper_remove_leftovers(&c->keeper);
	c->keeper.cancel = &c->cancel;
	if (r == 0)
		r = thread_start(&c->thread, "checkpoints", keeper_main, c, err);
	if (r < 0) {
		keeper_release(&c->keeper);
		free(c);
		return r;
	}
	pthread_mutex_lock(&p->checkpoints.lock);
	p->checkpoints.keeper = c;
	pthread_mutex_unlock(&p->checkpoints.lock);
	return 0;
}

int run_checkpoints_begin(struct publisher *p, struct penstock_error *err)
{
	const struct workflow_checkpoints *w = &p->attempt->workflow->checkpoints;
	_cleanup_(keeper_release) struct keeper k = {0};
	int r = keeper_init(&k, p, err);
	size_t n;

	if (r < 0)
		return r;
	/* Restored files are complete, even if the last attempt ended before it committed them. */
	if (p->attempt->continuing && w->pattern.value && p->sync)
		keeper_commit_files(&k, true, &n);
	r = p->attempt->continuing ? run_checkpoints_find(p, err) : 0;
	/* Start no thread if the output is sent only at the end: until then the local checkpoints
	 * are the only copy. */
	if (r == 0 && (p->sync ? p->attempt->workflow->continuous_output_sync.value &&
					      (w->keeps || w->pattern.value)
			       : w->keeps))
		r = start(p, err);
	return r;
}

void run_checkpoints_published(struct publisher *p, const char *path)
{
	const struct workflow_checkpoints *w = &p->attempt->workflow->checkpoints;
	struct checkpoint_keeper *c;

	/* Ignore all other files: there may be very many, and each check reads all commits. */
	if (!path || !(commit_is_name(path_last(path)) ||
			     (w->pattern.value && checkpoint_matches(p, path_last(path)))))
		return;
	LOCK_SCOPE(&p->checkpoints.lock);
	c = p->checkpoints.keeper;
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->published = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

void run_checkpoints_stop(struct publisher *p)
{
	struct checkpoint_keeper *c;

	LOCK_SCOPE(&p->checkpoints.lock);
	c = p->checkpoints.keeper;
	if (!c)
		return;
	atomic_store(&c->cancel, 1);
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

bool run_checkpoints_end(struct publisher *p)
{
	struct checkpoint_keeper *c;
	bool late;

	run_checkpoints_stop(p);
	pthread_mutex_lock(&p->checkpoints.lock);
	c = take_pointer(p->checkpoints.keeper);
	pthread_mutex_unlock(&p->checkpoints.lock);
	if (!c)
		return false;
	pthread_join(c->thread, NULL);
	late = c->keeper.late;
	/* Without a store no flush follows, so remove checkpoints now. */
	if (!p->sync && p->attempt->end.state != RUN_PREEMPTED) {
		c->keeper.cancel = &p->reaction->interrupts.cancel;
		keeper_retire(&c->keeper);
		keeper_remove_rest(&c->keeper);
	}
	keeper_release(&c->keeper);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return late;
}

/* Removes checkpoints here and in the store. A failure is only reported. */
static void remove_all(struct keeper *k)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct publisher *p = k->publisher;
	int r = keeper_load_retired(k, &err);

	keeper_retire(k);
	if (r < 0 || !k->going.n)
		return;
	/* Flush up to three times: after the removal of the commits, of all other files, and of
	 * files that a killed attempt had left. */
	for (int i = 0; r == 0 && !keeper_remove_rest(k) && p->sync && i < 3; i++)
		r = publisher_flush_sync(p, &err);
	if (r < 0)
		run_say(&p->attempt->voice, RUN_EVENT_WARNING,
			"checkpoints that the workflow does not keep are still in the store: %s",
			err.message ? err.message : penstock_code_name(err.code));
}

int run_checkpoints_settle(struct publisher *p, bool succeeded, struct penstock_error *err)
{
	const struct workflow_checkpoints *w = &p->attempt->workflow->checkpoints;
	_cleanup_(keeper_release) struct keeper k = {0};
	size_t n = 0;
	int r;

	if (!w->given)
		return 0;
	r = keeper_init(&k, p, err);
	k.counts_older = succeeded;
	if (r == 0 && w->pattern.value && p->sync)
		keeper_commit_files(&k, false, &n);
	if (r == 0 && n)
		r = publisher_flush_sync(p, err);
	/* If the machine is being preempted, leave the cleanup to the next attempt. */
	if (r == 0 && p->attempt->end.state != RUN_PREEMPTED)
		remove_all(&k);
	return r;
}

void run_checkpoints_report(const struct publisher *p)
{
	size_t n = p->checkpoints.removed;

	if (n)
		run_say(&p->attempt->voice, RUN_EVENT_MESSAGE,
			"removed %zu checkpoint%s that `checkpoints.keep` does not keep", n,
			n == 1 ? "" : "s");
}
