/*
 * The HTTP engine: one thread owns every connection, everybody else enqueues requests.
 *
 *	struct http_engine *engine = NULL;
 *	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
 *	struct buf body = BUF_INIT(1 * MIB);
 *
 *	http_engine_new(&engine, &(struct http_engine_options){ 0 }, err);
 *	http_perform(engine, &(struct http_request){ .method = "GET", .url = url,
 *		.sink = HTTP_SINK_TO_BUF(&body) }, &reply, err);
 *	http_engine_free(engine);
 *
 * Connections are kept alive and shared by all requests. A failed attempt (refused, reset, timed
 * out, cut, 408, 429, 500, 502, 503, 504) is repeated with full-jitter exponential back-off, or
 *when `Retry-After` says, until `max_attempts` (or longer, where there is `patience_ms`) or the deadline. Redirects are only followed where
 *asked for. A request without `expect` succeeds on any 2xx; the body of another status never
 *reaches the sink but the reply (`error_body`).
 *
 * Hooks and body callbacks run on the engine thread: they must be quick and must not call
 * http_perform(). All times are milliseconds on the monotonic clock; 0 means the default.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/str.h"

#include <penstock/error.h>

struct http_engine;
struct http_request;
struct http_reply;

struct http_engine_options {
	/*
	 * Told on the engine's thread, now and then, of a host that a patient request waits for: "HOST:PORT"
	 * and what is the matter. NULL: nobody wants to know.
	 */
	void (*on_wait)(void *cookie, const char *host, const char *why, int64_t waited_ms);
	void *cookie;
	unsigned max_connections;      /* in all; 0: 128 */
	unsigned max_host_connections; /* 0: 64 */
	unsigned max_attempts; /* in a row without progress, of a request that does not say; 0: 6 */
	size_t buffer;	       /* bytes, at most, of a connection's buffer each way; 0: 256 KiB */
	int64_t connect_timeout_ms; /* 0: 10 s */
	int64_t stall_timeout_ms;   /* 0: $PENSTOCK_NETWORK_STALL (seconds), else 30 s */
	uint64_t stall_bytes_per_s; /* slower than this over a stall timeout is a stall; 0: 64 */
	int64_t retry_base_ms;	    /* 0: 100 ms */
	int64_t retry_cap_ms;	    /* 0: 20 s */
	/* PEM file of trusted authorities. NULL: AWS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_FILE, else
	 * the system's. */
	const char *ca_file;
	/* Of every request, beside its own; polled at least every 100 ms. NULL: none. */
	const atomic_int *cancel;
};

int http_engine_new(struct http_engine **out, const struct http_engine_options *options,
	struct penstock_error *err);
/* The flag that ends all its requests, for what else they wait for; NULL: none. Nor has no engine one. */
const atomic_int *http_engine_cancel(const struct http_engine *engine);
/* Another one with the same options, for those who want two threads. */
int http_engine_twin(
	struct http_engine **out, const struct http_engine *of, struct penstock_error *err);
/* Ends the requests in flight with PENSTOCK_E_CANCELLED (their `done` is called), then the thread.
 */
void http_engine_free(struct http_engine *engine);

static inline void http_engine_freep(struct http_engine **engine)
{
	http_engine_free(*engine);
}

/* Since the start of the engine; for --json and tests. */
struct http_counters {
	uint64_t requests; /* that ended */
	uint64_t attempts; /* that were started */
	uint64_t retries;
	uint64_t failures;    /* requests that ended in an error */
	uint64_t connections; /* opened */
	uint64_t bytes_sent;  /* of bodies */
	uint64_t bytes_received;
	uint64_t resent; /* slow ones that were sent again on another connection */
	unsigned
		bulk_limit; /* `bulk` requests that may be under way to one host, the most of any */
	/* Of bodies, that requests which succeeded or are under way have sent; updated ten times a
	 * second. What an attempt sent falls out when it fails, so only a new maximum is progress. */
	uint64_t bytes_getting_on;
};
void http_engine_counters(struct http_engine *engine, struct http_counters *out);

/* Where the body of a request comes from. */
enum http_source_kind {
	HTTP_SOURCE_NONE,
	HTTP_SOURCE_MEMORY,
	HTTP_SOURCE_FD,
	HTTP_SOURCE_CALLBACK
};

