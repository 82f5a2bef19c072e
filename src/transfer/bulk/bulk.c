/* The queue of a bulk transfer, its workers, and the reports of items. */
#include "transfer/bulk/flight.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/must.h"
#include "net/http/http.h"

#define POLL_MS 50 /* interval for checking the caller's cancel flag */

/* ---- tasks ---- */

static struct bulk_task *task_new(struct bulk *bulk, const struct bulk_item *item)
{
	struct bulk_item own = *item;
	const char **const texts[] = {&own.from.bucket, &own.from.key, &own.from.version,
		&own.to.bucket, &own.to.key, &own.from_url, &own.to_url, &own.path, &own.if_match,
		&own.content_type};
	size_t size = sizeof(struct bulk_task);
	struct bulk_task *task;
	char *at;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		size += *texts[i] ? strlen(*texts[i]) + 1 : 0;
	task = calloc(1, size);
	if (!task)
		return NULL;
	at = (char *)(task + 1);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		size_t n = *texts[i] ? strlen(*texts[i]) + 1 : 0;

		if (n)
			*texts[i] = memcpy(at, *texts[i], n);
		at += n;
	}
	task->bulk = bulk;
	task->charge = size;
	task->item = own;
	if (item->known) {
		task->known.size = item->known->size;
		task->known.modified_ns = item->known->modified_ns;
		memcpy(task->known.etag, item->known->etag, sizeof(task->known.etag));
		task->item.known = &task->known;
	}
	return task;
}

static void task_free(struct bulk_task *task)
{
	struct bulk_task *behind;

	while ((behind = bulk_list_take(&task->batch)))
		task_free(behind);
	bulk_flight_free(task->flight);
	object_info_release(&task->info);
	penstock_error_release(&task->error);
	free(task);
}

static void free_list(struct bulk_list *list)
{
	struct bulk_task *task;

	while ((task = bulk_list_take(list)))
		task_free(task);
}

/* ---- the workers ---- */

static void task_run(struct bulk_task *task)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (task->removing) {
		bulk_delete(task);
		return;
	}
	if (bulk_stopped(task->bulk))
		r = error_set(&err, PENSTOCK_E_CANCELLED, "cancelled");
	else
		r = bulk_run(task, &err);
	bulk_task_over(task, r < 0 ? &err : NULL);
}

/* Under the lock, which is dropped meanwhile: runs the queued tasks on the calling thread if no
 * worker could be started. */
static void help_out(struct bulk *bulk)
{
	struct bulk_task *task;

	while (!bulk->n_workers && (task = bulk_list_take(&bulk->queue))) {
		pthread_mutex_unlock(&bulk->lock);
		task_run(task);
		pthread_mutex_lock(&bulk->lock);
	}
}

/* ---- reports, on the thread that pushes ---- */

static void report(struct bulk *bulk, struct bulk_task *task)
{
	bool failed = task->error.code != PENSTOCK_OK;

	if (bulk->options.on_done)
		bulk->options.on_done(bulk->options.cookie, &task->item,
			!failed && task->has_info ? &task->info : NULL,
			failed ? &task->error : NULL);
	if (!failed) {
		bulk->totals.items++;
		bulk->totals.bytes += task->bytes;
		return;
	}
	bulk->totals.failed++;
	/* Items cancelled because of an error do not hide that error. */
	if (!bulk->first.code || (bulk->first.code == PENSTOCK_E_CANCELLED &&
					 task->error.code != PENSTOCK_E_CANCELLED))
		error_move(&bulk->first, &task->error);
}

/* Under the lock, which is dropped during the callbacks: reports and frees the items that have
 * ended. */
static void report_ended(struct bulk *bulk)
{
	struct bulk_list ended = bulk->ended;
	size_t charge = 0, n = ended.n;
	struct bulk_task *task;

	if (!n)
		return;
	bulk->ended = (struct bulk_list){0};
	pthread_mutex_unlock(&bulk->lock);
	while ((task = bulk_list_take(&ended))) {
		charge += task->charge;
		report(bulk, task);
		task_free(task);
	}
	pthread_mutex_lock(&bulk->lock);
	MUST(n <= bulk->pending && charge <= bulk->charged);
	bulk->pending -= n;
	bulk->charged -= charge;
}

static void check_cancel(struct bulk *bulk)
{
	if (bulk->options.cancel && atomic_load(bulk->options.cancel))
		bulk_stop(bulk);
}

/* Under the lock: waits for ended items, at most POLL_MS; meanwhile, small batches of deletions are
 * sent. */
static void wait_a_little(struct bulk *bulk)
{
	bulk->flush = true;
	bulk_flush_removals(bulk);
	if (!bulk_wants_pusher(bulk))
		clock_cond_wait_ms(&bulk->moved, &bulk->lock, POLL_MS);
	bulk->flush = false;
}

/* Under the lock: waits until `charge` bytes of LIMIT_BULK_MEMORY are free, or no item is pending.
 * Fails once the bulk is stopped. */
static int make_room(struct bulk *bulk, size_t charge, struct penstock_error *err)
{
	for (;;) {
		check_cancel(bulk);
		report_ended(bulk);
		if (bulk_stopped(bulk))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (!bulk->pending || bulk->charged + charge <= LIMIT_BULK_MEMORY)
			return 0;
		help_out(bulk);
		wait_a_little(bulk);
	}
}

