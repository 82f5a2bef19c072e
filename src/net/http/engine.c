/* The engine's thread: queues, limits, the poll loop, and the completion of requests. */
#include "net/http/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/http/internal.h"

#define TICK_MS	    50 /* interval of the checks of cancel flags, deadlines and stalls */
#define POLL_MAX_MS 100 /* longest poll while requests are in flight */
#define IDLE_MS	    60000 /* longest poll without requests; a wake-up ends it */

/* ---- completion ---- */

void call_free(struct call *call)
{
	http_reply_release(&call->own);
	penstock_error_release(&call->error);
	free(call);
}

/* Takes over the content of `err` (NULL on success) and frees the call, which must not be in a list
 * any more. */
static void call_end(struct http_engine *engine, struct call *call, struct penstock_error *err)
{
	atomic_fetch_add(&engine->counters.requests, 1);
	if (err)
		atomic_fetch_add(&engine->counters.failures, 1);
	if (call->host)
		call->host->calls--;
	if (call->done)
		call->done(call->cookie, call->request, call->reply, err);
	if (err)
		penstock_error_release(err);
	call_free(call);
}

static void call_fail(
	struct http_engine *engine, struct call *call, enum penstock_code code, const char *why)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	error_set(&err, code, "%s", why);
	http_error_name(call->request, &err);
	call_end(engine, call, &err);
}

/* ---- hosts ---- */

static unsigned bulk_connections(const struct http_engine *engine)
{
	unsigned most = engine->options.max_host_connections;

	/* A quarter of the connections stays free for other requests. */
	most -= most / 4;
	return most < LIMIT_HTTP_BULK_CONNECTIONS ? most : LIMIT_HTTP_BULK_CONNECTIONS;
}

static struct http_host *host_of(struct http_engine *engine, const char *url)
{
	const char *at = strstr(url, "://");
	size_t len = at ? (size_t)(at + 3 - url) + strcspn(at + 3, "/?#") : strlen(url);
	struct http_host *host;

	for (host = engine->hosts; host; host = host->next) {
		if (strncmp(host->name, url, len) == 0 && host->name[len] == '\0')
			return host;
	}
	host = calloc(1, sizeof(*host) + len + 1);
	if (!host)
		return NULL;
	memcpy(host->name, url, len);
	pace_init(&host->pace, bulk_connections(engine));
	host->next = engine->hosts;
	engine->hosts = host;
	engine->n_hosts++;
	return host;
}

/* Forgets hosts without requests; a long run may use many. */
void http_hosts_trim(struct http_engine *engine, unsigned more_than)
{
	struct http_host **at = &engine->hosts;
	struct http_host *host;

	if (engine->n_hosts <= more_than)
		return;
	while ((host = *at)) {
		if (host->calls) {
			at = &host->next;
			continue;
		}
		*at = host->next;
		engine->n_hosts--;
		free(host);
	}
}

/* ---- handles ---- */

static struct http_handle *handle_take(struct http_engine *engine)
{
	struct http_handle *handle = engine->pool;

	if (!handle)
		return http_handle_new(engine);
	engine->pool = handle->next;
	engine->n_pool--;
	return handle;
}

static void handle_give(struct http_engine *engine, struct http_handle *handle)
{
	/* libcurl before 8.2 keeps a pointer to the last header of the previous transfer in the
	 * handle; a reply whose first header line is folded then reads freed memory. Connections
	 * belong to the multi handle, so a new handle costs little. */
	if (engine->n_pool >= LIMIT_HTTP_IDLE_HANDLES ||
		curl_version_info(CURLVERSION_NOW)->version_num < 0x080200) {
		http_handle_free(handle);
		return;
	}
	handle->next = engine->pool;
	engine->pool = handle;
	engine->n_pool++;
}

/* ---- attempts ---- */

static struct call **queue_of(struct call *call)
{
	return call->request->bulk ? &call->host->bulk : &call->host->queue;
}