struct http_source {
	enum http_source_kind kind;
	uint64_t length;  /* bytes; HTTP_LENGTH_UNKNOWN: sent chunked (callbacks only) */
	const void *data; /* memory */
	int fd;		  /* read with pread from `offset`; the descriptor's own offset stays */
	uint64_t offset;
	/*
	 * Fills at most `size` bytes and returns how many; 0 is the end, -1 an error (set in
	 * `err`). A source that ends before `length` is PENSTOCK_E_CHANGED.
	 */
	ssize_t (*read)(void *cookie, void *data, size_t size, struct penstock_error *err);
	/* Goes back to the first byte; NULL: the request cannot be repeated once bytes were read.
	 */
	int (*rewind)(void *cookie);
	void *cookie;
};
#define HTTP_LENGTH_UNKNOWN UINT64_MAX

/* Where the body of a good reply goes. */
enum http_sink_kind { HTTP_SINK_DISCARD, HTTP_SINK_BUF, HTTP_SINK_FD, HTTP_SINK_CALLBACK };

enum http_take {
	HTTP_TAKEN = 0, /* all of it */
	HTTP_PAUSE = 1, /* none of it; the same bytes come again after http_resume() */
	HTTP_REFUSE = 2 /* ends the request with the error that was set */
};

struct http_sink {
	enum http_sink_kind kind;
	struct buf *buf; /* appended to; its limit bounds the body */
	int fd;		 /* written with pwrite from `offset` */
	uint64_t offset;
	uint64_t limit; /* bytes that an fd may receive; 0: no limit */
	enum http_take (*write)(
		void *cookie, const void *data, size_t len, struct penstock_error *err);
	/* Forgets everything taken: the body starts again. NULL: it cannot. */
	int (*restart)(void *cookie);
	void *cookie;
};
/* clang-format off */
#define HTTP_SINK_TO_BUF(b)	{ .kind = HTTP_SINK_BUF, .buf = (b) }
#define HTTP_SINK_TO_FD(f, at)	{ .kind = HTTP_SINK_FD, .fd = (f), .offset = (at) }
/* clang-format on */

/*
 * Part of a resource. The engine writes the Range header, wants 206 with the right Content-Range,
 * and after a cut asks only for the rest, provided that the validator (ETag, else Last-Modified) of
 * the new reply is the first one's; PENSTOCK_E_CHANGED otherwise. A 200 is PENSTOCK_E_UNSUPPORTED,
 * unless `full_is_fine` and nothing was received yet.
 */
struct http_range {
	bool wanted;
	bool full_is_fine;
	uint64_t offset;
	uint64_t length; /* 0: to the end */
};

enum http_verdict {
	HTTP_VERDICT_DEFAULT,
	HTTP_VERDICT_RETRY, /* the attempt failed, whatever its status; it may be repeated */
	HTTP_VERDICT_FAIL   /* it failed and is not repeated */
};

/*
 * Whether a request may go on that changes something: asked before every attempt and every piece of its body, by
 * the engine's thread. Non-zero: the request fails with `err`, and what was not handed over is never sent.
 */
struct http_gate {
	int (*may_send)(void *cookie, struct penstock_error *err);
	void *cookie;
};

/* Filled by the caller, unchanged by the engine; lives until the request ended. */
struct http_request {
	const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *url;    /* http:// or https:// */
	/* "Name: value" lines; `prepare` may replace them. */
	struct strlist headers;
	struct http_source source;
	struct http_sink sink;
	struct http_range range;
	int expect[3]; /* statuses that are a success; all 0: any 2xx */

