/*
 * Reads the metrics of all files of an output.
 *
 *	struct metrics metrics = {0};
 *
 *	r = metrics_read_dir(&metrics, layout.output, note, cookie, err);
 *	r = metrics_read_store(&metrics, object_at(client, bucket, "run7/"), &cancel, note, cookie,
 *		err);
 */
#ifndef METRICS_READ_H
#define METRICS_READ_H

#include <stdatomic.h>

#include "metrics/metrics.h"
#include "transfer/objects.h"

/* Receives the first problem of each file; the other files are still read. May be NULL. */
typedef void (*metrics_note_fn)(void *cookie, const char *path, const char *problem);

/* Reads all files below `dir`. Skips symbolic links. A missing directory counts as empty. */
int metrics_read_dir(struct metrics *metrics, const char *dir, metrics_note_fn note, void *cookie,
	struct penstock_error *err);
/* Reads one file as `path`, which selects its format and the names of its series. */
int metrics_read_file(struct metrics *metrics, const char *file, const char *path,
	metrics_note_fn note, void *cookie, struct penstock_error *err);
/* Reads a file in the form of MLflow's file store as the series GROUP/NAME. */
int metrics_read_mlflow(struct metrics *metrics, const char *file, const char *group,
	const char *name, struct penstock_error *err);
/* Reads all objects below `at`, whose key ends with a slash or is "". Skips penstock's own
 * state. */
int metrics_read_store(struct metrics *metrics, struct object_ref at, const atomic_int *cancel,
	metrics_note_fn note, void *cookie, struct penstock_error *err);
/* Reads one object as `path`. */
int metrics_read_object(struct metrics *metrics, struct object_ref at, const char *path,
	const atomic_int *cancel, metrics_note_fn note, void *cookie, struct penstock_error *err);

#endif
