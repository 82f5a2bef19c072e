#include "run/tracking/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "net/http/http.h"
#include "s3/uri.h"

enum {
	ATTEMPTS = 3,
	CONNECT_MS = 5000,
	/* Reads need fewer attempts: the mirror (mirror.h) reads again later. */
	READ_ATTEMPTS = 2,
	PAGE = 5000, /* points of a reply; servers allow 25,000 */
};

/* The requests of one call. */
struct mlflow_talk {
	const struct mlflow_server *server;
	struct http_engine *engine;
	struct buf authorization;
	struct buf reply; /* the body of the last reply, even if it is an error */
	int64_t deadline_ms;
};

static void talk_release(struct mlflow_talk *talk)
{
	http_engine_free(talk->engine);
	buf_release(&talk->authorization);
	buf_release(&talk->reply);
}

static int talk_begin(
	struct mlflow_talk *talk, const struct mlflow_server *server, struct penstock_error *err)
{
	*talk = (struct mlflow_talk){
		.server = server,
		.authorization = BUF_INIT(LIMIT_STRING),
		.reply = BUF_INIT(LIMIT_TRACKING_REPLY),
		.deadline_ms = clock_monotonic_ms() + server->patience_ms,
	};
	if (mlflow_authorization(server->login, &talk->authorization) < 0)
		return error_memory(err);
	return http_engine_new(&talk->engine, &(struct http_engine_options){0}, err);
}

/* Sends a request. Takes ownership of `owned`, the body, which is NULL for a GET. A creation is not
 * repeated: the server may have created the run although its reply was lost, and would create a
 * second run. */
static int ask(struct mlflow_talk *talk, const char *path, char *owned, unsigned attempts,
	struct penstock_error *err)
{
	_cleanup_free_ char *body = owned;
	_cleanup_free_ char *url = str_printf("%s/api/2.0/mlflow/%s", talk->server->base, path);
	_cleanup_free_ char *what = str_printf("MLflow at %s", talk->server->base);
	_cleanup_(http_reply_release) struct http_reply reply = HTTP_REPLY_INIT;
	struct http_request request = {
		.method = body ? "POST" : "GET",
		.url = url,
		.sink = HTTP_SINK_TO_BUF(&talk->reply),
		.deadline_ms = talk->deadline_ms,
		.connect_timeout_ms = CONNECT_MS,
		.max_attempts = attempts,
		.cancel = talk->server->cancel,
		.what = what,
	};
	int r = 0;

	buf_clear(&talk->reply);
	if (body)
		request.source = (struct http_source){
			.kind = HTTP_SOURCE_MEMORY, .data = body, .length = strlen(body)};
	if (!url || !what ||
		(body && http_request_header(&request, "Content-Type", "application/json") < 0) ||
		(talk->authorization.len && http_request_header(&request, "Authorization",
						    buf_str(&talk->authorization)) < 0))
		r = error_memory(err);
	if (r == 0)
		r = http_perform(talk->engine, &request, &reply, err);
	strlist_release(&request.headers);
	if (r < 0) {
		buf_clear(&talk->reply);
		buf_add(&talk->reply, reply.error_body.data, reply.error_body.len);
	}
	return r;
}

static int post(struct mlflow_talk *talk, const char *path, char *body, unsigned attempts,
	struct penstock_error *err)
{
	return body ? ask(talk, path, body, attempts, err) : error_memory(err);
}

static bool refused_with(const struct mlflow_talk *talk, const char *code)
{
	return mlflow_refused_with(buf_str(&talk->reply), talk->reply.len, code);
}

/* ---- the experiment ---- */

static int get_experiment(struct mlflow_talk *talk, const char *name, struct mlflow_place *place,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	int r;

	buf_add_str(&path, "experiments/get-by-name?");
	uri_query_add(&path, "experiment_name", name);
	if (buf_failed(&path))
		return buf_error(&path, "the name of the experiment", err);
	r = ask(talk, buf_str(&path), NULL, ATTEMPTS, err);
	return r < 0 ? r
		     : mlflow_read_experiment(
			       buf_str(&talk->reply), talk->reply.len, place->experiment, err);
}

static int find_experiment(struct mlflow_talk *talk, const char *name, struct mlflow_place *place,
	struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r = get_experiment(talk, name, place, &e);

	if (r == 0)
		return 0;
	/* A 404 without this code comes from another server. */
	if (!refused_with(talk, "RESOURCE_DOES_NOT_EXIST"))
		return error_move(err, &e);
	penstock_error_release(&e);
	r = post(talk, "experiments/create", mlflow_experiment_body(name), 1, &e);
	if (r == 0)
		return mlflow_read_experiment(
			buf_str(&talk->reply), talk->reply.len, place->experiment, err);
	/* Another run may have created the experiment meanwhile. */
	if (!refused_with(talk, "RESOURCE_ALREADY_EXISTS"))
		return error_move(err, &e);
	return get_experiment(talk, name, place, err);
}

