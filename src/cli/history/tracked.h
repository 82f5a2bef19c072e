/* Metrics that a run of this home has logged to a server of MLflow. */
#ifndef CLI_HISTORY_TRACKED_H
#define CLI_HISTORY_TRACKED_H

struct artifacts_place;
struct metrics;
struct penstock_error;
struct records;

/*
 * Adds the metrics as "mlflow/NAME". Does nothing for a run without `tracking.mlflow`. If the
 * server does not reply, only warns, and adds the points that earlier calls have read.
 *
 * The server and its run are taken only from the records of this home, never from the state of a
 * run in a bucket. Another person may have written the state, and could make this machine send
 * requests to any address.
 */
int tracked_read_metrics(struct metrics *metrics, const struct artifacts_place *place,
	const char *home, struct records *records, struct penstock_error *err);

#endif
