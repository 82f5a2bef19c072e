/*
 * Uploads a growing file to the output, and completes the object when the attempt ends. Such files
 * are the usage of the steps and, with `enableLogging`, the log. The object is replaced whole every
 * few seconds (the log) or minutes (the usage) while the file grows, less often the longer one
 * upload takes, so that the uploads of a big log take at most a twentieth of the time.
 *
 *	log_upload_start(&upload, &(struct log_upload_target){.client = s3, .bucket = bucket,
 *		.key = key, .path = path, .interval_ms = 2000}, err);
 *	log_upload_finish(upload, &cancel, err);	// sends what is missing; frees
 */
#ifndef RUN_PUBLISH_LOG_H
#define RUN_PUBLISH_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct log_upload;
struct object_client;
struct penstock_error;

struct log_upload_target {
	struct object_client *client; /* borrowed until log_upload_finish(), as is the bucket */
	const char *bucket;
	char *key; /* owned by the upload, as is the path; NULL if the caller is out of memory */
	char *path; /* path of a file that only grows */
	int64_t interval_ms;
	bool ungated; /* sent even if another owner has the run */
	bool warns; /* warns of the first failure; log_upload_finish() returns the last failure */
};
int log_upload_start(struct log_upload **out, const struct log_upload_target *target,
	struct penstock_error *err);
/* Frees `upload` even on failure. `upload` may be NULL. */
int log_upload_finish(
	struct log_upload *upload, const atomic_int *cancel, struct penstock_error *err);

#endif
