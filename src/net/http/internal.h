/*
 * Internals of the HTTP engine, shared by its files.
 *
 * A `call` is one request in progress: it waits in its host's queue, is active on a curl handle, or
 * waits for its next attempt. Only the engine thread accesses the data, except for the options,
 * which never change, `engine->synced`, and atomic members.
 */
#ifndef NET_HTTP_INTERNAL_H
#define NET_HTTP_INTERNAL_H

#include <curl/curl.h>
#include <pthread.h>

#include "net/http/http.h"
#include "net/pace/pace.h"

#define HTTP_VALIDATOR_SIZE 256

/* Connections are limited per "scheme://host:port". */
struct http_host {
	struct http_host *next;
	struct call *queue;
	struct call *bulk; /* calls that wait for their turn by `pace` */
	unsigned active;
	unsigned active_bulk;
	struct pace pace;
	int64_t moved_ms; /* last progress of a request with `bulk` or `resend_ms`; set by ticks */
	unsigned calls; /* queued, active or waiting */
	int64_t reported_ms; /* last time on_wait was called for this host; 0 if never */
	char name[];
};

/* A curl handle with its data; reused by one call after another. */
struct http_handle {
	struct http_handle *next; /* in the pool */
	CURL *curl;
	char message[CURL_ERROR_SIZE];
	struct curl_slist *nodes; /* array; the strings are the request's own headers */
	size_t nodes_cap;
	char range[64];
	bool no_memory; /* libcurl could not copy a text */
};

struct call {
	struct call *next, *prev; /* in one of the lists of <utlist.h> */
	struct http_engine *engine; /* set while an attempt runs */
	struct http_request *request;
	void (*done)(void *cookie, struct http_request *request, struct http_reply *reply,
		struct penstock_error *err);
	void *cookie; /* for done */
	struct http_reply *reply; /* the caller's, or `own` */
	struct http_reply own;
	struct http_host *host;

	unsigned attempt;
	unsigned resent; /* attempts that were abandoned because they were silent */
	bool renew_connection; /* the next attempt uses a new connection */
	unsigned fruitless; /* consecutive attempts without progress */
	int64_t fruitless_ms; /* start of the first attempt that `fruitless` counts */
	int64_t not_before_ms; /* start of the next attempt */

	/* Kept for the next attempt: the number of bytes that the sink has, and the validator of
	 * the resource. */
	uint64_t kept;
	size_t sink_start; /* length of a sink buffer before the first byte */
	char validator[HTTP_VALIDATOR_SIZE];
	bool restarted; /* the body was restarted because nothing followed the kept bytes */

	/* State of the current attempt. */
	struct http_handle *handle;
	int64_t started_ms;
	int64_t sent_ms; /* time at which curl got the last byte of the body; 0 if not yet */
	int64_t answered_ms; /* time at which the first byte of a reply arrived; 0 if not yet */
	uint64_t moved; /* bytes, both directions */
	uint64_t moved_seen; /* value of `moved` at the last tick */
	int64_t silent_ms; /* time since which the call is silent */
	bool resending; /* the attempt is abandoned because it is silent */
	uint64_t source_read; /* bytes read by curl */
	bool source_touched;
	uint64_t received; /* bytes accepted by the sink */
	uint64_t skip; /* bytes of the reply that the sink already has */
	uint64_t expected; /* body length of a 206; HTTP_LENGTH_UNKNOWN otherwise */
	size_t header_bytes;
	bool in_head; /* between a status line and the empty line */
	bool headers_done; /* all headers of the final reply have arrived */
	bool good; /* the status of the reply is expected */
	bool body_cut; /* the engine ended the transfer, because enough of an error body arrived */
	bool fatal; /* `error` must not be retried, regardless of its code */
	bool absent; /* the server is absent or not ready */
	bool waits; /* the attempt ended with HTTP_VERDICT_WAIT */
	bool paused;
	struct penstock_error error; /* from a hook, a source or a sink */
	int64_t window_ms; /* start of the stall window */
	uint64_t window_moved; /* bytes in the window, both directions */
};

struct http_engine {
	struct http_engine_options options; /* with defaults filled in; never changes */
	atomic_llong stall_ms; /* stall timeout of requests without their own */
	char *ca_file;
	char *ca_path;
	pthread_t thread;
	/* other threads may only wake `multi`, under the lock; NULL until the thread exists */
	CURLM *multi;

	struct {
		pthread_mutex_t lock;
		struct call *incoming;
		bool started; /* the thread exists */
		bool ending;
		bool resume;
	} synced;

