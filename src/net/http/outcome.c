/* The result of an attempt: success, a retry, or the error for the caller. */
#include "net/http/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/date.h"
#include "s3/message/errors.h"

#define VERDICT_WAIT_MS	     500
#define WAIT_REPORT_AFTER_MS 1000 /* a short outage is not worth a line */
#define WAIT_REPORT_EVERY_MS 15000 /* interval of the reports for one host */
#define PATIENT_CAP_MS	     5000 /* longest back-off of a request with `patience_ms` */

struct curl_meaning {
	CURLcode code;
	enum penstock_code means;
	bool retryable;
	bool absent; /* the server is absent or not ready */
	const char *hint; /* curl's own message if NULL */
};

static const struct curl_meaning meanings[] = {
	{CURLE_COULDNT_RESOLVE_HOST, PENSTOCK_E_UNAVAILABLE, true, true, NULL},
	{CURLE_COULDNT_RESOLVE_PROXY, PENSTOCK_E_UNAVAILABLE, true, true, NULL},
	{CURLE_COULDNT_CONNECT, PENSTOCK_E_UNAVAILABLE, true, true, NULL},
	{CURLE_OPERATION_TIMEDOUT, PENSTOCK_E_TIMEOUT, true, true, NULL},
	{CURLE_PARTIAL_FILE, PENSTOCK_E_UNAVAILABLE, true, true, "the connection was cut"},
	{CURLE_GOT_NOTHING, PENSTOCK_E_UNAVAILABLE, true, true,
		"the connection was closed without a reply"},
	{CURLE_SEND_ERROR, PENSTOCK_E_UNAVAILABLE, true, true, NULL},
	{CURLE_RECV_ERROR, PENSTOCK_E_UNAVAILABLE, true, true, NULL},
	{CURLE_WEIRD_SERVER_REPLY, PENSTOCK_E_PROTOCOL, true, false, NULL},
	{CURLE_HTTP2, PENSTOCK_E_UNAVAILABLE, true, false, NULL},
	{CURLE_SSL_CONNECT_ERROR, PENSTOCK_E_UNAVAILABLE, true, false, NULL},
	{CURLE_SEND_FAIL_REWIND, PENSTOCK_E_UNAVAILABLE, true, true, "the connection was cut"},
	{CURLE_PEER_FAILED_VERIFICATION, PENSTOCK_E_PERMISSION, false, false, NULL},
	{CURLE_SSL_CACERT_BADFILE, PENSTOCK_E_INVALID, false, false, NULL},
	{CURLE_SSL_CERTPROBLEM, PENSTOCK_E_PERMISSION, false, false, NULL},
	{CURLE_URL_MALFORMAT, PENSTOCK_E_INVALID, false, false, "the URL is not valid"},
	{CURLE_UNSUPPORTED_PROTOCOL, PENSTOCK_E_INVALID, false, false, NULL},
	{CURLE_TOO_MANY_REDIRECTS, PENSTOCK_E_PROTOCOL, false, false, "more than 10 redirects"},
	{CURLE_OUT_OF_MEMORY, PENSTOCK_E_MEMORY, false, false, "out of memory"},
};

static const struct curl_meaning *meaning_of(CURLcode code)
{
	static const struct curl_meaning unknown = {
		CURLE_OK, PENSTOCK_E_UNAVAILABLE, true, false, NULL};

	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
		if (meanings[i].code == code)
			return &meanings[i];
	}
	return &unknown;
}

void http_error_name(const struct http_request *request, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	if (request->what) {
		error_prefix(err, "%s", request->what);
		return;
	}
	http_url_display(request->url, &url);
	error_prefix(err, "%s %s", request->method, buf_str(&url));
}

