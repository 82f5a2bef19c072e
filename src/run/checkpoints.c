#include "run/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/keep.h"
#include "checkpoint/read.h"
#include "checkpoint/save.h"
#include "run/lease.h"
#include "run/run_internal.h"
#include "sync/sync.h"
#include "transfer/objects.h"
#include "base/banned.h"

#define LOOK_MS	 250  /* between two looks whether the objects of removed commits are gone */
#define LOCAL_MS 2000 /* between two looks at the directory where no sync tells of changes */

/* What looks after the checkpoints; by the thread while that lives, then by the end of the run. */
struct keeper {
	struct run *run;
	char *dir;		  /* where they are */
	const atomic_int *cancel; /* set: nothing more is begun */
	struct strlist going;	  /* relative paths below the output: their commits are removed */
	char *verified;		  /* the newest that was found whole in the store */
	bool told_of_link, told_of_name;
	bool late; /* something was changed after it was told to end */
};

struct run_checkpoints {
	struct keeper keeper;
	pthread_t thread;
	atomic_int cancel;

	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool stop, published; /* under lock */
};

/* ---- names ---- */

/* "path/NAME", or "NAME" where checkpoints lie in the output itself. */
static char *below_output(const struct run *run, const char *name)
{
	const char *path = run->workflow->checkpoints.path.value;

	return strcmp(path, ".") == 0 ? strdup(name) : path_join(path, name);
}

