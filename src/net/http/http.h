/*
 * The HTTP engine: one thread owns every connection; other threads submit requests to it.
 *
 *	struct http_engine *engine = NULL;
 *	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
 *	struct buf body = BUF_INIT(1 * MIB);
 *
 *	r = http_engine_new(&engine, &(struct http_engine_options){ 0 }, err);
 *	if (r == 0)
 *		r = http_perform(engine, &(struct http_request){ .method = "GET", .url = url,
 *			.sink = HTTP_SINK_TO_BUF(&body) }, &reply, err);
 *	http_engine_free(engine);
 *
 * Connections are kept alive and shared by all requests. A failed attempt (refused, reset, timed
 * out, cut off, 408, 425, 429, 500, 502, 503, 504, 520 to 529) is repeated with full-jitter
 * exponential back-off, or after the time in `Retry-After`, until `max_attempts` (or longer with
 * `patience_ms`) or the deadline. Redirects are followed only on request. A request without
 * `expect` succeeds on any 2xx; the body of a reply with another status goes to the reply
 * (`error_body`), never to the sink.
 *
 * Hooks and body callbacks run on the engine thread: they must be quick and must not call
 * http_perform(). All times are milliseconds on the monotonic clock; 0 means the default.
 */
#ifndef NET_HTTP_HTTP_H
#define NET_HTTP_HTTP_H

#include <pthread.h>
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

/* A limit on the bytes per second of all engines that share it. */
struct http_limit {
	uint64_t bytes_per_s;
	pthread_mutex_t lock;
	int64_t next_ns; /* monotonic time until which transfers pause */
};

struct http_engine_options {
	/* Called on the engine's thread, at most every 15 s for each host, while a request with
	 * `patience_ms` waits for the host: "HOST:PORT" and the reason. May be NULL. */
	void (*on_wait)(void *cookie, const char *host, const char *why, int64_t waited_ms);
	void *cookie;
	unsigned max_connections; /* to all hosts; 128 if 0 */
	unsigned max_host_connections; /* to one host; 64 if 0 */
	/* consecutive attempts without progress, for requests without their own limit; 6 if 0 */
	unsigned max_attempts;
	size_t buffer; /* bytes, maximum size of a connection's buffers; 256 KiB if 0 */
	int64_t idle_ms; /* connections are closed after this time without requests; 15 s if 0 */
	int64_t connect_timeout_ms; /* 10 s if 0 */
	int64_t stall_timeout_ms; /* if 0: $PENSTOCK_NETWORK_STALL (seconds), or 30 s */
	uint64_t stall_bytes_per_s; /* a lower rate over a stall timeout is a stall; 64 if 0 */
	int64_t retry_base_ms; /* 100 ms if 0 */
	int64_t retry_cap_ms; /* 20 s if 0 */
	/* PEM file of trusted authorities. If NULL: AWS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_FILE,
	 * SSL_CERT_DIR, else the system's. */
	const char *ca_file;
	/* Cancels every request without `tidies_up`, in addition to the request's own flag; polled
	 * at least every 100 ms. May be NULL. */
	const atomic_int *cancel;
	struct http_limit *limit; /* borrowed; NULL if there is no limit */
};

int http_engine_new(struct http_engine **out, const struct http_engine_options *options,
	struct penstock_error *err);
/* Returns the engine's cancel flag, for callers that also wait for something else. Returns NULL if
 * the engine has no flag or `engine` is NULL. */
const atomic_int *http_engine_cancel(const struct http_engine *engine);
/* Creates another engine with the same options, for callers that want two threads. */
int http_engine_clone(
	struct http_engine **out, const struct http_engine *of, struct penstock_error *err);
/* Ends the requests in flight with PENSTOCK_E_CANCELLED (their `done` is called), then the
 * thread. */
void http_engine_free(struct http_engine *engine);

static inline void http_engine_freep(struct http_engine **engine)
{
	http_engine_free(*engine);
}

