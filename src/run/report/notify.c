#include "run/report/notify.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "net/http/http.h"

/* A run sends at most its start, its end and a failure. */
enum { MAX_NEWS = 4, ATTEMPTS = 3, ATTEMPT_MS = 10000, END_WAIT_MS = 5000 };

struct notify {
	char *url; /* a secret */
	unsigned events;
	struct http_engine *engine;
	atomic_int cancel;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *queue[MAX_NEWS]; /* under lock; bodies, owned */
	size_t n; /* under lock */
	size_t sent; /* under lock; number of bodies that were sent or given up */
	bool closing; /* under lock */
};

static const char *name_of(enum workflow_notify_event event)
{
	switch (event) {
	case WORKFLOW_NOTIFY_START:
		return "start";
	case WORKFLOW_NOTIFY_END:
		return "end";
	default:
		return "failure";
	}
}

static void *send_all(void *cookie)
{
	struct notify *notify = cookie;

	pthread_mutex_lock(&notify->lock);
	for (;;) {
		while (notify->sent == notify->n && !notify->closing)
			pthread_cond_wait(&notify->changed, &notify->lock);
		if (notify->sent == notify->n)
			break;
		pthread_mutex_unlock(&notify->lock);
		/* The address is a secret, so only the kind of error is reported. */
		const char *body = notify->queue[notify->sent];
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
		struct http_request request = {
			.method = "POST",
			.url = notify->url,
			.source = {.kind = HTTP_SOURCE_MEMORY,
				.data = body,
				.length = strlen(body)},
			.max_attempts = ATTEMPTS,
			.connect_timeout_ms = ATTEMPT_MS,
			.stall_timeout_ms = ATTEMPT_MS,
			.cancel = &notify->cancel,
			.what = "the webhook of `notify`",
		};

		if (http_request_header(&request, "Content-Type", "application/json") == 0 &&
			http_perform(notify->engine, &request, &reply, &err) < 0) {
			if (err.http_status)
				log_warn("the webhook of `notify` answered with %d",
					err.http_status);
			else
				log_warn("cannot reach the webhook of `notify` (%s)",
					penstock_code_name(err.code));
		}
		strlist_release(&request.headers);
		pthread_mutex_lock(&notify->lock);
		notify->sent++;
		pthread_cond_broadcast(&notify->changed);
	}
	pthread_mutex_unlock(&notify->lock);
	return NULL;
}

static void release(struct notify *notify)
{
	http_engine_free(notify->engine);
	for (size_t i = 0; i < notify->n; i++)
		free(notify->queue[i]);
	pthread_mutex_destroy(&notify->lock);
	pthread_cond_destroy(&notify->changed);
	free(notify->url);
	free(notify);
}

int notify_start(struct notify **out, const struct workflow_notify *to, struct penstock_error *err)
{
	struct notify *notify;
	int r;

	if (!to->url.value)
		return 0;
	notify = calloc(1, sizeof(*notify));
	if (!notify)
		return error_memory(err);
	pthread_mutex_init(&notify->lock, NULL);
	clock_cond_init(&notify->changed);
	notify->events = to->events;
	notify->url = strdup(to->url.value);
	r = notify->url ? http_engine_new(&notify->engine, &(struct http_engine_options){0}, err)
			: error_memory(err);
	if (r == 0)
		r = thread_start(&notify->thread, "notify", send_all, notify, err);
	if (r < 0) {
		release(notify);
		return r;
	}
	*out = notify;
	return 0;
}

void notify_send(
	struct notify *notify, enum workflow_notify_event event, const struct notify_event *news)
{
	time_t seconds = (time_t)(clock_wall_ns() / NS_PER_S);
	struct tm tm;
	char host[256] = "";
	char now[32];
	json_auto_t *object = NULL;
	_cleanup_free_ char *body = NULL;

	if (!notify || !(notify->events & event))
		return;
	gethostname(host, sizeof(host) - 1);
	gmtime_r(&seconds, &tm);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &tm);
	object = json_pack("{s:s, s:s, s:s?, s:i, s:s, s:s?, s:o, s:s?, s:s, s:s}", "event",
		name_of(event), "run", news->run_id, "name", news->name, "attempt", news->attempt,
		"state", news->state, "class", news->run_class, "exit_code",
		news->ended ? json_integer(news->exit_code) : json_null(), "message", news->message,
		"host", host, "time", now);
	body = object ? json_dumps(object, JSON_COMPACT) : NULL;
	if (!body)
		return;
	LOCK_SCOPE(&notify->lock);
	if (notify->n < MAX_NEWS)
		notify->queue[notify->n++] = take_pointer(body);
	pthread_cond_broadcast(&notify->changed);
}

void notify_free(struct notify *notify)
{
	int64_t until = clock_monotonic_ms() + END_WAIT_MS;

	if (!notify)
		return;
	pthread_mutex_lock(&notify->lock);
	notify->closing = true;
	pthread_cond_broadcast(&notify->changed);
	while (notify->sent < notify->n && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&notify->changed, &notify->lock, until);
	pthread_mutex_unlock(&notify->lock);
	atomic_store(&notify->cancel, 1);
	pthread_join(notify->thread, NULL);
	release(notify);
}