static char *local_path(const struct run *run, const char *relative)
{
	return path_join(run->layout.output, relative);
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Of a directory or a single file. */
static char *commit_of(const char *relative, bool single)
{
	char *path = NULL;

	return asprintf(&path, single ? "%s" COMMIT_SUFFIX : "%s/" COMMIT_NAME, relative) < 0
		       ? NULL
		       : path;
}

static int keeper_init(struct keeper *k, struct run *run, struct penstock_error *err)
{
	const char *path = run->workflow->checkpoints.path.value;

	*k = (struct keeper){.run = run, .cancel = &run->interrupts.cancel};
	k->dir = strcmp(path, ".") == 0 ? strdup(run->layout.output)
					: path_join(run->layout.output, path);
	return k->dir ? 0 : error_memory(err);
}

static void keeper_release(struct keeper *k)
{
	free(k->dir);
	free(k->verified);
	strlist_release(&k->going);
	*k = (struct keeper){0};
}

/*
 * Whether the directory is in the output and not behind a link: what lies elsewhere, as what another run has saved, is
 * nobody's to remove or to write to.
 */
static bool is_inside(struct keeper *k)
{
	const char *path = k->run->workflow->checkpoints.path.value;
	_cleanup_close_ int output = open(
		k->run->layout.output, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int dir = -1;
	size_t at;

	if (output >= 0)
		dir = fs_open_below(output, path, strlen(path), false, &at);
	if (dir < 0 && errno != ENOENT && !k->told_of_link)
		run_say(k->run, RUN_EVENT_WARNING,
			"%s is a link, or lies behind one: nothing is removed or committed there",
			k->dir);
	k->told_of_link |= dir < 0 && errno != ENOENT;
	return dir >= 0;
}

/* ---- what an attempt goes on from ---- */

static void passed_over(void *cookie, const char *path, const char *why)
{
	(void)path;
	run_say(cookie, RUN_EVENT_WARNING, "passed over: %s", why);
}

int run_checkpoints_find(struct run *run, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(commit_freep) struct commit *c = NULL;
	_cleanup_(keeper_release) struct keeper k = {0};
	char size[STR_SIZE_SIZE];
	int r = keeper_init(&k, run, err);

	if (r < 0)
		return r;
	free(take_pointer(run->checkpoint));
	r = commit_latest(&c, k.dir, passed_over, run, (const volatile int *)k.cancel, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	run->checkpoint = below_output(run, name_of(c->path));
	if (!run->checkpoint)
		return error_memory(err);
	str_format_size(commit_size(c), size);
	run_say(run, RUN_EVENT_MESSAGE, "goes on from the checkpoint %s: step %" PRIu64 ", %s",
		run->checkpoint, c->step, size);
	return 0;
}

/* ---- commits of files of programs that know of none ---- */

static bool is_committed(const char *dir, const char *name, const struct stat *st)
{
	_cleanup_free_ char *path = path_join(dir, name), *commit = NULL;
	_cleanup_(commit_freep) struct commit *c = NULL;
	struct stat its;

	commit = path ? commit_of(path, true) : NULL;
	if (!commit || lstat(commit, &its) < 0 || commit_open(&c, path, NULL) < 0)
		return false;
	return commit_size(c) == (uint64_t)st->st_size &&
	       (its.st_mtim.tv_sec != st->st_mtim.tv_sec
			       ? its.st_mtim.tv_sec > st->st_mtim.tv_sec
			       : its.st_mtim.tv_nsec >= st->st_mtim.tv_nsec);
}

static uint64_t next_number(const char *dir)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	uint64_t number = 0;

	if (commit_list_read(&list, dir, NULL) < 0)
		return 1;
	for (size_t i = 0; i < list.n; i++) {
		if (list.items[i].step > number)
			number = list.items[i].step;
	}
	return number + 1;
}

struct candidate {
	char *name;
	int64_t mtime_ns;
};

struct candidates {
	struct candidate *items;
	size_t n;
	int64_t newest_ns; /* of those that are committed */
};

static void candidates_release(struct candidates *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->items[i].name);
	free(c->items);
}

static bool is_meant(const struct run *run, const char *name)
{
	return fnmatch(run->workflow->checkpoints.pattern.value, name, FNM_PERIOD) == 0 &&
	       !commit_is_name(name) && !str_starts(name, COMMIT_HIDDEN) &&
	       !str_ends(name, OBJECT_PART_SUFFIX);
}

/* Whether a commit can name it: it is a document of UTF-8, without control characters. */
static bool has_good_name(const char *name)
{
	_cleanup_free_ char *copy = strdup(name);

	if (copy)
		str_make_utf8(copy);
	return copy && strcmp(copy, name) == 0 && commit_name_is_good(name);
}

static bool matches(struct keeper *k, const char *name)
{
	if (!is_meant(k->run, name))
		return false;
	if (has_good_name(name))
		return true;
	if (!k->told_of_name)
		run_say(k->run, RUN_EVENT_WARNING,
			"a file that `checkpoints.pattern` finds has control characters in its "
			"name, or is "
			"not UTF-8: it is no checkpoint, rename it");
	k->told_of_name = true;
	return false;
}

/* Whether it may have a commit now; `all`: all that is there is whole. */
static bool is_ready(const struct keeper *k, const char *name, bool all)
{
	_cleanup_free_ char *relative = below_output(k->run, name);

	return relative && (all || sync_is_published(k->run->sync, relative));
}

static void look_at(struct keeper *k, const char *name, bool all, struct candidates *found)
{
	_cleanup_free_ char *path = path_join(k->dir, name);
	struct candidate *items;
	struct candidate c = {.name = NULL};
	struct stat st;

	if (!path || !matches(k, name) || lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	c.mtime_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
	if (is_committed(k->dir, name, &st)) {
		if (c.mtime_ns > found->newest_ns)
			found->newest_ns = c.mtime_ns;
		return;
	}
	if (!is_ready(k, name, all))
		return;
	items = reallocarray(found->items, found->n + 1, sizeof(c));
	c.name = items ? strdup(name) : NULL;
	if (items)
		found->items = items;
	if (c.name)
		items[found->n++] = c;
}

static int by_time(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->mtime_ns != y->mtime_ns)
		return x->mtime_ns < y->mtime_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int commit_file(const struct keeper *k, const char *name)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = save_single(k->dir, name, next_number(k->dir),
		&(struct save_options){
			.attempt = (unsigned)k->run->attempt,
			.run_id = k->run->id,
			.cancel = (const volatile int *)k->cancel,
		},
		&err);

	if (r < 0 && r != -(int)PENSTOCK_E_CHANGED && r != -(int)PENSTOCK_E_NOT_FOUND &&
		r != -(int)PENSTOCK_E_CANCELLED)
		run_say(k->run, RUN_EVENT_WARNING, "%s is not committed as a checkpoint: %s", name,
			err.message);
	return r;
}

/*
 * In the order in which they were written; how many were committed. One that is older than what is committed already
 * had a commit, which retention has taken, or came too late to be the newest.
 */
static size_t commit_files(struct keeper *k, bool all)
{
	_cleanup_(candidates_release) struct candidates found = {.newest_ns = INT64_MIN};
	_cleanup_closedir_ DIR *stream = is_inside(k) ? opendir(k->dir) : NULL;
	struct dirent *d;
	size_t n = 0;

	while (stream && (d = readdir(stream)))
		look_at(k, d->d_name, all, &found);
	if (found.n)
		qsort(found.items, found.n, sizeof(*found.items), by_time);
	for (size_t i = 0; i < found.n; i++) {
		if (found.items[i].mtime_ns >= found.newest_ns && !atomic_load(k->cancel))
			n += commit_file(k, found.items[i].name) == 0;
	}
	return n;
}

/* ---- which stay ---- */

/* All that it names, and the commit, stands in the store as it is here. */
static int verify_in_store(
	const struct keeper *k, const struct commit *c, struct penstock_error *err)
{
	_cleanup_free_ char *relative = below_output(k->run, name_of(c->path));
	_cleanup_free_ char *commit = relative ? commit_of(relative, c->single) : NULL;
	_cleanup_free_ char *local = commit ? local_path(k->run, commit) : NULL;
	struct stat st;
	int r;

	if (!local)
		return error_memory(err);
	if (lstat(local, &st) < 0)
		return error_errno(err, errno, "cannot read %s", local);
	r = sync_verify_object(k->run->sync, commit, (uint64_t)st.st_size, err);
	for (size_t i = 0; r == 0 && i < c->n_files; i++) {
		if (atomic_load(k->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
		_cleanup_free_ char *file = c->single ? strdup(relative)
						      : path_join(relative, c->files[i].name);

		r = file ? sync_verify_object(k->run->sync, file, c->files[i].size, err)
			 : error_memory(err);
	}
	return r;
}

/* Nothing goes before the newest is safe. */
static bool newest_is_safe(struct keeper *k, const struct commit *c)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (k->verified && strcmp(k->verified, c->path) == 0 && !c->single)
		return true;
	r = k->run->sync ? verify_in_store(k, c, &err)
			 : commit_verify(c, true, (const volatile int *)k->cancel, &err);
	if (r < 0 || atomic_load(k->cancel)) {
		log_debug("no checkpoint is removed: %s", err.message ? err.message : "the end");
		return false;
	}
	free(k->verified);
	k->verified = strdup(c->path);
	return true;
}

/*
 * The newest that can be judged, by its place in the list; SIZE_MAX: none. Where saves come quicker than they are published, the
 * newest of all never is, so it is the newest that was: what is newer stays, and does not count yet.
 */
static size_t newest_to_judge(const struct keeper *k, const struct commit_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct commit *c = list->items[i].commit;
		_cleanup_free_ char *relative = NULL, *commit = NULL;

		if (!c)
			continue;
		if (!k->run->sync)
			return i;
		relative = below_output(k->run, name_of(c->path));
		commit = relative ? commit_of(relative, c->single) : NULL;
		if (commit && sync_is_published(k->run->sync, commit))
			return i;
	}
	return SIZE_MAX;
}

/* Of those from `newest` on. */
static void choose(const struct run *run, const struct commit_list *list, size_t newest, bool *keep,
	struct keep_item *items, size_t *order)
{
	const struct workflow_checkpoints *w = &run->workflow->checkpoints;
	const struct keep_policy policy = {
		.latest = (uint64_t)w->latest.value,
		.every = (uint64_t)w->every.value,
		.best = w->metric.value ? (uint64_t)w->best.value : 0,
		.larger = w->larger,
		.newest = true,
	};
	size_t n = 0;

	/* Oldest first; what cannot be read is not judged. */
	for (size_t i = list->n; i-- > newest;) {
		const struct commit *c = list->items[i].commit;
		const struct commit_metric *metric = c && w->metric.value ? commit_find_metric(c,
										    w->metric.value)
									  : NULL;

		if (!c)
			continue;
		order[n] = i;
		items[n++] = (struct keep_item){
			.step = c->step,
			.has_metric = metric != NULL,
			.metric = metric ? metric->value : 0,
		};
	}
	keep_choose(&policy, items, n, keep);
	order[n] = SIZE_MAX;
}

/*
 * On record before it is begun, all at once: an attempt that goes on removes the rest. So many of `gone` were noted, from the
 * first; those beyond have their turn when these are gone.
 */
static size_t note_going(struct keeper *k, const struct commit *const *gone, size_t n)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CHECKPOINT_LIST);
	_cleanup_free_ char *path = path_join(k->run->layout.state, "retired");
	size_t noted = 0;

	for (size_t i = 0; i < k->going.n; i++)
		buf_printf(&text, "%s\n", k->going.items[i]);
	for (; noted < n; noted++) {
		_cleanup_free_ char *relative = below_output(k->run, name_of(gone[noted]->path));

		if (!relative || text.len + strlen(relative) + 3 > LIMIT_CHECKPOINT_LIST ||
			strlist_addf(&k->going, "%c%s", gone[noted]->single ? 'f' : 'd', relative) <
				0)
			break;
		buf_printf(&text, "%s\n", k->going.items[k->going.n - 1]);
	}
	return !path || buf_failed(&text) ||
			       fs_write_atomic(path, text.data, text.len, 0600, NULL) < 0
		       ? 0
		       : noted;
}