/* Returns the message for an item with missing members; NULL if the item is complete. */
static const char *item_problem(const struct bulk_item *item)
{
	bool from = item->from_url || (item->from.client && item->from.bucket && item->from.key);
	bool to = item->to_url || (item->to.client && item->to.bucket && item->to.key);

	switch (item->kind) {
	case BULK_UPLOAD:
		return item->path && to ? NULL : "an upload needs a file and an object or URL";
	case BULK_DOWNLOAD:
		if (item->remove_source && item->from_url)
			return "cannot move a resource of a web server; copy it";
		return item->path && from ? NULL : "a download needs an object or URL and a file";
	case BULK_COPY:
		return from && to && !item->from_url && !item->to_url ? NULL
								      : "a copy needs two objects";
	case BULK_DELETE:
		return from && !item->from_url ? NULL : "a deletion needs an object";
	}
	return "unknown kind of item";
}

int bulk_push(struct bulk *bulk, const struct bulk_item *item, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const char *problem = item_problem(item);
	struct bulk_task *task = problem ? NULL : task_new(bulk, item);
	enum bulk_way way = BULK_TO_WORKER;
	int r;

	if (problem)
		return error_set(err, PENSTOCK_E_INVALID, "%s", problem);
	if (!task)
		return error_memory(err);
	bulk_flight_prepare(task, &way, &own);
	pthread_mutex_lock(&bulk->lock);
	r = make_room(bulk, task->charge, err);
	if (r == 0) {
		bulk->pending++;
		bulk->charged += task->charge;
		bulk->running++;
	}
	pthread_mutex_unlock(&bulk->lock);
	if (r < 0) {
		task_free(task);
		return r;
	}
	if (own.code)
		bulk_task_end(task, &own);
	else if (item->kind == BULK_DELETE)
		bulk_remove_source(task);
	else if (way == BULK_TO_WORKER)
		bulk_queue(task);
	else
		bulk_flight_start(task);
	return 0;
}

int bulk_finish(struct bulk *bulk, struct bulk_totals *totals, struct penstock_error *err)
{
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r = 0;

	pthread_mutex_lock(&bulk->lock);
	while (bulk->pending) {
		check_cancel(bulk);
		report_ended(bulk);
		help_out(bulk);
		if (bulk->pending)
			wait_a_little(bulk);
	}
	pthread_mutex_unlock(&bulk->lock);
	if (bulk_sync(bulk, &own) < 0 && !bulk->first.code)
		error_move(&bulk->first, &own);
	penstock_error_release(&own);
	if (totals)
		*totals = bulk->totals;
	if (bulk->first.code)
		r = error_move(err, &bulk->first);
	bulk->totals = (struct bulk_totals){0};
	return r;
}

/* ---- life ---- */

int bulk_new(struct bulk **out, struct http_engine *engine, const struct bulk_options *options,
	struct penstock_error *err)
{
	struct bulk *bulk = calloc(1, sizeof(*bulk));

	if (!bulk)
		return error_memory(err);
	bulk->engine = engine;
	if (options)
		bulk->options = *options;
	if (bulk->options.put)
		bulk->put = *bulk->options.put;
	pthread_mutex_init(&bulk->lock, NULL);
	pthread_mutex_init(&bulk->sync_lock, NULL);
	pthread_cond_init(&bulk->work, NULL);
	clock_cond_init(&bulk->moved);
	pthread_cond_init(&bulk->landed, NULL);
	/* Naming an unnamed file may require /proc. */
	bulk->no_proc = access("/proc/self/fd", X_OK) < 0;
	atomic_store(&bulk->named_parts, bulk->no_proc);
	bulk->run = task_run;
	bulk_window_init(bulk);
	*out = bulk;
	return 0;
}

void bulk_free(struct bulk *bulk)
{
	if (!bulk)
		return;
	bulk_stop(bulk);
	pthread_mutex_lock(&bulk->lock);
	while (bulk->flying)
		pthread_cond_wait(&bulk->landed, &bulk->lock);
	bulk->closing = true;
	pthread_cond_broadcast(&bulk->work);
	pthread_mutex_unlock(&bulk->lock);
	if (!bulk->options.twin)
		http_engine_free(atomic_load(&bulk->twin));
	for (unsigned i = 0; i < bulk->n_workers; i++)
		pthread_join(bulk->workers[i], NULL);
	free_list(&bulk->line);
	free_list(&bulk->queue);
	free_list(&bulk->removals);
	free_list(&bulk->ended);
	for (unsigned i = 0; i < bulk->n_devices; i++)
		close(bulk->device_fds[i]);
	bulk_dir_close(bulk, bulk->dir);
	bulk_dir_close(bulk, bulk->root);
	pthread_cond_destroy(&bulk->work);
	pthread_cond_destroy(&bulk->moved);
	pthread_cond_destroy(&bulk->landed);
	pthread_mutex_destroy(&bulk->lock);
	pthread_mutex_destroy(&bulk->sync_lock);
	penstock_error_release(&bulk->first);
	free(bulk);
}
