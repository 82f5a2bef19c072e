/* The lists of tasks, the workers, and the end of each task. */
#include "transfer/bulk/internal.h"
#include <string.h>
#include "base/cleanup.h"
#include "base/error.h"
#include "base/thread.h"
#include "net/http/http.h"

#define REPORT_BATCH 64 /* items reported together while enough flights are queued */

void bulk_list_add(struct bulk_list *list, struct bulk_task *task)
{
	task->next = NULL;
	if (list->last)
		list->last->next = task;
	else
		list->first = task;
	list->last = task;
	list->n++;
}

struct bulk_task *bulk_list_take(struct bulk_list *list)
{
	struct bulk_task *task = list->first;

	if (!task)
		return NULL;
	list->first = task->next;
	if (!list->first)
		list->last = NULL;
	list->n--;
	task->next = NULL;
	return task;
}

void bulk_put_options(const struct bulk_task *task, const struct strlist *metadata,
	struct object_put_options *out)
{
	const struct object_put_options *all = &task->bulk->put;

	*out = (struct object_put_options){.if_match = task->item.if_match,
		.if_none_match = all->if_none_match || task->item.if_none_match,
		.content_type = task->item.content_type ? task->item.content_type
							: all->content_type,
		.metadata = metadata,
		.storage_class = all->storage_class,
		.resume_dir = all->resume_dir,
		.delta_dir = all->delta_dir,
		.part_size = all->part_size,
		.parallel = task->bulk->options.parallel,
		.cancel = &task->bulk->stop};
}

/* ---- the workers ---- */

static void *worker_main(void *arg)
{
	struct bulk *bulk = arg;
	struct bulk_task *task;

	pthread_mutex_lock(&bulk->lock);
	for (;;) {
		while (!bulk->queue.first && !bulk->closing) {
			bulk->idle++;
			pthread_cond_wait(&bulk->work, &bulk->lock);
			bulk->idle--;
		}
		task = bulk_list_take(&bulk->queue);
		if (!task)
			break;
		pthread_mutex_unlock(&bulk->lock);
		bulk->run(task);
		pthread_mutex_lock(&bulk->lock);
	}
	pthread_mutex_unlock(&bulk->lock);
	return NULL;
}

/* Under the lock: starts a worker if more tasks are queued than workers are idle. If no thread can
 * be started, the existing threads suffice. */
static void start_worker(struct bulk *bulk)
{
	unsigned most = bulk->options.parallel;

	if (!most || most > LIMIT_BULK_WORKERS)
		most = LIMIT_BULK_WORKERS;
	if (bulk->idle >= bulk->queue.n || bulk->n_workers >= most)
		return;
	if (thread_start(&bulk->workers[bulk->n_workers], "bulk", worker_main, bulk, NULL) == 0)
		bulk->n_workers++;
}

void bulk_queue(struct bulk_task *task)
{
	struct bulk *bulk = task->bulk;
	LOCK_SCOPE(&bulk->lock);

	bulk_list_add(&bulk->queue, task);
	pthread_cond_signal(&bulk->work);
	start_worker(bulk);
}

/* ---- the end of tasks ---- */

/* Under the lock: puts the collected deletions, as one request, at the front of `queue`. */
static void removals_close(struct bulk *bulk)
{
	struct bulk_task *head = bulk_list_take(&bulk->removals);

	if (!head)
		return;
	head->removing = true;
	head->batch = bulk->removals;
	bulk->removals = (struct bulk_list){0};
	bulk->running += 1 + head->batch.n;
	head->next = bulk->queue.first;
	bulk->queue.first = head;
	if (!bulk->queue.last)
		bulk->queue.last = head;
	bulk->queue.n++;
	pthread_cond_signal(&bulk->work);
	start_worker(bulk);
}

void bulk_flush_removals(struct bulk *bulk)
{
	if (bulk->flush && !bulk->running)
		removals_close(bulk);
}

void bulk_stop(struct bulk *bulk)
{
	struct http_engine *twin;

	if (atomic_exchange(&bulk->stop, 1))
		return;
	http_wake(bulk->engine);
	twin = atomic_load(&bulk->twin);
	if (twin)
		http_wake(twin);
}

bool bulk_wants_pusher(const struct bulk *bulk)
{
	return bulk->ended.n && (bulk->ended.n >= REPORT_BATCH || bulk->line.n < bulk->window);
}

void bulk_task_end(struct bulk_task *task, struct penstock_error *err)
{
	struct bulk *bulk = task->bulk;

	if (err) {
		error_move(&task->error, err);
		if (bulk->options.stop_at_first_error && task->error.code != PENSTOCK_E_CANCELLED)
			bulk_stop(bulk);
	}
	pthread_mutex_lock(&bulk->lock);
	bulk_list_add(&bulk->ended, task);
	bulk->running--;
	bulk_flush_removals(bulk);
	if (bulk_wants_pusher(bulk))
		pthread_cond_signal(&bulk->moved);
	pthread_mutex_unlock(&bulk->lock);
}

void bulk_remove_source(struct bulk_task *task)
{
	struct bulk *bulk = task->bulk;
	const struct object_ref *from = &task->item.from, *first;
	LOCK_SCOPE(&bulk->lock);

	first = bulk->removals.n ? &bulk->removals.first->item.from : from;
	if (first->client != from->client || strcmp(first->bucket, from->bucket) != 0)
		removals_close(bulk);
	bulk_list_add(&bulk->removals, task);
	bulk->running--;
	if (bulk->removals.n == LIMIT_S3_LIST_KEYS)
		removals_close(bulk);
	else
		bulk_flush_removals(bulk);
}

void bulk_task_over(struct bulk_task *task, struct penstock_error *err)
{
	if (!err && task->item.remove_source && task->item.from.client)
		bulk_remove_source(task);
	else
		bulk_task_end(task, err);
}