/* Counts since the start of the engine; for --json and tests. */
struct http_counters {
	uint64_t requests; /* completed */
	uint64_t attempts; /* started */
	uint64_t retries;
	uint64_t failures; /* requests that failed */
	uint64_t connections; /* opened */
	uint64_t bytes_sent; /* bytes of bodies */
	uint64_t bytes_received;
	uint64_t resent; /* silent requests that were sent again on another connection */
	/* limit of concurrent `bulk` requests to one host: the highest limit of any host */
	unsigned bulk_limit;
	/*
	 * Body bytes sent by requests that have succeeded or are in flight; updated at least ten
	 * times a second. Bytes of an attempt no longer count once it fails, so only a new maximum
	 * is progress.
	 */
	uint64_t bytes_progress;
};
void http_engine_counters(struct http_engine *engine, struct http_counters *out);
/* Shortens the stall timeout of the engine, even for requests in progress; a longer timeout is
 * ignored. */
void http_engine_shorten_stall(struct http_engine *engine, int64_t ms);

/* Source of the body of a request. */
enum http_source_kind {
	HTTP_SOURCE_NONE,
	HTTP_SOURCE_MEMORY,
	HTTP_SOURCE_FD,
	HTTP_SOURCE_CALLBACK
};

struct http_source {
	enum http_source_kind kind;
	uint64_t length; /* bytes; HTTP_LENGTH_UNKNOWN to send it chunked (callbacks only) */
	const void *data; /* memory */
	int fd; /* read with pread from `offset`; does not move the descriptor's own offset */
	uint64_t offset;
	/* Writes at most `size` bytes to `data`. Returns their number, 0 at the end, or -1 on error
	 * (set in `err`). If the source ends before `length`, the request fails with
	 * PENSTOCK_E_CHANGED. */
	ssize_t (*read)(void *cookie, void *data, size_t size, struct penstock_error *err);
	/* Goes back to the first byte; if NULL the request cannot be repeated once bytes were
	 * read. */
	int (*rewind)(void *cookie);
	void *cookie;
};
#define HTTP_LENGTH_UNKNOWN UINT64_MAX

/* Destination of the body of a reply with an expected status. */
enum http_sink_kind { HTTP_SINK_DISCARD, HTTP_SINK_BUF, HTTP_SINK_FD, HTTP_SINK_CALLBACK };

enum http_take {
	HTTP_TAKEN = 0, /* all bytes are accepted */
	HTTP_PAUSE = 1, /* no byte is accepted; http_resume() passes the same bytes again */
	HTTP_REFUSE = 2 /* ends the request with the error in `err` */
};

struct http_sink {
	enum http_sink_kind kind;
	struct buf *buf; /* appended to; its limit bounds the body */
	int fd; /* written with pwrite from `offset` */
	uint64_t offset;
	uint64_t limit; /* maximum number of bytes for an fd; no limit if 0 */
	enum http_take (*write)(
		void *cookie, const void *data, size_t len, struct penstock_error *err);
	/* Discards everything received: the body starts again. NULL if the sink cannot restart. */
	int (*restart)(void *cookie);
	void *cookie;
};
/* clang-format off */
#define HTTP_SINK_TO_BUF(b)	{ .kind = HTTP_SINK_BUF, .buf = (b) }
#define HTTP_SINK_TO_FD(f, at)	{ .kind = HTTP_SINK_FD, .fd = (f), .offset = (at) }
/* clang-format on */

/*
 * Part of a resource. The engine sends the Range header, expects 206 with the matching
 * Content-Range, and after an interruption requests only the missing bytes, provided that the new
 * reply has the same validator (strong ETag, else Last-Modified) as the first; otherwise the
 * request fails with PENSTOCK_E_CHANGED. Without a validator, the body starts again. A 200 is
 * accepted only if `full_is_fine` is set, `offset` is 0 and nothing was received yet; otherwise the
 * request fails with PENSTOCK_E_UNSUPPORTED.
 */
