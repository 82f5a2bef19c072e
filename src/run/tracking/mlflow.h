/*
 * Requests to a server of MLflow, and its replies, as pure functions.
 *
 *	_cleanup_free_ char *body = mlflow_search_body("1", "0a1b2c…");
 *	... POST it to /api/2.0/mlflow/runs/search ...
 *	r = mlflow_read_found(reply.data, reply.len, &found, err);
 *
 * A reply is untrusted: its ids become variables and parts of links, so they are checked.
 */
#ifndef RUN_TRACKING_MLFLOW_H
#define RUN_TRACKING_MLFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
struct penstock_error;

#define MLFLOW_ID_SIZE 65 /* size of the id of an experiment or a run, with the NUL */
/* Tags of a run of MLflow. The first two are for users: the run of penstock, and the attempt at
 * which it last started from scratch. The third is an id by which a later attempt finds the run. */
#define MLFLOW_TAG_RUN	   "penstock.run"
#define MLFLOW_TAG_BEGAN   "penstock.began"
#define MLFLOW_TAG_TRACKED "penstock.tracked"

struct mlflow_tags {
	const char *run;
	int began;
	const char *tracked;
};

/* A user for basic authentication, or a token; each is NULL if there is none. */
struct mlflow_login {
	char *user, *password, *token; /* owned */
};
void mlflow_login_release(struct mlflow_login *login);

/* Return a body in JSON, or NULL if out of memory; free() it. */
char *mlflow_experiment_body(const char *name);
char *mlflow_search_body(const char *experiment, const char *tracked);
char *mlflow_create_body(
	const char *experiment, const char *name, int64_t start_ms, const struct mlflow_tags *tags);
/* `end_ms` is 0 for a run that has not ended. */
char *mlflow_update_body(const char *run, const char *status, int64_t end_ms);
/* Returns the tags as the value of $MLFLOW_RUN_CONTEXT, with which a client tags a run that it
 * makes itself. */
char *mlflow_context(const struct mlflow_tags *tags);

int mlflow_read_experiment(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err);
/* Reads the reply to the creation of a run. */
int mlflow_read_run(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err);
/* Reads the first run in the reply to a search. `id` is "" if there is no run. */
int mlflow_read_found(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err);

struct mlflow_point {
	int64_t step, time_ms; /* wall clock; 0 if it is missing or invalid */
	double value; /* may be infinite or NaN */
};
/* Receives a point of the metric `name`. Returns 0, or a negative code that ends the reading. */
typedef int (*mlflow_point_fn)(void *cookie, const char *name, const struct mlflow_point *point);
/* Reads the last point of each metric in the reply to runs/get. Skips invalid points. */
int mlflow_read_last(
	const char *text, size_t len, mlflow_point_fn fn, void *cookie, struct penstock_error *err);
/* Reads a page of the history of a metric. `next` gets the token of the next page; nothing on the
 * last page. */
int mlflow_read_history(const char *text, size_t len, mlflow_point_fn fn, void *cookie,
	struct buf *next, struct penstock_error *err);

/* Returns true for a refusal with this error code, such as "RESOURCE_DOES_NOT_EXIST". */
bool mlflow_refused_with(const char *text, size_t len, const char *code);

/* Splits off the user of "http://USER:PASSWORD@HOST/BASE". `base` gets "http://HOST/BASE" without
 * slashes at its end; `login` is unchanged without a user. Returns -1 if out of memory. */
int mlflow_split_uri(const char *uri, struct buf *base, struct mlflow_login *login);
/* Appends the value of the header Authorization; nothing without a login. */
int mlflow_authorization(const struct mlflow_login *login, struct buf *out);
#define MLFLOW_PAGE "/#/experiments/" /* begins the part of a page's address after the server */
/* Appends the address of the run's page. */
void mlflow_link(const char *base, const char *experiment, const char *run, struct buf *out);

#endif
