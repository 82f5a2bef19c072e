/* Small items in flight: their number, and the end of each. */
#include "transfer/bulk/flight.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process/process.h"
#include "net/http/http.h"

/* Initial size of the window, the limit of flights. A window that has grown to its full size hides
 * a round trip of 50 ms. */
#define WINDOW_FIRST 16
/* With this many requests in flight, one thread is not enough. */
#define TWIN_FROM 8
/* Receive buffer for small replies: the engine's default costs more than the request. */
#define SMALL_REPLY (16 * KIB)
/* small enough to be in the processor's cache when the bytes are written */
#define LARGER_REPLY (64 * KIB)

void bulk_flight_free(struct bulk_flight *flight)
{
	if (!flight)
		return;
	put_request_release(&flight->put);
	put_body_release(&flight->body);
	checksum_release(&flight->sum);
	cleanup_closep(&flight->source.fd);
	cleanup_closep(&flight->fd);
	if (flight->part)
		unlink(flight->part);
	free(flight->part);
	bulk_dir_close(flight->task->bulk, flight->dir);
	free(flight->data);
	free(flight);
}

/* ---- the number in flight ---- */

static unsigned window_most(const struct bulk *bulk)
{
	unsigned most = bulk->options.parallel;

	return most && most < LIMIT_BULK_FLIGHTS ? most : LIMIT_BULK_FLIGHTS;
}

/* Under the lock, after the end of a flight: grows the window by one when as many flights have
 * succeeded as the window allows at a time. */
static void window_grow(struct bulk *bulk, bool good)
{
	if (bulk->window_hold) {
		bulk->window_hold--;
		return;
	}
	if (!good || ++bulk->window_credit < bulk->window)
		return;
	bulk->window_credit = 0;
	if (bulk->window < window_most(bulk))
		bulk->window++;
}

/* Halves the window for a busy store, once for all requests that are in flight at that time. */
static void window_halve(struct bulk *bulk)
{
	LOCK_SCOPE(&bulk->lock);

	if (bulk->window_hold)
		return;
	bulk->window_hold = bulk->flying;
	bulk->window_credit = 0;
	bulk->window = bulk->window > 1 ? bulk->window / 2 : 1;
	log_debug("the store is busy: now %u requests in flight", bulk->window);
}

void bulk_window_init(struct bulk *bulk)
{
	unsigned most = window_most(bulk);

	bulk->window = most < WINDOW_FIRST ? most : WINDOW_FIRST;
}

/* ---- hooks ---- */

static enum http_verdict flight_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct bulk_flight *f = cookie;

	if (reply->status == 503 || reply->status == 429)
		window_halve(f->task->bulk);
	return f->classify ? f->classify(cookie, reply, err) : HTTP_VERDICT_DEFAULT;
}

/* Returns true for a failure that the blocking calls of objects.h can recover from. */
static bool needs_worker(const struct bulk_flight *f, const struct penstock_error *err)
{
	const struct s3_op *op = &f->put.op;

	if (bulk_stopped(f->task->bulk))
		return false;
	if (f->plain)
		return err->code == PENSTOCK_E_UNSUPPORTED;
	return err->code == PENSTOCK_E_CORRUPT || op->error == S3_E_EXPIRED_TOKEN ||
	       (op->keys.bearer && err->http_status == 401) ||
	       (f->task->item.kind == BULK_UPLOAD && f->body.guard != GUARD_MD5 &&
		       put_guard_refused(op, err)) ||
	       (f->task->item.kind == BULK_COPY && err->code == PENSTOCK_E_PROTOCOL) ||
	       (f->task->item.kind == BULK_DOWNLOAD && err->code == PENSTOCK_E_UNSUPPORTED);
}

