#include "server/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/uri.h"
#include "server/access/access.h"
#include "server/directory/directory.h"
#include "server/iam/query.h"
#include "server/monitor/metrics.h"
#include "server/op/op.h"
#include "server/request/cors.h"
#include "server/request/framing.h"
#include "server/request/headers.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* --- start and end -------------------------------------------------------------------------- */

/*
 * Cuts off the query, but not its "?". The server reads its own copy; libmicrohttpd would split the
 * query into its parameters, and if the parameters do not fit in the connection's memory,
 * libmicrohttpd neither answers nor frees the request.
 */
static void hide_query(const char *uri)
{
	char *mark = strchr(uri, '?');

	if (mark)
		mark[1] = '\0';
}

void *request_new(void *cls, const char *uri, struct MHD_Connection *connection)
{
	struct server *server = cls;
	struct request *req = calloc(1, sizeof(*req));
	char *query;

	if (!req)
		return NULL;
	req->server = server;
	req->connection = connection;
	req->target_end = uri + strlen(uri);
	req->path = strdup(uri);
	req->resource = req->path;
	if (!req->path) {
		free(req);
		return NULL;
	}
	query = strchr(req->path, '?');
	if (query) {
		*query = '\0';
		req->query = query + 1;
		hide_query(uri);
	}
	req->identity = directory_anonymous(server->directory);
	req->begun_ns = clock_monotonic_ns();
	req->object_size = -1;
	req->policy_steps = LIMIT_POLICY_STEPS;
	snprintf(req->id, sizeof(req->id), "%016llX",
		(unsigned long long)atomic_fetch_add(&server->next_id, 1));
	return req;
}

/* Counts a request that has ended. */
static void count(const struct request *req, bool cut_off)
{
	if (req->server->metrics)
		metrics_count(req->server->metrics,
			&(struct metrics_request){.operation = req->operation,
				.status = req->status,
				.ns = clock_monotonic_ns() - req->begun_ns,
				.received = req->body.received,
				.sent = req->head || cut_off ? 0 : req->sent});
}

void request_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
	enum MHD_RequestTerminationCode code)
{
	struct request *req = *con_cls;

	(void)cls;
	(void)connection;
	if (!req)
		return;
	*con_cls = NULL;
	log_debug("store %s %s %s: %u, %.1f ms%s", req->id, req->method ? req->method : "-",
		req->path, req->status, (double)(clock_monotonic_ns() - req->begun_ns) / 1e6,
		code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "" : ", cut off");
	if (req->seen) {
		op_log_request(req);
		count(req, code != MHD_REQUEST_TERMINATED_COMPLETED_OK);
	}
	if (req->response)
		MHD_destroy_response(req->response);
	request_let_go(req);
	identity_unref(req->identity);
	body_release(req);
	op_post_release(req);
	buf_release(&req->stored_headers);
	store_object_unref(req->decided.object);
	store_object_unref(req->put.source);
	store_object_unref(req->part.put.source);
	penstock_error_release(&req->put.error);
	penstock_error_release(&req->part.put.error);
	arena_release(&req->arena);
	explicit_bzero(&req->encryption, sizeof(req->encryption));
	if (req->seen) {
		atomic_store(&req->server->last_activity, clock_monotonic_ns());
		atomic_fetch_sub(&req->server->active, 1);
	}
	free(req->path);
	free(req);
}

static enum MHD_Result add_header(
	void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
	struct request *req = cls;

	(void)kind;
	if (req->n_headers == REQUEST_HEADERS_MAX)
		return MHD_NO;
	req->headers[req->n_headers++] = (struct sigv4_header){
		.name = name, .value = value ? value : ""};
	return MHD_YES;
}

/* Splits the path into bucket and key. Sets the reply and returns false on failure. */
static bool split_path(struct request *req)
{
	_cleanup_(buf_release) struct buf bucket = BUF_INIT(LIMIT_HTTP_HEADERS);
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *p = req->resource, *slash;

	if (*p++ != '/')
		return reply_error(req, S3_E_INVALID_URI);
	slash = strchrnul(p, '/');
	if (uri_decode(&bucket, p, (size_t)(slash - p), URI_PLUS_LITERAL) < 0 ||
		(*slash && uri_decode(&key, slash + 1, strlen(slash + 1), URI_PLUS_LITERAL) < 0))
		return reply_error(req, buf_failed(&bucket) || buf_failed(&key) ? S3_E_SLOW_DOWN
										: S3_E_INVALID_URI);
	if (bucket.len >= sizeof(req->bucket) || (!bucket.len && key.len))
		return reply_error(req, S3_E_INVALID_BUCKET_NAME);
	if (bucket.len && s3_bucket_problem(bucket.data))
		return reply_errorf(req, S3_E_INVALID_BUCKET_NAME, "The bucket name %s",
			s3_bucket_problem(bucket.data));
	snprintf(req->bucket, sizeof(req->bucket), "%s", buf_str(&bucket));
	if (!key.len)
		return true;
	if (key.len > LIMIT_S3_KEY)
		return reply_error(req, S3_E_KEY_TOO_LONG);
	if (s3_key_problem(key.data, key.len))
		return reply_errorf(
			req, S3_E_INVALID_URI, "The key %s", s3_key_problem(key.data, key.len));
	req->key = request_strdup(req, key.data);
	req->key_len = key.len;
	if (!req->key)
		reply_error(req, S3_E_SLOW_DOWN);
	return req->key != NULL;
}

static bool has_body(const struct request *req)
{
	const char *length = request_header(req, "content-length");

	return request_header(req, "transfer-encoding") || (length && strcmp(length, "0") != 0);
}

/* --- the steps ------------------------------------------------------------------------------- */