struct http_range {
	bool wanted;
	bool full_is_fine;
	uint64_t offset;
	uint64_t length; /* to the end if 0 */
};

enum http_verdict {
	HTTP_VERDICT_DEFAULT,
	HTTP_VERDICT_RETRY, /* the attempt failed, regardless of its status; it may be repeated */
	HTTP_VERDICT_WAIT, /* like RETRY, but not a failed attempt: new keys are being fetched */
	HTTP_VERDICT_FAIL /* the attempt failed and is not repeated */
};

/*
 * Permission to send a request that changes data. The engine's thread calls may_send() before every
 * attempt and every piece of the body. If may_send() returns a negative code, the request fails
 * with `err`, and no more bytes are sent.
 */
struct http_gate {
	int (*may_send)(void *cookie, struct penstock_error *err);
	void *cookie;
};

/* Filled by the caller, unchanged by the engine; must live until the request has ended. */
struct http_request {
	const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *url; /* http:// or https:// */
	/* "Name: value" lines; `prepare` may replace them. */
	struct strlist headers;
	struct http_source source;
	struct http_sink sink;
	struct http_range range;
	int expect[3]; /* success statuses; any 2xx if all are 0 */

	int64_t deadline_ms; /* clock_monotonic_ms() at which the request times out; 0 if never */
	int64_t connect_timeout_ms; /* the engine's if 0 */
	int64_t stall_timeout_ms; /* the engine's if 0 */
	unsigned max_attempts; /* the engine's if 0; 1 if the request must not be repeated */
	/* bytes received at a time, at most the engine's `buffer`; `buffer` if 0; not used by a
	 * request with a body */
	size_t receive_buffer;
	/* Retries a server that is absent or not ready (connection refused or cut off, name not
	 * resolved, no reply, or a status that is retried) for `patience_ms` without progress,
	 * regardless of the number of attempts, unless `max_attempts` is 1. */
	int64_t patience_ms;
	/*
	 * Uses a new connection: libcurl repeats a request by itself when a reused connection turns
	 * out to be dead, and `sent_before` does not report that. For callers that must know if a
	 * request was sent before.
	 */
	bool fresh_connection;
	/* follows at most 10 redirects, never from https to http; only for requests without
	 * credentials */
	bool follow_redirects;
	/*
	 * Moves much data and may wait for its turn: bulk requests to one host share a limit that
	 * follows their throughput and the host's refusals
	 * (docs/decisions/adaptive-concurrency.md). Other requests start before bulk requests.
	 */
	bool bulk;
	/*
	 * Allows a resend, for requests that are harmless if they reach the server twice. A request
	 * that is silent for `resend_ms` (LIMIT_HTTP_RESEND_MS or LIMIT_READS_RESEND_MS) longer
	 * than the mean wait of bulk requests to its host is abandoned, and sent again on a new
	 * connection: at most three times, and only as long as few requests are resent. If 0,
	 * nothing is resent. Sink and source must be able to start again.
	 */
	int64_t resend_ms;
	/* never through a proxy: for metadata services, which are on the machine itself */
	bool direct;
	const char *from; /* IP address to connect from; needs `fresh_connection`; any if NULL */
	const atomic_int *cancel; /* polled at least every 100 ms */
	/* The engine's cancel flag does not end this request, because the request cleans up after a
	 * cancelled one. Needs a deadline. */
	bool tidies_up;
	const struct http_gate *gate; /* may be NULL */
	const char *what; /* for messages: "GET s3://bucket/key"; method and URL if NULL */