/* Full jitter: a random delay from 0 to a bound that doubles each time. */
int64_t http_backoff_ms(struct http_engine *engine, unsigned attempt, int64_t cap)
{
	int64_t bound = engine->options.retry_base_ms;
	/* splitmix64: spreads retries; not for security. */
	uint64_t z = (engine->random += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	for (unsigned i = 1; i < attempt && bound < cap; i++)
		bound *= 2;
	if (bound > cap)
		bound = cap;
	return (int64_t)(z % (uint64_t)(bound + 1));
}

/* Returns the delay of `Retry-After` in ms, at most LIMIT_HTTP_RETRY_AFTER seconds. Returns -1 if
 * the header is missing or invalid. */
static int64_t retry_after_ms(const struct http_reply *reply)
{
	const char *text = http_reply_header(reply, "Retry-After");
	uint64_t seconds;
	int64_t when;

	if (!text)
		return -1;
	if (!str_to_u64(text, 0, UINT64_MAX, &seconds)) {
		int64_t now = clock_wall_ns() / NS_PER_S;

		if (!date_parse_http(text, &when))
			return -1;
		seconds = when > now ? (uint64_t)(when - now) : 0;
	}
	if (seconds > LIMIT_HTTP_RETRY_AFTER)
		seconds = LIMIT_HTTP_RETRY_AFTER;
	return (int64_t)seconds * 1000;
}

bool http_sink_restartable(const struct http_sink *sink)
{
	return sink->kind != HTTP_SINK_CALLBACK || sink->restart;
}

static bool sink_restart(struct call *call)
{
	const struct http_sink *sink = &call->request->sink;

	switch (sink->kind) {
	case HTTP_SINK_DISCARD:
	case HTTP_SINK_FD:
		return true;
	case HTTP_SINK_BUF:
		if (sink->buf->len > call->sink_start)
			buf_truncate(sink->buf, call->sink_start);
		return true;
	case HTTP_SINK_CALLBACK:
		return sink->restart && sink->restart(sink->cookie) == 0;
	}
	return false;
}

/* Returns true if there is something left to request after the kept bytes. An empty range cannot be
 * requested: a length of 0 means everything to the end. */
static bool has_rest(const struct call *call)
{
	const struct http_range *range = &call->request->range;

	return !range->wanted || !range->length || call->kept < range->length;
}

bool attempt_keep_or_restart(struct call *call)
{
	bool get = strcmp(call->request->method, "GET") == 0;
	uint64_t kept = call->received;

	call->kept += call->received;
	call->received = 0;
	if (!call->kept)
		return true;
	if (get && call->validator[0] && has_rest(call)) {
		/* Enough bytes arrived: an interrupted transfer that makes progress is not a
		 * failure. */
		if (kept >= LIMIT_HTTP_PROGRESS)
			call->fruitless = 0;
		call->reply->resumed = true;
		return true;
	}
	if (!sink_restart(call))
		return false;
	call->kept = 0;
	call->reply->resumed = false;
	return true;
}

static long os_error(const struct call *call)
{
	long os = 0;

	curl_easy_getinfo(call->handle->curl, CURLINFO_OS_ERRNO, &os);
	return os;
}

/* Sets the error of an attempt whose transfer failed. Returns true if the attempt may be
 * retried. */
static bool transfer_failed(struct call *call, CURLcode result, struct penstock_error *err)
{
	const struct curl_meaning *meaning = meaning_of(result);
	const char *text = call->handle->message;

	if (call->error.code) {
		bool retryable = !call->fatal && error_is_retryable(&call->error);

		error_move(err, &call->error);
		return retryable;
	}
	call->absent = meaning->absent;
	if (meaning->hint)
		text = meaning->hint;
	else if (!*text)
		text = curl_easy_strerror(result);
	if (result == CURLE_SSL_CONNECT_ERROR && strstr(text, "wrong version number"))
		error_set(err, meaning->means,
			"the server does not speak TLS; use http:// for a server without TLS");
	else if (result == CURLE_SSL_CONNECT_ERROR)
		error_set(err, meaning->means,
			"cannot connect over TLS: %s; use http:// if the server does not speak TLS",
			text);
	else if (result == CURLE_COULDNT_CONNECT && os_error(call) == ECONNREFUSED)
		error_set(err, meaning->means,
			"%.*s: connection refused; check the address, and that a server runs there",
			(int)strcspn(text, ":"), text);
	else if (result == CURLE_PEER_FAILED_VERIFICATION)
		error_set(err, meaning->means,
			"%s; if the server has its own certificate authority, put the path "
			"of its certificate in SSL_CERT_FILE or AWS_CA_BUNDLE",
			text);
	else
		error_set(err, meaning->means, "%s", text);
	return meaning->retryable;
}

static const char *status_words(int status)
{
	static const struct {
		int status;
		const char *words;
	} known[] = {{401, " (credentials required)"}, {403, " (forbidden)"}, {404, " (not found)"},
		{410, " (gone)"}, {416, " (no such range)"}, {429, " (too many requests)"},
		{500, " (internal server error)"}, {503, " (too busy)"}};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (known[i].status == status)
			return known[i].words;
	}
	return "";
}

/* Sets the error of an attempt that got a complete reply with an unexpected status. Returns true if
 * the attempt may be retried. */
static bool status_failed(struct call *call, struct penstock_error *err)
{
	struct http_reply *reply = call->reply;

	error_set(err, s3_code_of_status(reply->status), "the server replied %d%s", reply->status,
		status_words(reply->status));
	err->http_status = reply->status;
	call->absent = s3_status_is_retryable(reply->status);
	return call->absent;
}

/* Returns true if the whole body of a reply with an expected status has arrived, else sets
 * `err`. */