/* The first step: here it does not count any more. */
static int remove_commit(struct keeper *k, const struct commit *c)
{
	_cleanup_free_ char *relative = below_output(k->run, name_of(c->path));
	_cleanup_free_ char *commit = relative ? commit_of(relative, c->single) : NULL;
	_cleanup_free_ char *local = commit ? local_path(k->run, commit) : NULL;

	if (!local)
		return -1;
	if (k->run->sync)
		sync_retire(k->run->sync, commit);
	if (unlink(local) < 0 && errno != ENOENT)
		return -1;
	return fs_fsync_dir(c->single ? k->dir : c->path, NULL);
}

/* The first step of all that are not to stay. */
static void retire(struct keeper *k)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	_cleanup_free_ struct keep_item *items = NULL;
	_cleanup_free_ const struct commit **gone = NULL;
	_cleanup_free_ size_t *order = NULL;
	_cleanup_free_ bool *keep = NULL;
	size_t newest, n = 0, noted;

	if (!k->run->workflow->checkpoints.keeps || k->run->fenced ||
		lease_is_lost(k->run->lease) || !is_inside(k) ||
		commit_list_read(&list, k->dir, NULL) < 0)
		return;
	newest = newest_to_judge(k, &list);
	items = calloc(list.n + 1, sizeof(*items));
	gone = calloc(list.n + 1, sizeof(const struct commit *));
	order = calloc(list.n + 1, sizeof(*order));
	keep = calloc(list.n + 1, sizeof(*keep));
	if (newest == SIZE_MAX || !items || !gone || !order || !keep)
		return;
	choose(k->run, &list, newest, keep, items, order);
	for (size_t i = 0; order[i] != SIZE_MAX; i++) {
		if (!keep[i])
			gone[n++] = list.items[order[i]].commit;
	}
	if (n == 0 || !newest_is_safe(k, list.items[newest].commit))
		return;
	noted = note_going(k, gone, n);
	if (noted == 0)
		log_warn("no checkpoint is removed: that cannot be noted in %s",
			k->run->layout.state);
	for (size_t i = 0; i < noted; i++) {
		if (remove_commit(k, gone[i]) < 0) {
			log_warn("the checkpoint %s cannot be removed", gone[i]->path);
			break;
		}
	}
}