static void call_queue(struct http_engine *engine, struct call *call)
{
	struct call **queue = queue_of(call);

	/* Retries come before new calls. */
	if (call->attempt)
		DL_PREPEND(*queue, call);
	else
		DL_APPEND(*queue, call);
	engine->n_queued++;
}

/* Returns the next call of a host that may start now, or NULL. */
static struct call *next_call(const struct http_engine *engine, const struct http_host *host)
{
	if (host->active >= engine->options.max_host_connections)
		return NULL;
	if (host->queue)
		return host->queue;
	return host->active_bulk < host->pace.limit ? host->bulk : NULL;
}

/* Detaches an active call from its handle. */
static void call_detach(struct http_engine *engine, struct call *call)
{
	curl_multi_remove_handle(engine->multi, call->handle->curl);
	handle_give(engine, call->handle);
	call->handle = NULL;
	DL_DELETE(engine->active, call);
	engine->n_active--;
	call->host->active--;
	call->host->active_bulk -= call->request->bulk;
}

/* Starts a call that is in no list. Returns true if it is active now. */
static bool call_start(struct http_engine *engine, struct call *call)
{
	CURLMcode mc;

	call->handle = handle_take(engine);
	if (!call->handle) {
		call_fail(engine, call, PENSTOCK_E_MEMORY, "out of memory");
		return false;
	}
	call->attempt++;
	call->reply->attempts = call->attempt;
	if (attempt_setup(engine, call) < 0) {
		struct penstock_error err = call->error;

		call->error = (struct penstock_error)PENSTOCK_ERROR_INIT;
		handle_give(engine, call->handle);
		call_end(engine, call, &err);
		return false;
	}
	mc = curl_multi_add_handle(engine->multi, call->handle->curl);
	if (mc != CURLM_OK) {
		handle_give(engine, call->handle);
		call_fail(engine, call, PENSTOCK_E_INTERNAL, curl_multi_strerror(mc));
		return false;
	}
	atomic_fetch_add(&engine->counters.attempts, 1);
	DL_APPEND(engine->active, call);
	call->host->active++;
	call->host->active_bulk += call->request->bulk;
	engine->n_active++;
	return true;
}

/* Starts all calls that may start; returns their number. */
static unsigned start_calls(struct http_engine *engine)
{
	unsigned started = 0;
	bool again = engine->n_queued > 0;

	/* Start one call of each host in turn, so that a busy host does not block the others. */
	while (again && engine->n_active < engine->options.max_connections) {
		again = false;
		for (struct http_host *host = engine->hosts; host; host = host->next) {
			struct call *call = next_call(engine, host);

			if (!call)
				continue;
			if (engine->n_active >= engine->options.max_connections)
				break;
			DL_DELETE(*queue_of(call), call);
			engine->n_queued--;
			started += call_start(engine, call);
			again = true;
		}
	}
	return started;
}

/* Updates the pace of the host with the results of an attempt. */
static void pace_update(struct call *call)
{
	struct pace *pace = &call->host->pace;
	int64_t now = clock_monotonic_ms();
	int status = call->reply->status;

	if (call->request->bulk)
		call_count_moved(call, now);
	if (status == 429 || status == 503)
		pace_refused(pace, now, call->host->active_bulk);
	if (!call->request->bulk || !call->good || !call->answered_ms)
		return;
	waits_add(call_waits(call),
		call->answered_ms - (call->sent_ms ? call->sent_ms : call->started_ms));
}

static void attempt_ended(struct http_engine *engine, struct call *call, CURLcode result)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum outcome outcome;

	pace_update(call);
	outcome = attempt_outcome(engine, call, result, &err);
	call_detach(engine, call);
	if (outcome == OUTCOME_RETRY) {
		log_debug("%s; attempt %u follows in %lld ms", err.message, call->attempt + 1,
			(long long)(call->not_before_ms - clock_monotonic_ms()));
		penstock_error_release(&err);
		atomic_fetch_add(&engine->counters.retries, 1);
		DL_APPEND(engine->waiting, call);
		return;
	}
	if (outcome == OUTCOME_SUCCESS)
		engine->bytes_done += call->source_read;
	call_end(engine, call, outcome == OUTCOME_SUCCESS ? NULL : &err);
}