static bool body_complete(struct call *call, struct penstock_error *err)
{
	if (call->expected == HTTP_LENGTH_UNKNOWN || call->received == call->expected ||
		strcmp(call->request->method, "HEAD") == 0)
		return true;
	error_set(err, PENSTOCK_E_UNAVAILABLE, "the connection was cut");
	call->absent = true;
	return false;
}

/*
 * Returns true if all bytes of a part arrived although the reply did not end: the connection was
 * cut, or silent, before the final chunk. Returns false after an error of a hook or a sink, but
 * ignores a timeout of the engine.
 */
static bool part_arrived(const struct call *call, CURLcode result)
{
	return call->good && !call->fatal && call->expected != HTTP_LENGTH_UNKNOWN &&
	       call->received == call->expected &&
	       (!call->error.code || result == CURLE_OPERATION_TIMEDOUT);
}

/* Returns true if nothing follows the kept bytes of a body whose length is unknown: the kept bytes
 * may be the whole body, or the whole body of another version. */
static bool nothing_follows(const struct call *call)
{
	return call->kept && !call->request->range.wanted && call->reply->status == 416;
}

/* Sets `err` unless the attempt succeeded. Returns true if the failure may be retried. */
static bool attempt_classify(struct call *call, CURLcode result, struct penstock_error *err)
{
	struct http_request *request = call->request;
	bool whole = result == CURLE_OK || call->body_cut;
	bool retryable = false;

	if (!whole && part_arrived(call, result)) {
		penstock_error_release(&call->error);
		whole = true;
	}
	if (whole && !call->error.code && call->good && !body_complete(call, err))
		return true;
	if (!whole || call->error.code)
		return transfer_failed(call, result, err);
	/* A retry after a complete reply may get other content, so no byte is kept. */
	call->validator[0] = '\0';
	if (!call->good)
		retryable = status_failed(call, err);
	if (nothing_follows(call) && !call->restarted && http_sink_restartable(&request->sink)) {
		call->restarted =
			true; /* only once: a server may cut the body at the same place each time */
		return true;
	}
	if (request->classify) {
		_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;

		switch (request->classify(request->cookie, call->reply, &own)) {
		case HTTP_VERDICT_DEFAULT:
			return retryable;
		case HTTP_VERDICT_RETRY:
			retryable = true;
			break;
		case HTTP_VERDICT_WAIT:
			retryable = call->waits = true;
			break;
		case HTTP_VERDICT_FAIL:
			retryable = false;
			break;
		}
		if (own.code) {
			if (!own.http_status)
				own.http_status = call->reply->status;
			error_move(err, &own);
		}
	}
	return retryable;
}

static void attempt_log(const struct call *call, CURLcode result)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	if (!log_enabled(LOG_DEBUG))
		return;
	http_url_display(call->request->url, &url);
	log_debug("%s %s: %d, %llu bytes sent, %llu received, %lld ms, attempt %u%s%s",
		call->request->method, buf_str(&url), call->reply->status,
		(unsigned long long)call->source_read, (unsigned long long)call->received,
		(long long)(clock_monotonic_ms() - call->started_ms), call->attempt,
		result ? ": " : "", result ? curl_easy_strerror(result) : "");
}

static void attempt_count(struct http_engine *engine, struct call *call)
{
	CURL *curl = call->handle->curl;
	long connects = 0;
	long request_size = 0;
	char *url = NULL;

	curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &connects);
	curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &request_size);
	atomic_fetch_add(&engine->counters.connections, (unsigned long)connects);
	atomic_fetch_add(&engine->counters.sent,
		call->source_read ? call->source_read
				  : (call->request->source.kind == HTTP_SOURCE_MEMORY
						    ? call->request->source.length
						    : 0));
	atomic_fetch_add(&engine->counters.received, call->received);
	if (request_size > 0 && (call->reply->status < 300 || call->reply->status >= 500))
		call->reply->sent_before = true;
	if (call->request->follow_redirects &&
		curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &url) == CURLE_OK && url &&
		strcmp(url, call->request->url) != 0) {
		free(call->reply->effective_url);
		call->reply->effective_url = strdup(url);
	}
}

/* ---- another attempt? ---- */

/* Returns true if the request fails now: no attempts are left, and if the host is absent, the time
 * to wait for the host has passed. */
static bool is_exhausted(const struct http_engine *engine, const struct call *call, int64_t now)
{
	const struct http_request *request = call->request;
	unsigned most = request->max_attempts ? request->max_attempts
					      : engine->options.max_attempts;

	if (most == 1)
		return true;
	if (call->fruitless < most)
		return false;
	return !call->absent || now - call->fruitless_ms >= request->patience_ms;
}

