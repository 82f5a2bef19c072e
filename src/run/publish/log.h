/*
 * `enableLogging`: uploads the attempt's log to the output, complete after any exit. The object is
 * replaced whole every few seconds while the log grows, less often the longer one upload takes, so
 * that a big log costs at most a twentieth of the time.
 *
 *	log_upload_start(&upload, client, bucket, key, path, err);
 *	log_upload_finish(upload, &cancel, err);	// sends what is missing; frees
 */
#ifndef RUN_PUBLISH_LOG_H
#define RUN_PUBLISH_LOG_H

#include <stdatomic.h>

struct log_upload;
struct object_client;
struct penstock_error;

/* The client, the bucket and the path must outlive the upload. Takes `key`, which is NULL if out of
 * memory. */
int log_upload_start(struct log_upload **out, struct object_client *client, const char *bucket,
	char *key, const char *path, struct penstock_error *err);
/* Frees `upload` also on failure. `upload` may be NULL. */
int log_upload_finish(
	struct log_upload *upload, const atomic_int *cancel, struct penstock_error *err);

#endif
