/*
 * The experiment trackers of a workflow: MLflow, Weights & Biases, Aim. All attempts that continue
 * one another report to one tracked run.
 *
 *	struct tracking tracking = {0};
 *
 *	r = tracking_begin(&tracking, attempt, &cancel, err);	// before the first step
 *	tracking_environment(&tracking, output, endpoint, &env);	// for each step
 *	char *json = tracking_describe(&tracking);	// for the records
 *	tracking_end(&tracking, "FINISHED");	// "SCHEDULED": a later attempt continues
 *
 * An unavailable tracker does not stop the training code: it only causes a warning.
 */
#ifndef RUN_TRACKING_TRACKING_H
#define RUN_TRACKING_TRACKING_H

#include <stdatomic.h>

#include "base/str.h"
#include "run/tracking/server.h"

struct attempt;
struct buf;
struct workflow;
struct penstock_error;

#define TRACKING_ID_SIZE 25 /* size of an id, with its NUL */

struct tracking {
	const struct attempt *attempt; /* borrowed; NULL before tracking_begin() */
	int began; /* the attempt at which the run last started from scratch; 0 if unknown */
	/* hexadecimal; the same in all attempts that continue attempt `began`, and in no other
	 * run */
	char id[TRACKING_ID_SIZE];
	struct mlflow_place mlflow; /* empty if the server did not reply */
};

/* Finds or makes the run at MLflow. Does nothing without `tracking` in the workflow. Fails only if
 * out of memory or if the records cannot be read. */
int tracking_begin(struct tracking *tracking, const struct attempt *attempt,
	const atomic_int *cancel, struct penstock_error *err);
/* Adds the variables of a step. `output` is the directory as the step sees it; `endpoint` is the S3
 * endpoint of the output's store, or NULL. Returns -1 if out of memory. */
int tracking_environment(const struct tracking *tracking, const char *output, const char *endpoint,
	struct strlist *env);
/* Reads the address of the workflow's MLflow server, without a user, and the login for that server.
 * If the workflow was loaded with `places_only`, the address may be a reference without a value:
 * `recorded` (may be NULL) is then used as the address. Returns -PENSTOCK_E_PERMISSION if a secret
 * is missing. */
int tracking_login(const struct workflow *workflow, const char *recorded, struct buf *base,
	struct mlflow_login *login, struct penstock_error *err);
/* Returns the tracked runs as a JSON array, or NULL if out of memory; free() it. */
char *tracking_describe(const struct tracking *tracking);
/* Sets the status of the run at MLflow. Does nothing if there is no such run. */
void tracking_end(const struct tracking *tracking, const char *status);

#endif
