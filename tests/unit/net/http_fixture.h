/*
 * A server that misbehaves as the test requests, an engine with short timeouts, and buffers for the
 * reply.
 */
#ifndef TEST_HTTP_FIXTURE_H
#define TEST_HTTP_FIXTURE_H

#include "net/http/http.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "mini_http.h"

#define SIZE (1024 * 1024)

struct fixture {
	struct mini_http server;
	struct http_engine *engine;
	char url[MINI_URL_SIZE];
	struct buf body;
	struct http_reply reply;
	struct penstock_error err;
	/* State of the test's server. */
	unsigned failures; /* number of failing replies before the first good one */
	const char *etag;
	atomic_int flag;
};

static char data[SIZE];

static inline void begin(struct fixture *f, mini_answer_fn answer)
{
	memset(f, 0, sizeof(*f));
	f->reply = (struct http_reply)HTTP_REPLY_INIT;
	f->etag = "\"one\"";
	buf_init(&f->body, 16 * MIB);
	mini_start(&f->server, answer, f);
	mini_url(&f->server, "/thing?token=verysecret", f->url);
	assert_int_equal(0, http_engine_new(&f->engine,
				    &(struct http_engine_options){.retry_base_ms = 5,
					    .stall_timeout_ms = 300,
					    .connect_timeout_ms = 2000,
					    .max_attempts = 4},
				    &f->err));
}

static inline void end(struct fixture *f)
{
	http_engine_free(f->engine);
	mini_stop(&f->server);
	http_reply_release(&f->reply);
	buf_release(&f->body);
	penstock_error_release(&f->err);
}

static inline int get(struct fixture *f, struct http_request *request)
{
	request->method = "GET";
	request->url = f->url;
	if (request->sink.kind == HTTP_SINK_DISCARD)
		request->sink = (struct http_sink)HTTP_SINK_TO_BUF(&f->body);
	return http_perform(f->engine, request, &f->reply, &f->err);
}

static inline void assert_body(const struct fixture *f, const char *want, size_t len)
{
	assert_int_equal(len, f->body.len);
	assert_memory_equal(want, f->body.data, len);
}

static inline bool serve(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	return mini_serve(r, fd, f->etag, data, SIZE);
}

static inline void fill_data(void)
{
	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 2654435761u >> 13);
}

#endif