/* ---- the run ---- */

static int set_status(struct mlflow_talk *talk, const char *run, const char *status, int64_t end_ms,
	struct penstock_error *err)
{
	return post(talk, "runs/update", mlflow_update_body(run, status, end_ms), ATTEMPTS, err);
}

static int create(struct mlflow_talk *talk, const struct mlflow_wanted *wanted,
	struct mlflow_place *place, struct penstock_error *err)
{
	int r = post(talk, "runs/create",
		mlflow_create_body(place->experiment, wanted->name, clock_wall_ns() / NS_PER_MS,
			&wanted->tags),
		1, err);

	return r < 0 ? r : mlflow_read_run(buf_str(&talk->reply), talk->reply.len, place->run, err);
}

static int find_run(struct mlflow_talk *talk, const struct mlflow_wanted *wanted,
	struct mlflow_place *place, struct penstock_error *err)
{
	int r = 0;

	if (wanted->continues)
		r = post(talk, "runs/search",
			mlflow_search_body(place->experiment, wanted->tags.tracked), ATTEMPTS, err);
	if (r == 0 && wanted->continues)
		r = mlflow_read_found(buf_str(&talk->reply), talk->reply.len, place->run, err);
	if (r < 0)
		return r;
	return *place->run ? set_status(talk, place->run, "RUNNING", 0, err)
			   : create(talk, wanted, place, err);
}

int mlflow_server_find(const struct mlflow_server *server, const struct mlflow_wanted *wanted,
	struct mlflow_place *place, struct penstock_error *err)
{
	_cleanup_(talk_release) struct mlflow_talk talk = {0};
	struct mlflow_place found = {0};
	int r = talk_begin(&talk, server, err);

	if (r == 0)
		r = find_experiment(&talk, wanted->experiment, &found, err);
	if (r == 0)
		r = find_run(&talk, wanted, &found, err);
	/* Keep the run that was found, even if its status could not be set to running: without its
	 * id, a step would make a second run. */
	if (*found.run)
		*place = found;
	return r;
}

int mlflow_server_set_status(const struct mlflow_server *server, const char *run,
	const char *status, int64_t end_ms, struct penstock_error *err)
{
	_cleanup_(talk_release) struct mlflow_talk talk = {0};
	int r = talk_begin(&talk, server, err);

	return r < 0 ? r : set_status(&talk, run, status, end_ms, err);
}

/* ---- metrics ---- */

int mlflow_talk_new(
	struct mlflow_talk **out, const struct mlflow_server *server, struct penstock_error *err)
{
	struct mlflow_talk *talk = calloc(1, sizeof(*talk));
	int r = talk ? talk_begin(talk, server, err) : error_memory(err);

	if (r < 0) {
		mlflow_talk_freep(&talk);
		return r;
	}
	*out = talk;
	return 0;
}

void mlflow_talk_freep(struct mlflow_talk **talk)
{
	if (*talk)
		talk_release(*talk);
	free(*talk);
}

static int get(struct mlflow_talk *talk, const struct buf *path, struct penstock_error *err)
{
	return buf_failed(path) ? buf_error(path, "a request to MLflow", err)
				: ask(talk, buf_str(path), NULL, READ_ATTEMPTS, err);
}

int mlflow_talk_last(struct mlflow_talk *talk, const char *run, mlflow_point_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_STRING);
	int r;

	buf_add_str(&path, "runs/get?");
	uri_query_add(&path, "run_id", run);
	r = get(talk, &path, err);
	return r < 0 ? r
		     : mlflow_read_last(buf_str(&talk->reply), talk->reply.len, fn, cookie, err);
}

int mlflow_talk_history(struct mlflow_talk *talk, const struct mlflow_page *page,
	mlflow_point_fn fn, void *cookie, struct buf *next, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(4 * LIMIT_STRING);
	int r;

	buf_printf(&path, "metrics/get-history?max_results=%d", PAGE);
	uri_query_add(&path, "run_id", page->run);
	uri_query_add(&path, "metric_key", page->metric);
	if (*page->token)
		uri_query_add(&path, "page_token", page->token);
	r = get(talk, &path, err);
	if (r < 0 && *page->token && refused_with(talk, "INVALID_PARAMETER_VALUE"))
		return error_set(
			err, PENSTOCK_E_INVALID, "the server rejects the token of the next page");
	return r < 0 ? r
		     : mlflow_read_history(
			       buf_str(&talk->reply), talk->reply.len, fn, cookie, next, err);
}