	int64_t deadline_ms;	    /* clock_monotonic_ms() at which it must have ended; 0: none */
	int64_t connect_timeout_ms; /* 0: the engine's */
	int64_t stall_timeout_ms;   /* 0: the engine's */
	unsigned max_attempts;	    /* 0: the engine's; 1: never repeated */
	size_t receive_buffer; /* bytes taken at a time; 0: the engine's `buffer`, which is the most */
	/*
	 * For so long without any progress a server that is not there or not ready (refused, not resolved,
	 * cut, no answer, 5xx, 429) is asked again, however many attempts that takes.
	 */
	int64_t patience_ms;
	/*
	 * On a connection of its own: libcurl repeats a request by itself when a kept connection turns
	 * out to be dead, unseen by `sent_before`. For requests that must know whether they were sent
	 * before.
	 */
	bool fresh_connection;
	bool follow_redirects; /* up to 10; never from https to http. Only for requests
				       without credentials */
	/*
	 * Moves much and may wait for its turn: those to one host share a limit that follows what they
	 * move and what the host refuses (docs/decisions/adaptive-concurrency.md). Others overtake them.
	 */
	bool bulk;
	/*
	 * Harmless when it reaches the server twice: where it is silent for far longer than its like, it is
	 * given up and sent again on a new connection, as long as few are. Its like are the bulk requests to
	 * that host. Only with a sink and a source that can begin again.
	 */
	bool resend;
	bool direct; /* never through a proxy: the metadata services are on the machine itself */
	const atomic_int *cancel; /* polled at least every 100 ms */
	/* Not ended by the engine's cancel: tidies up behind a cancelled one; wants a deadline. */
	bool tidies_up;
	const struct http_gate *gate; /* NULL: nobody is asked */
	const char *what; /* for messages, as "GET s3://bucket/key"; NULL: method and URL */

	/* Before every attempt (counted from 1): sign, add dates. Non-zero: the request fails with
	 * `err`. */
	int (*prepare)(void *cookie, struct http_request *request, unsigned attempt,
		struct penstock_error *err);
	/*
	 * When the headers of a reply are there, whatever its status, before anybody looks at them: may add
	 * to them and change them. Non-zero: the attempt fails with `err`.
	 */
	int (*translate)(void *cookie, struct http_reply *reply, struct penstock_error *err);
	/*
	 * After the headers of a reply with an expected status, before its first byte. Non-zero:
	 * the attempt fails with `err`, and is repeated if error_is_retryable(err).
	 */
	int (*on_headers)(void *cookie, const struct http_reply *reply, struct penstock_error *err);
	/* After a whole reply, to look behind the status; `err` is to be set for RETRY and FAIL. */
	enum http_verdict (*judge)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);
	/* Once, at the very end, on the engine thread; `err` is NULL on success. Only for
	 * http_submit(). */
	void (*done)(void *cookie, struct http_request *request, struct http_reply *reply,
		struct penstock_error *err);
	void *cookie; /* of these five */
};

/* Sets or replaces a header of a request. -1: out of memory. */
int http_request_header(struct http_request *request, const char *name, const char *value);

struct http_reply {
	int status;		 /* of the last attempt; 0: none came */
	struct strlist headers;	 /* "Name: value", of the last reply (not of redirects) */
	uint64_t content_length; /* HTTP_LENGTH_UNKNOWN: not given */
	uint64_t range_offset;	 /* of a 206 */
	uint64_t total_size;	 /* of the resource, from Content-Range or Content-Length */
	uint64_t body_bytes;	 /* that the sink took, in all attempts that count */
	struct buf error_body;	 /* the beginning of an unexpected status's body */
	unsigned attempts;
	unsigned resent;     /* of these, since it was silent (`resend`) */
	bool resumed;	     /* the body was put together from several attempts */
	bool sent_before;    /* an earlier attempt may have been carried out by the server */
	char *effective_url; /* owned; after redirects; NULL: as requested */
};
/* clang-format off */
#define HTTP_REPLY_INIT { .content_length = HTTP_LENGTH_UNKNOWN, .total_size = HTTP_LENGTH_UNKNOWN }
/* clang-format on */
void http_reply_release(struct http_reply *reply);
/* The value of the first header of that name (any case), or NULL. */
const char *http_reply_header(const struct http_reply *reply, const char *name);

/*
 * Runs the request to its end. `reply` (may be NULL) is filled on failure too, as far as it came.
 * On an unexpected status the error has `http_status` set and a code that follows from it: 401 and
 * 403 PERMISSION, 404 and 410 NOT_FOUND, 409 EXISTS, 412 PRECONDITION, 5xx and 429 UNAVAILABLE, …
 */
int http_perform(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);

/*
 * Starts the request and returns; `request` and `reply` stay with the engine until `done`. Fails
 * only for want of memory or after the engine was told to end; then `done` is not called.
 */
int http_submit(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);
/* Lets every paused sink try again; one that still has no room answers HTTP_PAUSE again. Any thread. */
void http_resume(struct http_engine *engine);
/* Makes the engine look at the cancel flags now instead of within 100 ms. Any thread. */
void http_wake(struct http_engine *engine);

/* `url` as it may be shown: without user, password and query. */
void http_url_display(const char *url, struct buf *out);

#endif
