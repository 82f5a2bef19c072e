/* Commits checkpoint files whose program writes no commits. */
#include "run/publish/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "checkpoint/read.h"
#include "checkpoint/save.h"
#include "run/publish/publisher.h"
#include "sync/sync.h"
#include "transfer/objects.h"

static bool is_committed(const char *dir, const char *name, const struct stat *st)
{
	_cleanup_free_ char *path = path_join(dir, name), *commit = NULL;
	_cleanup_(commit_freep) struct commit *c = NULL;
	struct stat its;

	commit = path ? checkpoint_commit(path, true) : NULL;
	if (!commit || lstat(commit, &its) < 0 || commit_open(&c, path, NULL) < 0)
		return false;
	return commit_size(c) == (uint64_t)st->st_size &&
	       (its.st_mtim.tv_sec != st->st_mtim.tv_sec
			       ? its.st_mtim.tv_sec > st->st_mtim.tv_sec
			       : its.st_mtim.tv_nsec >= st->st_mtim.tv_nsec);
}

static int next_number(const char *dir, uint64_t *number, struct penstock_error *err)
{
	_cleanup_(commit_list_release) struct commit_list list = {0};
	int r = commit_list_read(&list, dir, err);

	*number = 1;
	for (size_t i = 0; i < list.n; i++) {
		if (list.items[i].step >= *number)
			*number = list.items[i].step + 1;
	}
	return r;
}

struct candidate {
	char *name;
	int64_t mtime_ns;
};

struct candidates {
	struct candidate *items;
	size_t n;
	int64_t newest_ns; /* time of the newest committed file */
};

static void candidates_release(struct candidates *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->items[i].name);
	free(c->items);
}

bool checkpoint_matches(const struct publisher *p, const char *name)
{
	return fnmatch(p->attempt->workflow->checkpoints.pattern.value, name, FNM_PERIOD) == 0 &&
	       !commit_is_name(name) && !str_starts(name, COMMIT_HIDDEN) &&
	       !str_ends(name, OBJECT_PART_SUFFIX);
}

bool checkpoint_is_single(void *cookie, const char *path)
{
	const struct publisher *p = cookie;
	const char *name = path_last(path);
	_cleanup_free_ char *here = NULL;

	if (!p->attempt->workflow->checkpoints.pattern.value || !checkpoint_matches(p, name))
		return false;
	here = keeper_relative(p, name);
	return !here || strcmp(here, path) == 0;
}

/* Returns true if a commit can hold the name: commits are UTF-8 without control characters. */
static bool has_good_name(const char *name)
{
	_cleanup_free_ char *copy = strdup(name);

	if (copy)
		str_make_utf8(copy);
	return copy && strcmp(copy, name) == 0 && commit_name_is_good(name);
}

static bool matches(struct keeper *k, const char *name)
{
	if (!checkpoint_matches(k->publisher, name))
		return false;
	if (has_good_name(name))
		return true;
	if (!k->publisher->checkpoints.said_name)
		run_say(&k->publisher->attempt->voice, RUN_EVENT_WARNING,
			"cannot commit a file that `checkpoints.pattern` matches: its name has "
			"control characters or is not UTF-8; rename the file");
	k->publisher->checkpoints.said_name = true;
	return false;
}

/* Returns true if the file may be committed now. If `all`, every file in the directory is
 * complete. */
static bool is_ready(const struct keeper *k, const char *name, bool all)
{
	_cleanup_free_ char *relative = keeper_relative(k->publisher, name);

	return relative && (all || sync_is_published(k->publisher->sync, relative));
}

/* Adds the file to `found` if it is to be committed now. Returns false if it must be committed
 * later, because it is not published yet, or if out of memory. */
static bool consider(struct keeper *k, const char *name, bool all, struct candidates *found)
{
	_cleanup_free_ char *path = path_join(k->dir, name);
	struct candidate *items;
	struct candidate c = {.name = NULL};
	struct stat st;

	if (!path || !matches(k, name) || lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return true;
	c.mtime_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
	if (is_committed(k->dir, name, &st)) {
		if (c.mtime_ns > found->newest_ns)
			found->newest_ns = c.mtime_ns;
		return true;
	}
	if (!is_ready(k, name, all))
		return false;
	items = reallocarray(found->items, found->n + 1, sizeof(c));
	c.name = items ? strdup(name) : NULL;
	if (items)
		found->items = items;
	if (c.name)
		items[found->n++] = c;
	return c.name != NULL;
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
	uint64_t number;
	int r = next_number(k->dir, &number, &err);

	if (r == 0)
		r = save_single(k->dir, name, number,
			&(struct save_options){
				.attempt = (unsigned)k->publisher->attempt->number,
				.run_id = k->publisher->attempt->id,
				.cancel = (const volatile int *)k->cancel,
			},
			&err);
	if (r < 0 && r != -(int)PENSTOCK_E_CHANGED && r != -(int)PENSTOCK_E_NOT_FOUND &&
		r != -(int)PENSTOCK_E_CANCELLED)
		run_say(&k->publisher->attempt->voice, RUN_EVENT_WARNING,
			"cannot commit '%s' as a checkpoint: %s", name, err.message);
	return r;
}

bool keeper_commit_files(struct keeper *k, bool all, size_t *committed)
{
	_cleanup_(candidates_release) struct candidates found = {.newest_ns = INT64_MIN};
	_cleanup_closedir_ DIR *stream = NULL;
	bool complete = true;
	struct dirent *d;

	*committed = 0;
	if (!keeper_is_inside(k))
		return true;
	stream = opendir(k->dir);
	if (!stream)
		return errno == ENOENT;
	while ((d = fs_next_entry(stream)))
		complete &= consider(k, d->d_name, all, &found);
	/* Commit nothing if the directory was not read completely: a commit of a newer file would
	 * make keeper_commit_files() skip an older file that was not read. */
	if (errno)
		return false;
	if (found.n)
		qsort(found.items, found.n, sizeof(*found.items), by_time);
	for (size_t i = 0; i < found.n; i++) {
		if (found.items[i].mtime_ns >= found.newest_ns && !atomic_load(k->cancel))
			*committed += commit_file(k, found.items[i].name) == 0;
	}
	return complete;
}
