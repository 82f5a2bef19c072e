/* Deletes objects and the sources of moves: many keys in one request. */
#include "transfer/bulk/internal.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

static void copy_error(struct bulk_task *task, const struct penstock_error *err)
{
	error_set(&task->error, err->code, "%s", err->message ? err->message : "failed");
	task->error.http_status = err->http_status;
	task->error.repeats = err->repeats;
}

static void on_error(void *cookie, const char *key, const struct penstock_error *err)
{
	struct bulk_task *head = cookie;

	if (strcmp(head->item.from.key, key) == 0)
		copy_error(head, err);
	for (struct bulk_task *task = head->batch.first; task; task = task->next) {
		if (strcmp(task->item.from.key, key) == 0)
			copy_error(task, err);
	}
}

/* Adds the key of the task's source, and for a move the ETag of the object that was copied: a
 * source that was replaced since is not deleted. */
static int add_key(struct strlist *keys, struct strlist *etags, const struct bulk_task *task)
{
	const char *etag = "";

	if (task->item.kind != BULK_DELETE && task->known.etag[0])
		etag = task->known.etag;
	else if (task->item.kind == BULK_DOWNLOAD)
		etag = task->info.etag;
	return strlist_add(keys, task->item.from.key) < 0 || strlist_add(etags, etag) < 0 ? -1 : 0;
}

/* Deletes the sources of `head` and of its batch. Sets `*decided` to the number of tasks, from the
 * first on, that are done or have an error. */
static int delete_sources(struct bulk_task *head, size_t *decided, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist keys = {0}, etags = {0};
	bool moved = head->item.kind != BULK_DELETE;
	bool downloaded = head->item.kind == BULK_DOWNLOAD;
	int r = add_key(&keys, &etags, head);

	for (const struct bulk_task *task = head->batch.first; r == 0 && task; task = task->next) {
		moved = moved || task->item.kind != BULK_DELETE;
		downloaded = downloaded || task->item.kind == BULK_DOWNLOAD;
		r = add_key(&keys, &etags, task);
	}
	if (r < 0)
		return error_memory(err);
	if (bulk_stopped(head->bulk))
		return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
	/* A downloaded file must survive a power loss before its object is deleted. */
	r = downloaded ? bulk_sync(head->bulk, err) : 0;
	return r < 0 ? r
		     : object_delete_many(
			       &(struct object_deletion){.client = head->item.from.client,
				       .bucket = head->item.from.bucket,
				       .keys = &keys,
				       .etags = moved ? &etags : NULL,
				       .on_error = on_error,
				       .cookie = head},
			       decided, err);
}

/* Gives the task a copy of the request's error, unless the task has its own, more precise error. */
static void note_undecided(struct bulk_task *task, const struct penstock_error *err)
{
	if (!task->error.code)
		copy_error(task, err);
}

static void end_one(struct bulk_task *task)
{
	struct penstock_error own = task->error;

	task->error = (struct penstock_error)PENSTOCK_ERROR_INIT;
	if (own.code == PENSTOCK_E_PRECONDITION && task->item.kind != BULK_DELETE)
		error_set(&own, PENSTOCK_E_CHANGED,
			"copied '%s://%s/%s' but did not remove it: it was replaced meanwhile; "
			"move it again",
			object_client_scheme(task->item.from.client), task->item.from.bucket,
			task->item.from.key);
	else if (own.code && task->item.kind != BULK_DELETE)
		error_prefix(&own, "cannot remove the source after the copy");
	bulk_task_end(task, own.code ? &own : NULL);
}

void bulk_delete(struct bulk_task *head)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct bulk_list batch = head->batch;
	struct bulk_task *task;
	size_t decided = 0;

	if (delete_sources(head, &decided, &err) < 0) {
		size_t i = 0;

		if (!decided)
			note_undecided(head, &err);
		for (task = batch.first; task; task = task->next) {
			if (++i >= decided)
				note_undecided(task, &err);
		}
	}
	head->batch = (struct bulk_list){0};
	end_one(head);
	while ((task = bulk_list_take(&batch)))
		end_one(task);
}
