/* The blocking form: submits a request and waits for its end. */
#include "net/http/http.h"

#include <errno.h>
#include <semaphore.h>

#include "base/error.h"
#include "base/banned.h"

struct waiter {
	sem_t ended;
	struct http_request request;
	const struct http_request *asked;
	struct penstock_error *err;
	int result;
};

static int waiter_prepare(
	void *cookie, struct http_request *request, unsigned attempt, struct penstock_error *err)
{
	struct waiter *w = cookie;

	return w->asked->prepare(w->asked->cookie, request, attempt, err);
}

static int waiter_translate(void *cookie, struct http_reply *reply, struct penstock_error *err)
{
	struct waiter *w = cookie;

	return w->asked->translate(w->asked->cookie, reply, err);
}

static int waiter_headers(void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct waiter *w = cookie;

	return w->asked->on_headers(w->asked->cookie, reply, err);
}

static enum http_verdict waiter_classify(
	void *cookie, const struct http_reply *reply, struct penstock_error *err)
{
	struct waiter *w = cookie;

	return w->asked->classify(w->asked->cookie, reply, err);
}

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
	struct waiter w = {.request = *request, .asked = request, .err = err};
	int r;

	w.request.cookie = &w;
	w.request.done = waiter_done;
	w.request.prepare = request->prepare ? waiter_prepare : NULL;
	w.request.translate = request->translate ? waiter_translate : NULL;
	w.request.on_headers = request->on_headers ? waiter_headers : NULL;
	w.request.classify = request->classify ? waiter_classify : NULL;
	sem_init(&w.ended, 0, 0);
	r = http_submit(engine, &w.request, reply, err);
	if (r == 0) {
		while (sem_wait(&w.ended) < 0 && errno == EINTR)
			;
		r = w.result;
	}
	sem_destroy(&w.ended);
	/* `prepare` may have replaced headers. */
	request->headers = w.request.headers;
	return r;
}
