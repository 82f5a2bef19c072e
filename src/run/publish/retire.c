/* Retention of checkpoints: the policy, and removal in three steps. */
#include "run/publish/keeper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "checkpoint/keep.h"
#include "checkpoint/read.h"
#include "run/owner/lease.h"
#include "run/publish/publisher.h"
#include "sync/sync.h"
#include "transfer/objects.h"

/* Returns the path of the commit below the output; free() it. */
static char *commit_of(const struct keeper *k, const struct commit *c)
{
	_cleanup_free_ char *relative = keeper_relative(k->publisher, path_last(c->path));

	return relative ? checkpoint_commit(relative, c->single) : NULL;
}

/* Returns true if only an attempt before the run started over had the checkpoint. */
static bool is_older(const struct keeper *k, const struct commit *c)
{
	_cleanup_free_ char *commit = commit_of(k, c);

	return commit && k->publisher->sync && sync_is_older(k->publisher->sync, commit);
}

/* Checks that the commit and all files that it names are in the store as they are here. */
static int verify_in_store(
	const struct keeper *k, const struct commit *c, struct penstock_error *err)
{
	_cleanup_free_ char *relative = keeper_relative(k->publisher, path_last(c->path));
	_cleanup_free_ char *commit = relative ? checkpoint_commit(relative, c->single) : NULL;
	_cleanup_free_ char *local = commit ? keeper_local(k->publisher, commit) : NULL;
	struct stat st;
	int r;

	if (!local)
		return error_memory(err);
	if (lstat(local, &st) < 0)
		return error_errno(err, errno, "cannot read '%s'", local);
	r = sync_verify_object(k->publisher->sync, commit, (uint64_t)st.st_size, err);
	for (size_t i = 0; r == 0 && i < c->n_files; i++) {
		if (atomic_load(k->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
		_cleanup_free_ char *file = c->single ? strdup(relative)
						      : path_join(relative, c->files[i].name);

		r = file ? sync_verify_object(k->publisher->sync, file, c->files[i].size, err)
			 : error_memory(err);
	}
	return r;
}

/* Verifies the newest checkpoint; a directory that was verified earlier is not verified again.
 * Returns false on failure: then no other checkpoint is removed. */
static bool newest_is_safe(struct keeper *k, const struct commit *c)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (k->verified && strcmp(k->verified, c->path) == 0 && !c->single)
		return true;
	r = k->publisher->sync ? verify_in_store(k, c, &err)
			       : commit_verify(c, true, (const volatile int *)k->cancel, &err);
	if (r < 0 || atomic_load(k->cancel)) {
		log_debug("no checkpoint is removed: %s",
			err.message ? err.message : "the run is ending");
		return false;
	}
	free(k->verified);
	k->verified = strdup(c->path);
	return true;
}

/* Returns the index of the newest checkpoint that is published, or SIZE_MAX. If saves come faster
 * than uploads, the newest checkpoint of all is never published. Checkpoints that are newer than
 * the result stay, and the policy does not count them yet. */
static size_t newest_published(const struct keeper *k, const struct commit_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct commit *c = list->items[i].commit;
		_cleanup_free_ char *commit = c ? commit_of(k, c) : NULL;

		if (c && (!k->publisher->sync ||
				 (commit && sync_is_published(k->publisher->sync, commit))))
			return i;
	}
	return SIZE_MAX;
}

/* Applies the policy to the checkpoints from `newest` on. */
static void choose(const struct publisher *p, const struct commit_list *list, size_t newest,
	bool *keep, struct keep_item *items, size_t *order)
{
	const struct workflow_checkpoints *w = &p->attempt->workflow->checkpoints;
	const struct keep_policy policy = {
		.latest = (uint64_t)w->latest.value,
		.every = (uint64_t)w->every.value,
		.best = w->metric.value ? (uint64_t)w->best.value : 0,
		.larger = w->larger,
		.newest = true,
	};
	size_t n = 0;

	/* Add the oldest checkpoint first, and skip checkpoints whose commit is unreadable. */
	for (size_t i = list->n; i-- > newest;) {
		const struct commit *c = list->items[i].commit;
		const struct commit_metric *metric = NULL;

		if (!c)
			continue;
		if (w->metric.value)
			metric = commit_find_metric(c, w->metric.value);
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

/* ---- the note, a list of the checkpoints to remove ---- */

/* STATE/retired here, and its copy next to the output in the store. */
struct note {
	char *path, *key; /* owned; `key` is NULL without a store */
	struct object_ref object;
};

static int note_find(const struct keeper *k, struct note *note, struct penstock_error *err)
{
	const struct publisher *p = k->publisher;

	*note = (struct note){.path = path_join(p->attempt->layout.state, "retired")};
	if (p->sync) {
		note->key = str_printf("%s%s/retired", p->store->prefix, p->state_prefix);
		note->object = object_at(p->store->client, p->store->bucket, note->key);
	}
	return note->path && (note->key || !p->sync) ? 0 : error_memory(err);
}

static void note_release(struct note *note)
{
	free(note->path);
	free(note->key);
}

/* Writes the note here and to the store, because another machine may continue the run. */
static int note_write(const struct keeper *k, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CHECKPOINT_LIST);
	_cleanup_(note_release) struct note note;
	int r = note_find(k, &note, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < k->going.n; i++)
		buf_printf(&text, "%s\n", k->going.items[i]);
	if (buf_failed(&text))
		return buf_error(&text, "the list of checkpoints", err);
	r = fs_write_atomic(note.path, text.data, text.len, 0600, err);
	if (r == 0 && note.key)
		r = object_put(note.object, text.data, text.len,
			&(struct object_put_options){.cancel = k->cancel}, NULL, err);
	return r;
}

static void note_remove(const struct keeper *k)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(note_release) struct note note;

	if (note_find(k, &note, &err) < 0)
		return;
	/* Remove the local note last: as long as it exists, this machine will try again to remove
	 * the note in the store. */
	if (!note.key || object_delete(note.object, NULL, &err) == 0)
		unlink(note.path);
	else
		log_debug("cannot remove the list of checkpoints from the store: %s", err.message);
}