/* The last step: where no commit is left in the store, all else goes, here and there. True: nothing waits any more. */
static bool remove_rest(struct keeper *k)
{
	_cleanup_(strlist_release) struct strlist waiting = {0};
	_cleanup_free_ char *path = path_join(k->run->layout.state, "retired");
	size_t n = 0;

	if (!k->going.n || !is_inside(k))
		return true;
	for (size_t i = 0; i < k->going.n; i++) {
		const char *relative = k->going.items[i] + 1;
		bool single = k->going.items[i][0] == 'f';
		_cleanup_free_ char *commit = commit_of(relative, single);
		_cleanup_free_ char *local = local_path(k->run, relative);
		_cleanup_free_ char *local_commit = local ? commit_of(local, single) : NULL;
		bool there;

		/* Saved anew meanwhile: that is another one. */
		if (!commit || !local_commit || access(local_commit, F_OK) == 0)
			continue;
		/* Once more: what has begun it may have been killed, or have come before the store did. */
		if (k->run->sync && (!sync_retire(k->run->sync, commit) ||
					    sync_has_object(k->run->sync, commit) ||
					    !sync_retire(k->run->sync, relative))) {
			strlist_add(&waiting, k->going.items[i]);
			continue;
		}
		/* What is not there was removed, and counted, before. */
		there = access(local, F_OK) == 0;
		if (fs_remove_tree(local, NULL) == 0 && there)
			n++;
	}
	strlist_release(&k->going);
	k->going = waiting;
	waiting = (struct strlist){0};
	if (!k->going.n && path)
		unlink(path);
	if (n)
		run_say(k->run, RUN_EVENT_MESSAGE,
			"removed %zu checkpoint%s that the workflow does not keep", n,
			n == 1 ? "" : "s");
	return k->going.n == 0;
}

