/* Checkpoints of attempts before the run started over, which are only in the store. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "checkpoint/commit.h"
#include "run/publish/keeper.h"
#include "run/publish/publisher.h"
#include "sync/record/names.h"
#include "sync/sync.h"
#include "transfer/objects.h"

/* Returns the name of the checkpoint whose commit is the file `path` of the output; NULL if the
 * checkpoint is not directly in the directory of the checkpoints. */
static char *name_of(const struct keeper *k, const char *path, bool *single)
{
	_cleanup_free_ char *top = keeper_relative(k->publisher, "");
	const char *below = path, *slash;

	if (!top || !str_starts(path, top))
		return NULL;
	below += strlen(top);
	below += *below == '/';
	slash = strchr(below, '/');
	*single = !slash;
	if (slash)
		return strcmp(slash + 1, COMMIT_NAME) == 0 ? strndup(below, (size_t)(slash - below))
							   : NULL;
	return str_ends(below, COMMIT_SUFFIX)
		       ? strndup(below, strlen(below) - strlen(COMMIT_SUFFIX))
		       : NULL;
}

static int fetch(
	const struct keeper *k, const char *path, struct buf *text, struct penstock_error *err)
{
	const struct run_store *store = k->publisher->store;
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_S3_KEY * 3);

	buf_add_str(&key, store->prefix);
	names_key(&key, path);
	if (buf_failed(&key))
		return buf_error(&key, "the key of a commit", err);
	return object_get(object_at(store->client, store->bucket, buf_str(&key)),
		&(struct object_get_options){.cancel = k->cancel}, text, NULL, err);
}

/* Adds a commit to `k->older`. A checkpoint whose commit is gone or cannot be read is not added,
 * and so is not removed. */
static int add(struct keeper *k, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_COMMIT);
	_cleanup_(commit_freep) struct commit *c = NULL;
	struct commit_entry e = {.elsewhere = true};
	_cleanup_free_ char *name = name_of(k, path, &e.single);
	int r;

	if (!name || !commit_name_is_good(name) || k->older.n == LIMIT_CHECKPOINTS)
		return 0;
	r = fetch(k, path, &text, err);
	if (r == 0)
		r = commit_parse(&c, text.data, text.len, path, err);
	if (r == 0)
		r = commit_check_place(c, name, e.single, err);
	if (error_expected(r, PENSTOCK_E_NOT_FOUND, err) ||
		error_expected(r, PENSTOCK_E_CORRUPT, err) ||
		error_expected(r, PENSTOCK_E_UNSUPPORTED, err) ||
		error_expected(r, PENSTOCK_E_LIMIT, err))
		return 0;
	if (r != 0)
		return r;
	e.path = path_join(k->dir, name);
	c->path = e.path ? strdup(e.path) : NULL;
	c->single = e.single;
	e.step = c->step;
	e.attempt = c->attempt;
	if (!c->path) {
		free(e.path);
		return error_memory(err);
	}
	e.commit = take_pointer(c);
	k->older.items[k->older.n++] = e;
	return 0;
}

int keeper_load_older(struct keeper *k, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist commits = {0};
	int r;

	if (k->knows_older || !k->publisher->sync)
		return 0;
	r = sync_older_commits(k->publisher->sync, &commits, err);
	if (r <= 0)
		return r;
	commit_list_release(&k->older);
	k->older.items = calloc(commits.n + 1, sizeof(*k->older.items));
	if (!k->older.items)
		return error_memory(err);
	r = 0;
	for (size_t i = 0; r == 0 && i < commits.n; i++)
		r = add(k, commits.items[i], err);
	k->knows_older = r == 0;
	return r;
}