/* Describes in a few words why requests wait for a host. */
static void describe_absence(const struct call *call, CURLcode result, char *out, size_t size)
{
	if (result == CURLE_OK && call->reply->status >= 300)
		snprintf(out, size, "it replies %d", call->reply->status);
	else if (result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_RESOLVE_PROXY)
		snprintf(out, size, "its name cannot be resolved");
	else if (result == CURLE_COULDNT_CONNECT && os_error(call) == ECONNREFUSED)
		snprintf(out, size, "connection refused");
	else if (result == CURLE_COULDNT_CONNECT)
		snprintf(out, size, "no connection");
	else if (result == CURLE_OPERATION_TIMEDOUT)
		snprintf(out, size, "no reply");
	else
		snprintf(out, size, "connection cut");
}

/* Reports that requests wait for a host: not after a short outage, and not too often. */
static void report_waiting(struct http_engine *engine, struct call *call, CURLcode result)
{
	struct http_host *host = call->host;
	int64_t now = clock_monotonic_ms();
	const char *name = strstr(host->name, "://");
	const char *at;
	char why[64];

	if (!engine->options.on_wait || !call->request->patience_ms || !call->absent ||
		now - call->fruitless_ms < WAIT_REPORT_AFTER_MS ||
		(host->reported_ms && now - host->reported_ms < WAIT_REPORT_EVERY_MS))
		return;
	host->reported_ms = now;
	name = name ? name + 3 : host->name;
	at = strrchr(name, '@'); /* never show a user and password */
	describe_absence(call, result, why, sizeof(why));
	engine->options.on_wait(
		engine->options.cookie, at ? at + 1 : name, why, now - call->fruitless_ms);
}

/* Returns the start time of the next attempt. */
static int64_t next_attempt_ms(struct http_engine *engine, const struct call *call, int64_t now)
{
	bool patient = call->absent && call->request->patience_ms;
	int64_t cap = engine->options.retry_cap_ms;
	int64_t end = call->fruitless_ms + call->request->patience_ms;
	int64_t wait = retry_after_ms(call->reply);

	if (wait >= 0)
		return now + wait;
	if (call->waits)
		return now + VERDICT_WAIT_MS;
	if (patient && cap > PATIENT_CAP_MS)
		cap = PATIENT_CAP_MS;
	wait = http_backoff_ms(engine, call->fruitless ? call->fruitless : 1, cap);
	/* The last attempt is made when `patience_ms` ends, not later. */
	return patient && now < end && now + wait > end ? end : now + wait;
}

static void note_attempts(const struct call *call, struct penstock_error *err)
{
	int64_t waited = (clock_monotonic_ms() - call->fruitless_ms) / 1000;

	if (call->attempt > 1 && call->request->patience_ms && call->absent && waited > 0)
		error_suffix(
			err, " (after %u attempts in %lld s)", call->attempt, (long long)waited);
	else if (call->attempt > 1)
		error_suffix(err, " (after %u attempts)", call->attempt);
}

enum outcome attempt_outcome(
	struct http_engine *engine, struct call *call, CURLcode result, struct penstock_error *err)
{
	struct http_request *request = call->request;
	bool sent_before = call->reply->sent_before;
	int64_t now = clock_monotonic_ms();
	bool retryable;

	attempt_count(engine, call);
	attempt_log(call, result);
	retryable = attempt_classify(call, result, err);
	if (!err->code) {
		call->reply->body_bytes = call->kept + call->received;
		call->reply->sent_before = sent_before;
		return OUTCOME_SUCCESS;
	}
	http_error_name(request, err);
	call->renew_connection = call->resending;
	/* Trying a faster connection is not a failure. */
	if (call->resending && retryable && attempt_keep_or_restart(call)) {
		call->reply->resent = call->resent;
		call->not_before_ms = now;
		return OUTCOME_RETRY;
	}
	if (!call->waits && call->fruitless++ == 0)
		call->fruitless_ms = call->started_ms;
	if (!retryable || !attempt_keep_or_restart(call) || is_exhausted(engine, call, now)) {
		call->reply->body_bytes = call->kept + call->received;
		/* A definite reply to the last attempt proves nothing about earlier attempts, which
		 * may have been executed. */
		if (call->reply->status && call->reply->status < 500)
			call->reply->sent_before = sent_before;
		note_attempts(call, err);
		return OUTCOME_FAILURE;
	}
	report_waiting(engine, call, result);
	call->not_before_ms = next_attempt_ms(engine, call, now);
	if (request->deadline_ms && call->not_before_ms >= request->deadline_ms) {
		error_suffix(err, " (no time left for another attempt)");
		return OUTCOME_FAILURE;
	}
	return OUTCOME_RETRY;
}