/* What an attempt before has begun to remove. */
static int read_going(struct keeper *k, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CHECKPOINT_LIST);
	_cleanup_free_ char *path = path_join(k->run->layout.state, "retired");
	char *line, *rest;

	if (!path)
		return error_memory(err);
	if (fs_read(path, &text, NULL) < 0 || !text.data)
		return 0;
	for (line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if ((*line == 'd' || *line == 'f') && commit_name_is_good(line + 1) &&
			strlist_add(&k->going, line) < 0)
			return error_memory(err);
	}
	return 0;
}

/* ---- while the steps run ---- */

static bool rest(struct run_checkpoints *c, bool waiting)
{
	bool told = c->keeper.run->sync != NULL;

	LOCK_SCOPE(&c->lock);
	while (told && !c->stop && !c->published && !waiting)
		pthread_cond_wait(&c->wake, &c->lock);
	if (!c->stop && !c->published)
		clock_cond_wait_ms(&c->wake, &c->lock, told ? LOOK_MS : LOCAL_MS);
	c->published = false;
	return !c->stop;
}

static void *keeper_main(void *cookie)
{
	struct run_checkpoints *c = cookie;
	struct keeper *k = &c->keeper;
	bool waiting = false;

	while (rest(c, waiting)) {
		if (k->run->workflow->checkpoints.pattern.value && k->run->sync)
			commit_files(k, false);
		retire(k);
		waiting = !remove_rest(k);
		k->late = atomic_load(k->cancel);
	}
	return NULL;
}

static int start(struct run *run, struct penstock_error *err)
{
	struct run_checkpoints *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_memory(err);
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->wake);
	r = keeper_init(&c->keeper, run, err);
	c->keeper.cancel = &c->cancel;
	if (r == 0)
		r = read_going(&c->keeper, err);
	if (r == 0 && (r = -pthread_create(&c->thread, NULL, keeper_main, c)) < 0)
		r = error_errno(err, -r, "cannot start a thread");
	if (r < 0) {
		keeper_release(&c->keeper);
		free(c);
		return r;
	}
	pthread_mutex_lock(&run->checkpoints_lock);
	run->checkpoints = c;
	pthread_mutex_unlock(&run->checkpoints_lock);
	return 0;
}