/* Reads the local note, or else the note in the store, which an attempt on another machine has
 * left. */
static int note_read(const struct keeper *k, struct buf *text, struct penstock_error *err)
{
	_cleanup_(note_release) struct note note;
	int r = note_find(k, &note, err);

	if (r < 0)
		return r;
	if (fs_read(note.path, text, NULL) == 0 || !note.key)
		return 0;
	r = object_get(
		note.object, &(struct object_get_options){.cancel = k->cancel}, text, NULL, err);
	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err))
		return 0;
	if (r == 0)
		r = fs_write_atomic(note.path, text->data, text->len, 0600, err);
	return r;
}

/*
 * Records, in one write, all checkpoints that will be removed, so that an attempt that continues
 * the run removes the rest of them. Returns the number of items of `gone`, from the first, that
 * were recorded; the other items are recorded later.
 */
static size_t note_going(struct keeper *k, const struct commit_entry *const *gone, size_t n)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	size_t noted = 0, len = 0;

	for (size_t i = 0; i < k->going.n; i++)
		len += strlen(k->going.items[i]) + 1;
	for (; noted < n; noted++) {
		_cleanup_free_ char *relative = keeper_relative(
			k->publisher, path_last(gone[noted]->path));
		const char *kinds = gone[noted]->elsewhere ? "DF" : "df";

		len += relative ? strlen(relative) + 3 : 0;
		if (!relative || len > LIMIT_CHECKPOINT_LIST ||
			strlist_addf(&k->going, "%c%s", kinds[gone[noted]->single], relative) < 0)
			break;
	}
	if (noted && note_write(k, &err) == 0)
		return noted;
	log_warn("cannot record the checkpoints to remove, so they stay: %s",
		err.message ? err.message : "out of memory");
	return 0;
}

/* ---- the removal ---- */

/* First step: removes the commit, here and from the sync. A program may use the name of an older
 * checkpoint again at any time: local files then belong to a new checkpoint. */
static int remove_commit(struct keeper *k, const struct commit_entry *e)
{
	_cleanup_free_ char *commit = commit_of(k, e->commit);
	_cleanup_free_ char *local = commit ? keeper_local(k->publisher, commit) : NULL;

	if (!local)
		return -1;
	if (k->publisher->sync && (!e->elsewhere || is_older(k, e->commit)))
		sync_retire(k->publisher->sync, commit);
	if (e->elsewhere)
		return 0;
	if (unlink(local) < 0)
		return errno == ENOENT ? 0 : -1;
	return fs_fsync_dir(e->single ? k->dir : e->path, NULL);
}

/* Collects the local checkpoints. If the run has started over and earlier checkpoints count, adds
 * those that its earlier attempts left in the store. free() the array; its items are borrowed from
 * `local` and the keeper. */
static int add_older(struct keeper *k, const struct commit_list *local, struct commit_list *all)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (k->counts_older && keeper_load_older(k, &err) < 0) {
		log_debug("no checkpoint is removed: %s", err.message);
		return -1;
	}
	all->items = calloc(local->n + k->older.n + 1, sizeof(*all->items));
	if (!all->items)
		return -1;
	if (local->n)
		memcpy(all->items, local->items, local->n * sizeof(*all->items));
	all->n = local->n;
	for (size_t i = 0; i < k->older.n; i++) {
		if (is_older(k, k->older.items[i].commit))
			all->items[all->n++] = k->older.items[i];
	}
	commit_list_sort(all);
	return 0;
}