static void read_messages(struct http_engine *engine)
{
	CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(engine->multi, &left))) {
		char *private = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &private);
		attempt_ended(engine, (struct call *)(void *)private, message->data.result);
	}
}

/* ---- cancel flags, deadlines, stalls ---- */

/* Returns the reason why the call must end now, or 0. */
static enum penstock_code call_overdue(
	const struct http_engine *engine, const struct call *call, int64_t now)
{
	const struct http_request *request = call->request;

	if (call_is_cancelled(engine, call))
		return PENSTOCK_E_CANCELLED;
	if (request->deadline_ms && now >= request->deadline_ms)
		return PENSTOCK_E_TIMEOUT;
	return PENSTOCK_OK;
}

static void call_end_overdue(struct http_engine *engine, struct call *call, enum penstock_code code)
{
	call_fail(engine, call, code,
		code == PENSTOCK_E_CANCELLED ? "cancelled" : "the deadline passed");
}

static bool call_stalled(struct http_engine *engine, struct call *call, int64_t now)
{
	int64_t limit = call->request->stall_timeout_ms ? call->request->stall_timeout_ms
							: atomic_load(&engine->stall_ms);
	uint64_t moved = call->window_moved;

	if (call->paused) {
		call->window_ms = now;
		return false;
	}
	if (now - call->window_ms < limit)
		return false;
	call->window_ms = now;
	call->window_moved = 0;
	return moved == 0 || moved * 1000 < engine->options.stall_bytes_per_s * (uint64_t)limit;
}

static void tick_list(struct http_engine *engine, struct call **list, unsigned *count)
{
	int64_t now = clock_monotonic_ms();

	for (struct call *call = *list, *next; call; call = next) {
		enum penstock_code code = call_overdue(engine, call, now);

		next = call->next;
		if (!code)
			continue;
		DL_DELETE(*list, call);
		if (count)
			(*count)--;
		call_end_overdue(engine, call, code);
	}
}

static void resend(struct http_engine *engine, struct call *call)
{
	log_debug("%s: silent for %lld ms, sent again on another connection",
		call->request->what ? call->request->what : call->request->method,
		(long long)(clock_monotonic_ms() - call->silent_ms));
	error_set(&call->error, PENSTOCK_E_TIMEOUT, "slow: no progress");
	call->resending = true;
	call->resent++;
	atomic_fetch_add(&engine->counters.resent, 1);
	attempt_ended(engine, call, CURLE_OPERATION_TIMEDOUT);
}

static void tick(struct http_engine *engine)
{
	int64_t now = clock_monotonic_ms();
	uint64_t bytes = engine->bytes_done;
	unsigned most = 0;

	if (now - engine->last_tick_ms < TICK_MS)
		return;
	engine->last_tick_ms = now;
	for (const struct call *call = engine->active; call; call = call->next)
		bytes += call->source_read;
	atomic_store(&engine->counters.progress, bytes);
	for (struct call *call = engine->active, *next; call; call = next) {
		enum penstock_code code = call_overdue(engine, call, now);

		next = call->next;
		if (code) {
			call_detach(engine, call);
			call_end_overdue(engine, call, code);
		} else if (call_stalled(engine, call, now)) {
			error_set(&call->error, PENSTOCK_E_TIMEOUT, "stalled: no progress");
			attempt_ended(engine, call, CURLE_OPERATION_TIMEDOUT);
		} else if (call->request->bulk || call->request->resend_ms) {
			call_count_moved(call, now);
			if (call_is_slow(call, now) && waits_spend(call_waits(call)))
				resend(engine, call);
		}
	}
	tick_list(engine, &engine->waiting, NULL);
	for (struct http_host *host = engine->hosts; host; host = host->next) {
		tick_list(engine, &host->queue, &engine->n_queued);
		tick_list(engine, &host->bulk, &engine->n_queued);
	}
	for (struct http_host *host = engine->hosts; host; host = host->next) {
		pace_tick(&host->pace, now, !host->bulk && host->active_bulk < host->pace.limit);
		if (host->pace.limit > most)
			most = host->pace.limit;
	}
	atomic_store(&engine->counters.bulk_limit, most);
}

