/*
 * A server of MLflow, with the MLflow run to which all attempts of a penstock run report.
 *
 *	struct mlflow_server server = {.base = "http://127.0.0.1:5000", .login = &login};
 *	struct mlflow_place place;
 *
 *	r = mlflow_server_find(&server, &(struct mlflow_wanted){ ... }, &place, err);
 *	...
 *	r = mlflow_server_set_status(&server, place.run, "FINISHED", end_ms, err);
 */
#ifndef RUN_TRACKING_SERVER_H
#define RUN_TRACKING_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "run/tracking/mlflow.h"

struct mlflow_server {
	const char *base; /* "http://HOST/BASE" without a user; all members are borrowed */
	const struct mlflow_login *login;
	const atomic_int *cancel; /* may be NULL */
	int64_t patience_ms; /* time for all requests of one call together */
};

struct mlflow_wanted {
	const char *experiment; /* name of the experiment */
	const char *name; /* name of the run, for display */
	struct mlflow_tags tags;
	bool continues; /* an earlier attempt may have made the run */
};

/* Ids at the server. */
struct mlflow_place {
	char experiment[MLFLOW_ID_SIZE];
	char run[MLFLOW_ID_SIZE];
};

/* Finds the run and sets its state to running, or creates a run; creates the experiment if it is
 * missing. On failure `place` may have the id of a run that was found. */
int mlflow_server_find(const struct mlflow_server *server, const struct mlflow_wanted *wanted,
	struct mlflow_place *place, struct penstock_error *err);
/* Sets the status of a run. `end_ms` is 0 if the run has not ended. */
int mlflow_server_set_status(const struct mlflow_server *server, const char *run,
	const char *status, int64_t end_ms, struct penstock_error *err);

/* Requests that share a connection and the `patience_ms` of the server. The struct of the server
 * must outlive this struct. */
struct mlflow_talk;
int mlflow_talk_new(
	struct mlflow_talk **out, const struct mlflow_server *server, struct penstock_error *err);
void mlflow_talk_freep(struct mlflow_talk **talk);
/* Reads the last point of each metric of a run. */
int mlflow_talk_last(struct mlflow_talk *talk, const char *run, mlflow_point_fn fn, void *cookie,
	struct penstock_error *err);
struct mlflow_page {
	const char *run, *metric;
	const char *token; /* "" for the first page */
};
/* Reads a page of the history of a metric. `next` gets the token of the next page; nothing on the
 * last page. Returns -PENSTOCK_E_INVALID if the server refuses the token. */
int mlflow_talk_history(struct mlflow_talk *talk, const struct mlflow_page *page,
	mlflow_point_fn fn, void *cookie, struct buf *next, struct penstock_error *err);

#endif
