/*
 * What the files of the HTTP engine share.
 *
 * A `call` is one request on its way: it waits in its host's queue, is active on a curl handle, or
 * waits for its next attempt. Everything but `engine->synced` and the counters is touched by the
 * engine thread only.
 */
#ifndef NET_HTTP_INTERNAL_H
#define NET_HTTP_INTERNAL_H

#include <curl/curl.h>
#include <pthread.h>

#include "net/http.h"
#include "net/http_pace.h"

#define HTTP_VALIDATOR_SIZE 256

struct call_list {
	struct call *first;
	struct call *last;
};

/* Connections are limited per "scheme://host:port". */
struct http_host {
	struct http_host *next;
	struct call_list queue;
	struct call_list bulk; /* those that wait for their turn behind `pace` */
	unsigned active;
	unsigned active_bulk;
	struct pace pace;
	int64_t moved_ms; /* when a bulk request last got on; ticks are its clock */
	unsigned calls;	  /* queued, active or waiting */
	int64_t told_ms;  /* when somebody was last told that it is waited for; 0: never */
	char name[];
};

/* A curl handle with what belongs to it; reused by one call after the other. */
struct http_handle {
	struct http_handle *next; /* in the pool */
	CURL *curl;
	char message[CURL_ERROR_SIZE];
	struct curl_slist *nodes; /* array; point into the request's own header strings */
	size_t nodes_cap;
	char range[64];
	bool no_memory; /* for a text that libcurl was to copy */
};

struct call {
	struct call *next;
	struct call *prev;
	struct http_request *request;
	struct http_reply *reply; /* the caller's, or `own` */
	struct http_reply own;
	struct http_host *host;

	unsigned attempt;
	unsigned resent;       /* attempts that were given up for being silent */
	bool renew_connection; /* the next attempt is on a connection of its own */
	unsigned fruitless;    /* attempts in a row that brought nothing */
	int64_t fruitless_ms;  /* when the first of them began */
	int64_t not_before_ms; /* of the next attempt */

	/* Survives a cut: bytes the sink has kept, and what they are bytes of. */
	uint64_t kept;
	size_t sink_start; /* length of a sink buffer before the first byte */
	char validator[HTTP_VALIDATOR_SIZE];
	bool anew; /* it began from the beginning, since nothing was behind the bytes kept */

	/* Of the attempt that runs. */
	struct http_handle *handle;
	int64_t started_ms;
	int64_t sent_ms;      /* when the last byte of the request was handed over; 0: not yet */
	int64_t answered_ms;  /* when the first byte of a reply came; 0: not yet */
	uint64_t moved;	      /* bytes, both ways */
	uint64_t moved_seen;  /* of these, at the last tick */
	int64_t silent_ms;    /* since when none moved */
	bool resending;	      /* it is given up for being silent */
	uint64_t source_read; /* bytes that curl took */
	bool source_touched;
	uint64_t received; /* bytes the sink took */
	uint64_t skip;	   /* bytes of the reply that the sink has already */
	uint64_t expected; /* body length of a 206; HTTP_LENGTH_UNKNOWN otherwise */
	size_t header_bytes;
	bool in_head;	   /* between a status line and the empty line */
	bool headers_done; /* of the final reply */
	bool good;	   /* its status is an expected one */
	bool body_cut;	   /* we ended it ourselves: enough of an error's body was read */
	bool fatal;	   /* `error` is not to be retried, whatever its code */
	bool absent;	   /* it failed because the server is not there or not ready */
	bool paused;
	struct penstock_error error; /* raised by a hook, a source or a sink */
	int64_t window_ms;	     /* start of the stall window */
	uint64_t window_moved;	     /* bytes in it, both ways */
};

struct http_engine {
	struct http_engine_options options; /* defaults filled in; never changes */
	char *ca_file;
	char *ca_path;
	pthread_t thread;
	CURLM *multi; /* others may only wake it up; NULL until the thread lives */

	struct {
		pthread_mutex_t lock;
		struct call_list incoming;
		bool started; /* the thread lives */
		bool ending;
		bool resume;
	} synced;

	/* Owned by the engine thread. */
	struct http_host *hosts;
	unsigned n_hosts;
	struct call_list active;
	struct call_list waiting; /* for their next attempt */
	unsigned n_active;
	unsigned n_queued;
	struct http_handle *pool;
	unsigned n_pool;
	bool submitted; /* by a request's own `done`: it is not waited for anything now */
	int64_t last_tick_ms;
	uint64_t random;
	uint64_t bytes_done; /* sent by attempts that succeeded */

	struct {
		atomic_ulong requests, attempts, retries, failures, connections, sent, received,
			getting_on, resent;
		atomic_uint bulk_limit;
	} counters;
};

/* http_life.c: under the lock of `synced`, at the first request. */
int http_engine_start(struct http_engine *engine, struct penstock_error *err);

/* http_engine.c */
void *http_engine_main(void *arg);
void http_hosts_trim(struct http_engine *engine, unsigned more_than);
void call_list_add(struct call_list *list, struct call *call);
void call_list_remove(struct call_list *list, struct call *call);

/* http_slow.c: bulk requests that are slow beside their like. */
enum pace_kind call_pace_kind(const struct call *call);
/* The bytes that moved since the last look. */
void call_count_moved(struct call *call, int64_t now);
/* Whether it is to be given up now, and sent again. */
bool call_is_slow(const struct call *call, int64_t now);

/* http_attempt.c: one attempt of a call on a curl handle. */
struct http_handle *http_handle_new(struct http_engine *engine);
void http_handle_free(struct http_handle *handle);
/* Prepares the call's next attempt on its handle; -code with `call->error` set. */
int attempt_setup(struct http_engine *engine, struct call *call);

/* http_outcome.c: what an attempt came to. */
enum outcome { OUTCOME_SUCCESS, OUTCOME_RETRY, OUTCOME_FAILURE };
/* Decides; on RETRY `call->not_before_ms` is set, on RETRY and FAILURE `err`. */
enum outcome attempt_outcome(
	struct http_engine *engine, struct call *call, CURLcode result, struct penstock_error *err);
/* Whether bytes of an earlier attempt stay valid; makes the sink empty where they do not. False: it
 * cannot be made empty. */
bool attempt_keep_or_restart(struct call *call);
bool http_sink_restartable(const struct http_sink *sink);
int64_t http_backoff_ms(struct http_engine *engine, unsigned attempt, int64_t cap);
/* Puts "GET http://host/path" before the error's message. */
void http_error_name(const struct http_request *request, struct penstock_error *err);

#endif
