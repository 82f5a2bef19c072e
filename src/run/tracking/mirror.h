/*
 * A copy of the metrics that a run has logged to MLflow: a browser that polls the metrics causes no
 * load on the server, and the metrics remain visible while the server does not reply.
 *
 *	#include "base/log.h"
 *
 *	_cleanup_(mlflow_mirror_release) struct mlflow_mirror mirror = MLFLOW_MIRROR_INIT;
 *
 *	r = mlflow_mirror_open(&mirror, dir, "0a1b2c…", err);
 *	if (r == 0 && mlflow_mirror_update(&mirror, &server, started_ms, ended_ms, &e) < 0)
 *		log_warn("cannot read the metrics of the tracked run: %s", e.message);
 *	if (r == 0)
 *		r = mlflow_mirror_each(&mirror, read_file, cookie, err);
 *
 * DIR/index.json describes the copy. DIR/N has the points of one metric, in the form of MLflow's
 * file store: a line "TIMESTAMP_MS VALUE STEP" for each point. A struct that is open holds the
 * lock of the directory.
 */
#ifndef RUN_TRACKING_MIRROR_H
#define RUN_TRACKING_MIRROR_H

#include <jansson.h>
#include <stdint.h>

#include "run/tracking/server.h"

struct mlflow_mirror {
	char *dir;
	int lock;
	json_t *index;
};
#define MLFLOW_MIRROR_INIT                                                                         \
	{                                                                                          \
		.lock = -1                                                                         \
	}

/* Opens the copy, which is empty if the last copy was of another run. Waits for its lock. */
int mlflow_mirror_open(
	struct mlflow_mirror *mirror, const char *dir, const char *run, struct penstock_error *err);
void mlflow_mirror_release(struct mlflow_mirror *mirror);

/*
 * Asks the server for the last point of each metric, and reads the later points of each metric
 * whose last point has changed. For 15 s after a failure, fails with the same message and sends no
 * request. Points that are read before a failure are kept.
 *
 * The last point is the one with the highest step. An attempt that resumes at an earlier step logs
 * points below it, so metrics whose last point is older than `started_ms`, the start of the last
 * attempt, are also read from time to time, and once after `ended_ms` (0 if it has not ended).
 */
int mlflow_mirror_update(struct mlflow_mirror *mirror, const struct mlflow_server *server,
	int64_t started_ms, int64_t ended_ms, struct penstock_error *err);

/* Calls fn for each metric with the file of its points. */
int mlflow_mirror_each(struct mlflow_mirror *mirror,
	int (*fn)(void *cookie, const char *name, const char *file, struct penstock_error *err),
	void *cookie, struct penstock_error *err);

#endif