	/* Called before every attempt (counted from 1) to sign and add dates. If prepare() returns
	 * a negative code, the request fails with `err`. */
	int (*prepare)(void *cookie, struct http_request *request, unsigned attempt,
		struct penstock_error *err);
	/* Called for every status once the headers of a reply have arrived, before the engine uses
	 * the headers; may add or change headers. If translate() returns a negative code, the
	 * attempt fails with `err`. */
	int (*translate)(void *cookie, struct http_reply *reply, struct penstock_error *err);
	/*
	 * Called after the headers of a reply with an expected status, before the first byte of the
	 * body. If it returns a negative code, the attempt fails with `err`, and is repeated if
	 * error_is_retryable(err).
	 */
	int (*on_headers)(void *cookie, const struct http_reply *reply, struct penstock_error *err);
	/* Called after a complete reply to examine more than its status; sets `err` for RETRY and
	 * FAIL. */
	enum http_verdict (*classify)(
		void *cookie, const struct http_reply *reply, struct penstock_error *err);
	/* Called once, after the last attempt, on the engine thread; `err` is NULL on success. Only
	 * for http_submit(). */
	void (*done)(void *cookie, struct http_request *request, struct http_reply *reply,
		struct penstock_error *err);
	void *cookie; /* passed to the five functions above */
};

/* Sets or replaces a header of a request. Returns -1 if out of memory. */
int http_request_header(struct http_request *request, const char *name, const char *value);

struct http_reply {
	int status; /* status of the last attempt; 0 if that attempt got no reply */
	struct strlist headers; /* "Name: value", of the last reply (not of redirects) */
	uint64_t content_length; /* HTTP_LENGTH_UNKNOWN if not given */
	uint64_t range_offset; /* start of the range of a 206 */
	uint64_t total_size; /* size of the resource, from Content-Range or Content-Length */
	uint64_t body_bytes; /* bytes accepted by the sink, except discarded ones */
	struct buf error_body; /* beginning of the body of an unexpected status */
	unsigned attempts;
	unsigned resent; /* attempts that were abandoned because they were silent (`resend_ms`) */
	bool resumed; /* the body was assembled from several attempts */
	bool sent_before; /* the server may have executed an attempt that got no definite reply */
	char *effective_url; /* owned; after redirects; NULL if it is the requested URL */
};
/* clang-format off */
#define HTTP_REPLY_INIT { .content_length = HTTP_LENGTH_UNKNOWN, .total_size = HTTP_LENGTH_UNKNOWN }
/* clang-format on */
void http_reply_release(struct http_reply *reply);
/* Returns the value of the first header called `name`, ignoring case, or NULL if it is missing. */
const char *http_reply_header(const struct http_reply *reply, const char *name);

/*
 * Runs the request to its end. `reply` (may be NULL) is filled on failure too, as far as possible.
 * On an unexpected status the error has `http_status` set and a matching code: 401, 403 and 407
 * PERMISSION, 404 and 410 NOT_FOUND, 405 and 501 UNSUPPORTED, 412 PRECONDITION, 507 NO_SPACE, 408,
 * 409, 429 and other 5xx UNAVAILABLE, …
 */
int http_perform(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);

/* Starts the request and returns; the engine uses `request` and `reply` until `done`. Fails only if
 * out of memory, if the engine's thread cannot start, or if the engine is shutting down; then
 * `done` is not called. */
int http_submit(struct http_engine *engine, struct http_request *request, struct http_reply *reply,
	struct penstock_error *err);
/* Makes every paused sink try again; a sink that still has no room returns HTTP_PAUSE again. May be
 * called from any thread. */
void http_resume(struct http_engine *engine);
/* Makes the engine check the cancel flags now instead of within 100 ms. May be called from any
 * thread. */
void http_wake(struct http_engine *engine);

/* Gets the host of "http://HOST[:PORT][/…]"; an IPv6 address has its brackets. Returns its length,
 * or 0 for any other URL, such as one with a user. */
size_t http_plain_host(const char *url, const char **host);
/* Returns true for localhost, 127.0.0.0/8 and [::1]. */
bool http_host_is_local(const char *host, size_t len);

/* Appends "Basic …" of a user and a password (RFC 7617): the buffer then contains a secret. Returns
 * -1 if both together are longer than half of the buffer's limit, or if out of memory. */
int http_add_basic(struct buf *out, const char *user, const char *password);

/* Appends `url` for display, without user, password, query and fragment. */
void http_url_display(const char *url, struct buf *out);

#endif