/* ---- the loop ---- */

static void take_incoming(struct http_engine *engine, bool *ending, bool *resume)
{
	struct call *call;

	pthread_mutex_lock(&engine->synced.lock);
	call = take_pointer(engine->synced.incoming);
	*ending = engine->synced.ending;
	*resume = engine->synced.resume;
	engine->synced.resume = false;
	pthread_mutex_unlock(&engine->synced.lock);

	while (call) {
		struct call *next = call->next;

		call->host = host_of(engine, call->request->url);
		if (call->host) {
			call->host->calls++;
			call_queue(engine, call);
		} else {
			call_fail(engine, call, PENSTOCK_E_MEMORY, "out of memory");
		}
		call = next;
	}
}

static void wake_waiting(struct http_engine *engine)
{
	int64_t now = clock_monotonic_ms();

	for (struct call *call = engine->waiting, *next; call; call = next) {
		next = call->next;
		if (call->not_before_ms > now)
			continue;
		DL_DELETE(engine->waiting, call);
		call_queue(engine, call);
	}
}

static void unpause(struct http_engine *engine)
{
	for (struct call *call = engine->active, *next; call; call = next) {
		next = call->next;
		if (!call->paused)
			continue;
		call->paused = false;
		call->window_ms = clock_monotonic_ms();
		call->silent_ms = call->window_ms;
		/* Within curl_easy_pause(), libcurl delivers the data that it has held back. */
		curl_easy_pause(call->handle->curl, CURLPAUSE_CONT);
	}
}

static int poll_timeout(struct http_engine *engine)
{
	int64_t timeout = POLL_MAX_MS;
	int64_t now;

	if (!engine->n_active && !engine->n_queued && !engine->waiting)
		return idle_is_counted(engine) && engine->options.idle_ms < IDLE_MS
			       ? (int)engine->options.idle_ms
			       : IDLE_MS;
	now = clock_monotonic_ms();
	for (const struct call *call = engine->waiting; call; call = call->next) {
		if (call->not_before_ms - now < timeout)
			timeout = call->not_before_ms - now;
	}
	return timeout < 0 ? 0 : (int)timeout;
}

static void cancel_all(struct http_engine *engine)
{
	static const char why[] = "the transfer engine is shutting down";
	struct call *call;

	while ((call = engine->active)) {
		call_detach(engine, call);
		call_fail(engine, call, PENSTOCK_E_CANCELLED, why);
	}
	while ((call = engine->waiting)) {
		DL_DELETE(engine->waiting, call);
		call_fail(engine, call, PENSTOCK_E_CANCELLED, why);
	}
	for (struct http_host *host = engine->hosts; host; host = host->next) {
		while ((call = host->queue ? host->queue : host->bulk)) {
			DL_DELETE(*queue_of(call), call);
			engine->n_queued--;
			call_fail(engine, call, PENSTOCK_E_CANCELLED, why);
		}
	}
}

void *http_engine_main(void *arg)
{
	struct http_engine *engine = arg;
	bool ending;
	bool resume;

	for (;;) {
		unsigned started;
		int running;

		engine->submitted = false;
		take_incoming(engine, &ending, &resume);
		if (ending) {
			cancel_all(engine);
			return NULL;
		}
		if (resume)
			unpause(engine);
		wake_waiting(engine);
		start_calls(engine);
		curl_multi_perform(engine->multi, &running);
		read_messages(engine);
		tick(engine);
		http_hosts_trim(engine, LIMIT_HTTP_HOSTS);
		/* Fill free connections before waiting for anything else. */
		started = start_calls(engine);
		idle_check(engine);
		/* Check `submitted` last: a call that fails to start has ended above, and its
		 * `done` may have submitted another call. */
		if (started || engine->submitted)
			continue;
		curl_multi_poll(engine->multi, NULL, 0, poll_timeout(engine), NULL);
	}
}