int run_checkpoints_begin(struct run *run, struct penstock_error *err)
{
	const struct workflow_checkpoints *w = &run->workflow->checkpoints;
	_cleanup_(keeper_release) struct keeper k = {0};
	int r = keeper_init(&k, run, err);

	if (r < 0)
		return r;
	/* What was restored is whole, whether or not its commit was in time. */
	if (run->continuing && w->pattern.value && run->sync)
		commit_files(&k, true);
	r = run->continuing ? run_checkpoints_find(run, err) : 0;
	/* What is sent at the end only is all that there is until then. */
	if (r == 0 && (run->sync ? run->workflow->continuous_output_sync.value &&
					      (w->keeps || w->pattern.value)
				 : w->keeps))
		r = start(run, err);
	return r;
}

void run_checkpoints_published(struct run *run, const char *path)
{
	const struct workflow_checkpoints *w = &run->workflow->checkpoints;
	struct run_checkpoints *c;

	/* Of all else there may be very much, and each look reads all commits. */
	if (!path || !(commit_is_name(name_of(path)) ||
			     (w->pattern.value && is_meant(run, name_of(path)))))
		return;
	LOCK_SCOPE(&run->checkpoints_lock);
	c = run->checkpoints;
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->published = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

/* Without a store there is no flush after which it would be done. */
static void tidy_locally(struct keeper *k)
{
	k->cancel = &k->run->interrupts.cancel;
	if (k->run->end.state == RUN_PREEMPTED)
		return;
	retire(k);
	remove_rest(k);
}

void run_checkpoints_stop(struct run *run)
{
	struct run_checkpoints *c;

	LOCK_SCOPE(&run->checkpoints_lock);
	c = run->checkpoints;
	if (!c)
		return;
	atomic_store(&c->cancel, 1);
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

bool run_checkpoints_end(struct run *run)
{
	struct run_checkpoints *c;
	bool late;

	run_checkpoints_stop(run);
	pthread_mutex_lock(&run->checkpoints_lock);
	c = take_pointer(run->checkpoints);
	pthread_mutex_unlock(&run->checkpoints_lock);
	if (!c)
		return false;
	pthread_join(c->thread, NULL);
	late = c->keeper.late;
	if (!run->sync)
		tidy_locally(&c->keeper);
	keeper_release(&c->keeper);
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return late;
}

/* Removes here and in the store; what could not be removed is not worth the end of a run. */
static void remove_all(struct keeper *k)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct run *run = k->run;
	int r = read_going(k, &err);

	retire(k);
	if (r < 0 || !k->going.n)
		return;
	/* The commits, all else, and once more for what an attempt that was killed had begun. */
	for (int i = 0; r == 0 && i < 3; i++) {
		if (run->sync && i > 0)
			r = run_flush_sync(run, run->sync, &err);
		if (r == 0 && remove_rest(k))
			break;
	}
	if (r == 0 && run->sync)
		r = run_flush_sync(run, run->sync, &err);
	if (r < 0)
		run_say(run, RUN_EVENT_WARNING,
			"checkpoints that the workflow does not keep are still in the store: %s",
			err.message ? err.message : penstock_code_name(err.code));
}

int run_checkpoints_settle(struct run *run, struct penstock_error *err)
{
	const struct workflow_checkpoints *w = &run->workflow->checkpoints;
	_cleanup_(keeper_release) struct keeper k = {0};
	int r;

	if (!w->given)
		return 0;
	r = keeper_init(&k, run, err);
	if (r == 0 && w->pattern.value && run->sync && commit_files(&k, false))
		r = run_flush_sync(run, run->sync, err);
	/* There is no time to tidy up before a machine goes; the next attempt does. */
	if (r == 0 && run->end.state != RUN_PREEMPTED)
		remove_all(&k);
	return r;
}