/* The functions that prepare and complete a flight, by kind. */
static const struct {
	int (*prepare)(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
	int (*complete)(struct bulk_flight *f, enum bulk_way *way, struct penstock_error *err);
} kinds[] = {[BULK_UPLOAD] = {bulk_upload_prepare, bulk_upload_complete},
	[BULK_DOWNLOAD] = {bulk_download_prepare, bulk_download_complete},
	[BULK_COPY] = {bulk_copy_prepare, bulk_copy_complete}};

/* Ends the flight; the task continues with its report, a worker, or the deletion of its source. */
static void flight_over(struct bulk_flight *f, enum bulk_way way, struct penstock_error *err)
{
	struct bulk_task *task = f->task;
	struct bulk *bulk = task->bulk;

	task->flight = NULL;
	/* A worker sends the file again from the start. */
	if (way == BULK_TO_WORKER && task->item.kind == BULK_UPLOAD && bulk->options.progress)
		bulk->options.progress(bulk->options.cookie, -(int64_t)f->body.sent);
	bulk_flight_free(f);
	if (way == BULK_TO_WORKER) {
		penstock_error_release(err);
		object_info_release(&task->info);
		bulk_queue(task);
	} else {
		bulk_task_over(task, err->code ? err : NULL);
	}
}

/* ---- starting ---- */

/* Submits the task's flight to its engine. Returns false on failure, after which the task has
 * ended. */
static bool submit(struct bulk_task *task)
{
	struct bulk *bulk = task->bulk;
	struct bulk_flight *f = task->flight;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (bulk_stopped(bulk))
		r = error_set(&err, PENSTOCK_E_CANCELLED, "cancelled");
	else
		r = http_submit(f->on_twin ? atomic_load(&bulk->twin) : bulk->engine,
			&f->put.op.request, &f->put.op.reply, &err);
	if (r < 0)
		flight_over(f, BULK_STRAIGHT, &err);
	return r == 0;
}

/* Under the lock: returns true if there is a second engine. The first call with TWIN_FROM flights
 * creates the engine, unless this process may use only one processor or the engine cannot be
 * created. */
static bool has_twin(struct bulk *bulk)
{
	struct http_engine *twin = bulk->options.twin;

	if (!bulk->twin_tried && bulk->flying >= TWIN_FROM) {
		bulk->twin_tried = true;
		if (process_is_parallel() &&
			(twin || http_engine_clone(&twin, bulk->engine, NULL) == 0))
			atomic_store(&bulk->twin, twin);
	}
	return atomic_load(&bulk->twin) != NULL;
}

/* Under the lock: counts the flight, and chooses its engine; `to_twin` prefers the second
 * engine. */
static void flight_submit(struct bulk *bulk, struct bulk_task *task, bool to_twin)
{
	task->flight->on_twin = has_twin(bulk) && to_twin;
	bulk->flying_twin += task->flight->on_twin;
	bulk->flying++;
}

/*
 * Fills the window after the end of a flight of the engine that `on_twin` selects; `good` is false
 * if the flight failed. The next flights use the same engine: its thread, which runs this function,
 * need not be woken, and ends no flight before this function returns. The thread that frees the
 * bulk waits for the last flight: the bulk must not be used once that flight has ended.
 */
static void start_next(struct bulk *bulk, bool good, bool on_twin)
{
	bool landed = true;

	for (;;) {
		struct bulk_task *task = NULL;

		pthread_mutex_lock(&bulk->lock);
		if (landed) {
			bulk->flying--;
			bulk->flying_twin -= on_twin;
			window_grow(bulk, good);
		}
		if (bulk->flying < bulk->window || bulk_stopped(bulk))
			task = bulk_list_take(&bulk->line);
		if (task)
			flight_submit(bulk, task, on_twin);
		else if (!bulk->flying)
			pthread_cond_broadcast(&bulk->landed);
		pthread_mutex_unlock(&bulk->lock);
		if (!task)
			return;
		landed = !submit(task);
		good = false;
	}
}

void bulk_flight_start(struct bulk_task *task)
{
	struct bulk *bulk = task->bulk;
	bool now, on_twin = false;

	pthread_mutex_lock(&bulk->lock);
	now = bulk->flying < bulk->window && !bulk->line.n;
	if (now)
		flight_submit(bulk, task, bulk->flying_twin * 2 < bulk->flying);
	else
		bulk_list_add(&bulk->line, task);
	if (now)
		on_twin = task->flight->on_twin;
	pthread_mutex_unlock(&bulk->lock);
	if (now && !submit(task))
		start_next(bulk, false, on_twin);
}

/* Runs on the thread of the flight's engine. */
static void flight_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct bulk_flight *f = cookie;
	struct bulk *bulk = f->task->bulk;
	struct penstock_error own = PENSTOCK_ERROR_INIT;
	enum bulk_way way = BULK_STRAIGHT;
	bool good, on_twin = f->on_twin;

	(void)request;
	(void)reply;
	if (err)
		error_move(&own, err);
	/* The only condition of a download or a copy is on the listed source, so the source was
	 * replaced. */
	if (own.code == PENSTOCK_E_PRECONDITION && f->task->item.kind != BULK_UPLOAD) {
		if (f->plain)
			error_set(&own, PENSTOCK_E_CHANGED,
				"the resource was replaced while it was fetched");
		else
			object_replaced(f->task->item.from, &own);
		own.http_status = 412;
	}
	if (!err)
		kinds[f->task->item.kind].complete(f, &way, &own);
	if (own.code && needs_worker(f, &own)) {
		log_debug("%s; retrying in a worker", own.message ? own.message : "failed");
		way = BULK_TO_WORKER;
	}
	good = !own.code;
	flight_over(f, way, &own);
	start_next(bulk, good, on_twin);
}

int bulk_flight_prepare(struct bulk_task *task, enum bulk_way *way, struct penstock_error *err)
{
	struct bulk_flight *f;
	struct http_request *request;
	int r;

	*way = BULK_TO_WORKER;
	/* A condition needs a connection of its own, and a check of the object if a reply is lost:
	 * a worker does both. */
	if (task->item.kind == BULK_DELETE || task->item.if_match || task->item.if_none_match ||
		task->bulk->put.if_none_match)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return error_memory(err);
	f->fd = f->body.fd = -1;
	f->source = (struct upload_source){.task = task, .fd = -1};
	f->task = task;
	f->plain = task->item.to_url || task->item.from_url;
	*way = BULK_STRAIGHT;
	r = kinds[task->item.kind].prepare(f, way, err);
	s3_op_cancel(&f->put.op, &task->bulk->stop);
	if (r == 0 && *way == BULK_STRAIGHT && !f->plain)
		r = s3_op_ready(&f->put.op, err);
	if (r < 0 || *way == BULK_TO_WORKER) {
		bulk_flight_free(f);
		return r;
	}
	request = &f->put.op.request;
	f->classify = request->classify;
	request->classify = flight_classify;
	request->cookie = f;
	request->done = flight_done;
	task->flight = f;
	request->receive_buffer = f->size <= LIMIT_BULK_HELD ? SMALL_REPLY : LARGER_REPLY;
	/* An open file counts as much as the largest body in memory, which limits the number of
	 * open files. */
	task->charge += sizeof(*f) + FLIGHT_TEXTS + (f->data ? f->size : LIMIT_BULK_HELD);
	return 0;
}