static enum MHD_Result send_reply(struct request *req)
{
	enum MHD_Result sent;

	cors_complete(req);
	/* If out of memory, a parameter may have been treated as absent, so the reply may be
	 * wrong. */
	if (req->no_memory && req->status < MHD_HTTP_INTERNAL_SERVER_ERROR)
		reply_error(req, S3_E_SLOW_DOWN);
	if (!req->response) /* out of memory */
		return MHD_NO;
	if (request_is_leaving(req))
		reply_header(req, "Connection", "close");
	req->replied_ns = clock_monotonic_ns();
	sent = MHD_queue_response(req->connection, req->status, req->response);
	MHD_destroy_response(req->response);
	req->response = NULL;
	return sent;
}

/* Reads and drops the body before the reply, so that the connection stays open. */
static enum MHD_Result skip_body(struct request *req, uint64_t limit)
{
	req->phase = REQUEST_DISCARD;
	req->discard_limit = limit;
	return MHD_YES;
}

/*
 * A rejection that is sent before the body was read makes libmicrohttpd close the connection, and a
 * client that is still sending may never see the reply. So the body is read and dropped, unless the
 * client waits for "100 Continue" (then the client sends no body) or the body is very long.
 */
static enum MHD_Result refuse(struct request *req)
{
	const char *expect = request_header(req, "expect");
	const char *length = request_header(req, "content-length");
	uint64_t n = 0;

	if (!has_body(req) || (expect && strcasecmp(expect, "100-continue") == 0))
		return send_reply(req);
	if (length && str_to_u64(length, 0, UINT64_MAX, &n) && n > LIMIT_SERVER_DISCARD)
		return send_reply(req);
	return skip_body(req, LIMIT_SERVER_DISCARD);
}

/*
 * libmicrohttpd uses edge-triggered epoll, and waits for another edge after a short read. If the
 * end of the stream arrived together with the last bytes, no other edge follows, and an incomplete
 * body stays until the connection times out. Shutting down the direction that has ended triggers an
 * edge.
 */
static void notice_end_of_stream(struct request *req)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	char c;

	if (info && recv(info->connect_fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		shutdown(info->connect_fd, SHUT_RD);
}

/* Replies and closes the connection, because the end of the request is unknown. */
static enum MHD_Result cut_off(struct request *req)
{
	reply_header(req, "Connection", "close");
	return send_reply(req);
}

/* Verifies the sender, unless the signature is in the body. Sets the reply and returns false on
 * failure. */
static bool identify(struct request *req)
{
	if (request_is_form(req) || query_is(req))
		return true;
	if (!request_authenticate(req))
		return false;
	if (!req->anonymous)
		request_sender_is_known(req);
	return true;
}

static enum MHD_Result begin(struct request *req, const char *method, const char *version)
{
	struct server *server = req->server;
	int n;

	req->seen = true;
	request_has_begun(req);
	atomic_fetch_add(&server->active, 1);
	atomic_store(&server->last_activity, req->begun_ns);
	req->method = method;
	req->head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
	n = MHD_get_connection_values(req->connection, MHD_HEADER_KIND, NULL, NULL);
	if (n > REQUEST_HEADERS_MAX) {
		reply_errorf(req, S3_E_INVALID_REQUEST, "The request has more than %d header lines",
			REQUEST_HEADERS_MAX);
		return cut_off(req);
	}
	MHD_get_connection_values(req->connection, MHD_HEADER_KIND, add_header, req);
	if (!framing_check(req, version))
		return cut_off(req);
	if (!headers_join(req) || !request_find_resource(req))
		return refuse(req);
	if (strcmp(method, MHD_HTTP_METHOD_OPTIONS) == 0) {
		cors_preflight(req); /* a browser does not sign this request */
		return skip_body(req, LIMIT_SERVER_IGNORED_BODY);
	}
	if (!identify(req) || !split_path(req))
		return refuse(req);
	request_route(req);
	if (request_replied(req))
		return refuse(req);
	req->phase = REQUEST_BODY;
	if (has_body(req))
		notice_end_of_stream(req);
	return MHD_YES;
}

static enum MHD_Result take_data(struct request *req, const char *data, size_t *len)
{
	if (req->phase == REQUEST_DISCARD) {
		if (*len > req->discard_limit)
			return MHD_NO;
		req->discard_limit -= *len;
	} else if (!body_feed(req, data, *len)) {
		req->phase = REQUEST_DISCARD;
		req->discard_limit = LIMIT_SERVER_DISCARD;
		body_release(req);
		request_let_go(req);
	}
	*len = 0;
	if (req->phase == REQUEST_DISCARD || !body_is_whole(req))
		notice_end_of_stream(req);
	return MHD_YES;
}

static enum MHD_Result finish(struct request *req)
{
	if (req->phase == REQUEST_BODY) {
		req->phase = REQUEST_READY;
		/* If finish() suspends the request, another thread may use `req` from then on:
		 * only `phase` may be read after the call. */
		if (body_finish(req) && (!has_body(req) || access_check_again(req)))
			req->finish(req);
		else
			body_release(req);
		if (req->phase == REQUEST_WAITING)
			return MHD_YES;
	} else if (req->phase == REQUEST_WAITING) {
		req->phase = REQUEST_READY;
		if (req->after)
			req->after(req);
	}
	return send_reply(req);
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *connection, const char *url,
	const char *method, const char *version, const char *data, size_t *len, void **con_cls)
{
	struct request *req = *con_cls;

	(void)cls;
	(void)connection;
	(void)url;
	if (!req) /* out of memory */
		return MHD_NO;
	if (req->phase == REQUEST_NEW)
		return begin(req, method, version);
	if (*len)
		return take_data(req, data, len);
	return finish(req);
}
