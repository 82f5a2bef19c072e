/*
 * Start and end of the engine. Before the first request there is no thread, and libcurl is not
 * used.
 */
#include "net/http/http.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/http/internal.h"

/* Selects the trusted authorities: the option, the variables that other S3 and HTTP tools use, or
 * the system's. */
static int engine_trust(struct http_engine *engine, struct penstock_error *err)
{
	static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
	const char *file = engine->options.ca_file;
	const char *dir = str_env("SSL_CERT_DIR");

	for (size_t i = 0; !file && i < ARRAY_SIZE(names); i++)
		file = str_env(names[i]);
	if (file) {
		if (access(file, R_OK) < 0)
			return error_errno(err, errno, "cannot read the CA file '%s'", file);
		engine->ca_file = strdup(file);
		if (!engine->ca_file)
			return error_memory(err);
	} else if (dir && !strchr(dir, ':')) {
		engine->ca_path = strdup(dir);
		if (!engine->ca_path)
			return error_memory(err);
	}
	return 0;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_started;

static void curl_start(void)
{
	curl_started = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static void engine_defaults(struct http_engine_options *o)
{
	const char *stall = getenv("PENSTOCK_NETWORK_STALL");
	uint64_t stall_s = 30;

	if (stall)
		str_to_u64(stall, 1, 24 * 3600, &stall_s);
	if (!o->max_connections)
		o->max_connections = LIMIT_HTTP_CONNECTIONS;
	if (!o->max_host_connections)
		o->max_host_connections = LIMIT_HTTP_HOST_CONNECTIONS;
	if (!o->buffer)
		o->buffer = LIMIT_HTTP_BUFFER;
	if (!o->max_attempts)
		o->max_attempts = 6;
	if (!o->idle_ms)
		o->idle_ms = 15 * 1000;
	if (!o->connect_timeout_ms)
		o->connect_timeout_ms = 10 * 1000;
	if (!o->stall_timeout_ms)
		o->stall_timeout_ms = (int64_t)stall_s * 1000;
	if (!o->stall_bytes_per_s)
		o->stall_bytes_per_s = 64;
	if (!o->retry_base_ms)
		o->retry_base_ms = 100;
	if (!o->retry_cap_ms)
		o->retry_cap_ms = 20 * 1000;
}

static void engine_release(struct http_engine *engine)
{
	struct http_handle *handle;

	while ((handle = engine->pool)) {
		engine->pool = handle->next;
		http_handle_free(handle);
	}
	http_hosts_trim(engine, 0);
	if (engine->multi)
		curl_multi_cleanup(engine->multi);
	pthread_mutex_destroy(&engine->synced.lock);
	free(engine->ca_file);
	free(engine->ca_path);
	free(engine);
}

/* Masks the passwords of the proxy variables in the log. libcurl reads these variables itself. */
static void redact_proxies(void)
{
	static const char *const names[] = {
		"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *url = str_env(names[i]);
		char *whole = NULL;

		if (!url)
			continue;
		if (strstr(url, "://"))
			log_redact_user(url);
		else if ((whole = str_printf("http://%s", url)))
			log_redact_user(whole);
		free(whole);
	}
}

int http_engine_new(struct http_engine **out, const struct http_engine_options *options,
	struct penstock_error *err)
{
	struct http_engine *engine;
	int r;

	redact_proxies();
	engine = calloc(1, sizeof(*engine));
	if (!engine)
		return error_memory(err);
	pthread_mutex_init(&engine->synced.lock, NULL);
	if (options)
		engine->options = *options;
	engine_defaults(&engine->options);
	atomic_init(&engine->stall_ms, engine->options.stall_timeout_ms);
	if (getrandom(&engine->random, sizeof(engine->random), GRND_NONBLOCK) < 0)
		engine->random = (uint64_t)clock_monotonic_ns();
	r = engine_trust(engine, err);
	if (r < 0) {
		engine_release(engine);
		return r;
	}
	*out = engine;
	return 0;
}

const atomic_int *http_engine_cancel(const struct http_engine *engine)
{
	return engine ? engine->options.cancel : NULL;
}

int http_engine_clone(
	struct http_engine **out, const struct http_engine *of, struct penstock_error *err)
{
	struct http_engine_options options = of->options;

	options.ca_file = of->ca_file;
	options.stall_timeout_ms = atomic_load(&of->stall_ms);
	return http_engine_new(out, &options, err);
}

static int start_thread(struct http_engine *engine, struct penstock_error *err)
{
	int r;

	pthread_once(&curl_once, curl_start);
	if (curl_started != CURLE_OK)
		return error_set(err, PENSTOCK_E_INTERNAL, "cannot start libcurl: %s",
			curl_easy_strerror(curl_started));
	if (!engine->multi)
		engine->multi = curl_multi_init();
	if (!engine->multi)
		return error_memory(err);
	curl_multi_setopt(engine->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	r = thread_start(&engine->thread, "http", http_engine_main, engine, err);
	engine->synced.started = r == 0;
	return r;
}

void http_engine_free(struct http_engine *engine)
{
	bool started;

	if (!engine)
		return;
	pthread_mutex_lock(&engine->synced.lock);
	engine->synced.ending = true;
	started = engine->synced.started;
	if (started)
		curl_multi_wakeup(engine->multi);
	pthread_mutex_unlock(&engine->synced.lock);
	if (started)
		pthread_join(engine->thread, NULL);
	engine_release(engine);
}

void http_engine_shorten_stall(struct http_engine *engine, int64_t ms)
{
	long long now = atomic_load(&engine->stall_ms);

	while (ms < now && !atomic_compare_exchange_weak(&engine->stall_ms, &now, ms))
		;
}

/* ---- requests ---- */

void http_engine_counters(struct http_engine *engine, struct http_counters *out)
{
	*out = (struct http_counters){
		.requests = atomic_load(&engine->counters.requests),
		.attempts = atomic_load(&engine->counters.attempts),
		.retries = atomic_load(&engine->counters.retries),
		.failures = atomic_load(&engine->counters.failures),
		.connections = atomic_load(&engine->counters.connections),
		.bytes_sent = atomic_load(&engine->counters.sent),
		.bytes_received = atomic_load(&engine->counters.received),
		.resent = atomic_load(&engine->counters.resent),
		.bulk_limit = atomic_load(&engine->counters.bulk_limit),
		.bytes_progress = atomic_load(&engine->counters.progress),
	};
}

void http_wake(struct http_engine *engine)
{
	LOCK_SCOPE(&engine->synced.lock);
	if (engine->synced.started)
		curl_multi_wakeup(engine->multi);
}

void http_resume(struct http_engine *engine)
{
	LOCK_SCOPE(&engine->synced.lock);
	if (engine->synced.started && !engine->synced.resume)
		curl_multi_wakeup(engine->multi);
	engine->synced.resume = true;
}

typedef void (*done_fn)(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);

static int submit(struct http_engine *engine, struct http_request *request,
	struct http_reply *reply, done_fn done, void *cookie, struct penstock_error *err)
{
	struct call *call = calloc(1, sizeof(*call));
	bool ending;
	bool wake;
	int r = 0;

	if (!call)
		return error_memory(err);
	call->request = request;
	call->done = done;
	call->cookie = cookie;
	call->own = (struct http_reply)HTTP_REPLY_INIT;
	call->reply = reply ? reply : &call->own;
	http_reply_release(call->reply);
	buf_init(&call->reply->error_body, LIMIT_HTTP_ERROR_BODY);
	if (request->sink.kind == HTTP_SINK_BUF)
		call->sink_start = request->sink.buf->len;

	pthread_mutex_lock(&engine->synced.lock);
	ending = engine->synced.ending;
	/* The engine takes the whole list at once, so one wake-up per list is enough. */
	wake = !engine->synced.incoming;
	if (!ending && !engine->synced.started)
		r = start_thread(engine, err);
	if (!ending && r == 0) {
		DL_APPEND(engine->synced.incoming, call);
		if (pthread_equal(pthread_self(), engine->thread))
			engine->submitted = true;
		else if (wake)
			curl_multi_wakeup(engine->multi);
	}
	pthread_mutex_unlock(&engine->synced.lock);
	if (ending || r < 0) {
		call_free(call);
		return r < 0 ? r
			     : error_set(err, PENSTOCK_E_CANCELLED,
				       "the transfer engine is shutting down");
	}
	return 0;
}

int http_submit(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	return submit(engine, request, reply, request->done, request->cookie, err);
}

/* ---- the blocking form ---- */

struct waiter {
	sem_t ended;
	struct penstock_error *err;
	int result;
};

static void waiter_done(void *cookie, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct waiter *w = cookie;

	(void)request;
	(void)reply;
	w->result = err ? error_move(w->err, err) : 0;
	sem_post(&w->ended);
}

int http_perform(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err)
{
	struct waiter w = {.err = err};
	int r;

	sem_init(&w.ended, 0, 0);
	r = submit(engine, request, reply, waiter_done, &w, err);
	if (r == 0) {
		while (sem_wait(&w.ended) < 0 && errno == EINTR)
			;
		r = w.result;
	}
	sem_destroy(&w.ended);
	return r;
}