	/* Owned by the engine thread. */
	struct http_host *hosts;
	unsigned n_hosts;
	struct call *active;
	struct call *waiting; /* calls that wait for their next attempt */
	unsigned n_active;
	unsigned n_queued;
	struct http_handle *pool;
	unsigned n_pool;
	bool submitted; /* a callback submitted a request: do not block in poll now */
	int64_t last_tick_ms;
	struct {
		/* maximum number of active requests in this window, and in the previous one */
		unsigned most, most_before;
		int64_t window_ms; /* start of the window */
		unsigned kept; /* connections that libcurl keeps; 0 if not set */
		int64_t since_ms; /* last use of a connection; 0 if all connections are closed */
	} idle;
	uint64_t random;
	uint64_t bytes_done; /* sent by successful attempts */

	struct {
		atomic_ulong requests, attempts, retries, failures, connections, sent, received,
			progress, resent;
		atomic_uint bulk_limit;
	} counters;
};

/* limit.c: counts bytes that were sent or received, and sleeps until the limit allows them. */
#define HTTP_LIMITED_PIECE (16 * KIB) /* bytes of a body sent at a time under a limit */
void http_limit_take(struct http_engine *engine, size_t bytes);

/* engine.c */
void *http_engine_main(void *arg);
void http_hosts_trim(struct http_engine *engine, unsigned more_than);
void call_free(struct call *call);

/* idle.c: connections that no request uses. */
void idle_check(struct http_engine *engine);
/* Returns true if there may be idle connections. */
bool idle_is_counted(const struct http_engine *engine);

/* slow.c: requests that are slow compared with others. */
/* Returns the waits of requests of the same kind (GET or PUT) to the call's host. */
struct waits *call_waits(const struct call *call);
/* Counts the bytes moved since the last check. */
void call_count_moved(struct call *call, int64_t now);
/* Returns true if the call must be abandoned now and sent again. */
bool call_is_slow(const struct call *call, int64_t now);

/* attempt.c: one attempt of a call on a curl handle. */
struct http_handle *http_handle_new(struct http_engine *engine);
void http_handle_free(struct http_handle *handle);
/* Prepares the call's next attempt on its handle. Returns -code with `call->error` set. */
int attempt_setup(struct http_engine *engine, struct call *call);

/* http.c */
bool http_has_header(const struct strlist *headers, const char *name);

/* reply.c: the reply of an attempt. */
/* Records the error of a hook or sink. The error ends the request unless its code is retryable. */
void call_raise(struct call *call, struct penstock_error *err);
/* Like call_raise(), but the request ends. */
void call_raise_fatal(struct call *call, struct penstock_error *err);
/* Takes the engine as a parameter, because a pending call has no `engine` yet. */
bool call_is_cancelled(const struct http_engine *engine, const struct call *call);
/* Returns true, and records PENSTOCK_E_CANCELLED, if the call is cancelled. Callbacks then end the
 * transfer, because further bytes could complete an object that is reported as not sent. */
bool call_stop_cancelled(struct call *call);
/*
 * Gets the range requested by this attempt, from `*offset`; 0 in `*length` means to the end.
 * Returns false if no range was requested. attempt_keep_or_restart() makes sure that fewer bytes
 * are kept than the range has.
 */
bool call_range(const struct call *call, uint64_t *offset, uint64_t *length);
/* Empties a reply before its first header. */
void http_reply_reset(struct http_reply *reply);
/* Callbacks for curl; `cookie` is the call. */
size_t call_on_header(char *line, size_t size, size_t n, void *cookie);
size_t call_on_write(char *data, size_t size, size_t n, void *cookie);

/* outcome.c: the result of an attempt. */
enum outcome { OUTCOME_SUCCESS, OUTCOME_RETRY, OUTCOME_FAILURE };
/* Decides what follows the attempt. Sets `call->not_before_ms` for RETRY, and `err` for RETRY and
 * FAILURE. */
enum outcome attempt_outcome(
	struct http_engine *engine, struct call *call, CURLcode result, struct penstock_error *err);
/* Keeps the bytes of an earlier attempt if they stay valid, else restarts the sink. Returns false
 * if the sink cannot be restarted. */
bool attempt_keep_or_restart(struct call *call);
bool http_sink_restartable(const struct http_sink *sink);
int64_t http_backoff_ms(struct http_engine *engine, unsigned attempt, int64_t cap);
/* Puts the request's `what`, else "GET http://host/path", before the error's message. */
void http_error_name(const struct http_request *request, struct penstock_error *err);

#endif