bool keeper_retire(struct keeper *k)
{
	_cleanup_(commit_list_release) struct commit_list local = {0};
	_cleanup_free_ struct commit_entry *all_items = NULL;
	struct commit_list list = {0};
	_cleanup_free_ struct keep_item *items = NULL;
	_cleanup_free_ const struct commit_entry **gone = NULL;
	_cleanup_free_ size_t *order = NULL;
	_cleanup_free_ bool *keep = NULL;
	size_t newest, n = 0, noted;

	if (!k->publisher->attempt->workflow->checkpoints.keeps || k->publisher->fenced ||
		lease_is_lost(k->publisher->lease) || !keeper_is_inside(k) ||
		commit_list_read(&local, k->dir, NULL) < 0 || local.n == 0)
		return true;
	if (add_older(k, &local, &list) < 0)
		return false;
	all_items = list.items;
	newest = newest_published(k, &list);
	items = calloc(list.n + 1, sizeof(*items));
	gone = calloc(list.n + 1, sizeof(const struct commit_entry *));
	order = calloc(list.n + 1, sizeof(*order));
	keep = calloc(list.n + 1, sizeof(*keep));
	if (newest == SIZE_MAX || !items || !gone || !order || !keep)
		return false;
	choose(k->publisher, &list, newest, keep, items, order);
	for (size_t i = 0; order[i] != SIZE_MAX; i++) {
		if (!keep[i])
			gone[n++] = &list.items[order[i]];
	}
	if (n == 0)
		return newest == 0;
	if (!newest_is_safe(k, list.items[newest].commit))
		return false;
	noted = note_going(k, gone, n);
	for (size_t i = 0; i < noted; i++) {
		if (remove_commit(k, gone[i]) < 0) {
			log_warn("cannot remove the checkpoint '%s'", gone[i]->path);
			break;
		}
		k->publisher->checkpoints.removed++;
	}
	return newest == 0;
}

/* Removes the local files of an item of `going`, unless the checkpoint was saved again. Returns
 * true if only its objects are left to remove. */
static bool remove_here(const struct keeper *k, char *item)
{
	bool single = *item == 'f';
	_cleanup_free_ char *local = keeper_local(k->publisher, item + 1);
	_cleanup_free_ char *commit = local ? checkpoint_commit(local, single) : NULL;

	if (!strchr("df", *item))
		return true;
	if (!commit || access(commit, F_OK) == 0 || fs_remove_tree(local, NULL) < 0)
		return false;
	*item = single ? 'F' : 'D';
	return true;
}

/* Returns true if nothing of the item is left, here and in the store, or if the checkpoint was
 * saved again. */
static bool remove_item(struct keeper *k, char *item)
{
	const char *relative = item + 1;
	struct sync *sync = k->publisher->sync;
	_cleanup_free_ char *commit = checkpoint_commit(relative, strchr("fF", *item) != NULL);
	_cleanup_free_ char *local = keeper_local(k->publisher, relative);
	_cleanup_free_ char *local_commit = commit ? keeper_local(k->publisher, commit) : NULL;

	if (!local || !local_commit)
		return false;
	/* The checkpoint was saved again meanwhile, as a new checkpoint. */
	if (access(local_commit, F_OK) == 0)
		return true;
	/* Remove the commit once more: an earlier removal may have been killed, or came before the
	 * store had the object. */
	if (sync && (!sync_retire(sync, commit) || sync_has_object(sync, commit)))
		return false;
	if (!remove_here(k, item))
		return false;
	/* A local file belongs to a new save of the checkpoint, which will replace the object. */
	return !sync || access(local, F_OK) == 0 ||
	       (sync_retire(sync, relative) && !sync_has_object(sync, relative));
}

bool keeper_remove_rest(struct keeper *k)
{
	size_t n = 0;

	if (!k->going.n || !keeper_is_inside(k))
		return true;
	for (size_t i = 0; i < k->going.n; i++) {
		if (remove_item(k, k->going.items[i]))
			free(k->going.items[i]);
		else
			k->going.items[n++] = k->going.items[i];
	}
	k->going.n = n;
	if (!n)
		note_remove(k);
	return !n;
}

void keeper_remove_leftovers(struct keeper *k)
{
	bool continuing = k->publisher->attempt->continuing;

	for (size_t i = 0; i < k->going.n; i++) {
		char *kind = k->going.items[i];

		if (!continuing)
			*kind = *kind == 'f' ? 'F' : *kind == 'd' ? 'D' : *kind;
		else if (keeper_is_inside(k))
			remove_here(k, kind);
	}
}

int keeper_load_retired(struct keeper *k, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_CHECKPOINT_LIST);
	char *line, *rest;
	int r = note_read(k, &text, err);

	if (r < 0 || !text.data)
		return r;
	for (line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		_cleanup_free_ char *own = NULL;

		if (!strchr("dfDF", *line) || !commit_name_is_good(line + 1))
			continue;
		/* A checkpoint below another `checkpoints.path` is left alone. */
		own = keeper_relative(k->publisher, path_last(line + 1));
		if (!own || (strcmp(own, line + 1) == 0 && strlist_add(&k->going, line) < 0))
			return error_memory(err);
	}
	return 0;
}
