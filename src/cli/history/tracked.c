#include "cli/history/tracked.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/history/artifacts_place.h"
#include "metrics/read.h"
#include "records/layout.h"
#include "run/tracking/mirror.h"
#include "run/tracking/tracking.h"
#include "s3/json.h"

enum { PATIENCE_MS = 20000 };

struct attempts {
	/* MLflow's run of the last attempt that has one; "" if no attempt has one */
	char run[MLFLOW_ID_SIZE];
	char *base; /* address of that run's server; NULL if it is a secret */
	int64_t started_ms, ended_ms; /* times of the last attempt */
};

static void attempts_release(struct attempts *seen)
{
	free(seen->base);
}

static int see_attempt(void *cookie, const struct records_attempt *attempt)
{
	struct attempts *seen = cookie;
	json_auto_t *root = attempt->provenance ? json_loads(attempt->provenance, 0, NULL) : NULL;
	const json_t *one;
	size_t i;

	seen->started_ms = attempt->started_ns / NS_PER_MS;
	seen->ended_ms = attempt->ended_ns / NS_PER_MS;
	json_array_foreach (json_object_get(root, "tracking"), i, one) {
		const char *url = s3_json_text(one, "url"), *page = strstr(url, MLFLOW_PAGE);

		/* An attempt that could not reach the server has no run on the server. */
		if (strcmp(s3_json_text(one, "tracker"), "mlflow") != 0 ||
			!*s3_json_text(one, "run"))
			continue;
		snprintf(seen->run, sizeof(seen->run), "%s", s3_json_text(one, "run"));
		free(seen->base);
		seen->base = page ? strndup(url, (size_t)(page - url)) : NULL;
	}
	return 0;
}

static int add_file(void *cookie, const char *name, const char *file, struct penstock_error *err)
{
	return metrics_read_mlflow(cookie, file, "mlflow", name, err);
}

static int update(struct mlflow_mirror *mirror, const struct workflow *workflow,
	const struct attempts *seen, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf base = BUF_INIT(LIMIT_STRING);
	_cleanup_(mlflow_login_release) struct mlflow_login login = {0};
	int r = tracking_login(workflow, seen->base, &base, &login, err);

	return r < 0 ? r
		     : mlflow_mirror_update(mirror,
			       &(struct mlflow_server){.base = buf_str(&base),
				       .login = &login,
				       .patience_ms = PATIENCE_MS},
			       seen->started_ms, seen->ended_ms, err);
}

int tracked_read_metrics(struct metrics *metrics, const struct artifacts_place *place,
	const char *home, struct records *records, struct penstock_error *err)
{
	_cleanup_(mlflow_mirror_release) struct mlflow_mirror mirror = MLFLOW_MIRROR_INIT;
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *dir = NULL;
	_cleanup_(attempts_release) struct attempts seen = {0};
	int r;

	if (!place->workflow->tracking.mlflow.given)
		return 0;
	r = records_attempts(records, place->id, see_attempt, &seen, err);
	if (r < 0 || !*seen.run)
		return r;
	dir = run_path(home, place->id, RUN_FILE_TRACKED);
	r = dir ? mlflow_mirror_open(&mirror, dir, seen.run, &e) : error_memory(&e);
	if (r == 0)
		r = update(&mirror, place->workflow, &seen, &e);
	if (r < 0)
		log_warn("cannot read the metrics of the tracked run: %s", e.message);
	return mlflow_mirror_each(&mirror, add_file, metrics, err);
}
