/* Metrics that a run of this home has logged to a server of MLflow. */
#ifndef CLI_HISTORY_TRACKED_H
#define CLI_HISTORY_TRACKED_H

struct artifacts_place;
struct metrics;
struct penstock_error;
struct records;

/*
 * Adds them as "mlflow/NAME". Does nothing for a run without `tracking.mlflow`. A server that does
 * not reply only causes a warning; the points that were read earlier are added.
 *
 * The records of this home name the server and its run, never the state of a run in a bucket:
 * another person may have written that, and could make this machine send requests to any address.
 */
int tracked_read_metrics(struct metrics *metrics, const struct artifacts_place *place,
	const char *home, struct records *records, struct penstock_error *err);

#endif
