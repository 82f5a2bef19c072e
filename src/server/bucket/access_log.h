/*
 * Server access logs: one line for each request to a bucket that has logging. Lines are delivered
 * in batches, as objects in the target bucket of the log.
 *
 *	r = access_log_start(&logs, store, "000000000000", 60000, err);
 *	...
 *	if (access_log_any(logs))
 *		access_log_add(logs, "bucket", &record);
 *	...
 *	access_log_stop(logs); // delivers the waiting lines
 *
 * Lines wait in memory, so a crash loses the lines of the last interval.
 */
#ifndef SERVER_BUCKET_ACCESS_LOG_H
#define SERVER_BUCKET_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

struct access_log;
struct penstock_error;
struct s3_log_record;
struct store;

/* Name of a bucket's logging configuration in the store. */
#define LOGGING_CONFIG "logging"

/* `account` is the number of the account that owns buckets without a stored owner. The keys of
 * delivered objects may contain the number of the owner. */
int access_log_start(struct access_log **out, struct store *store, const char *account,
	int64_t interval_ms, struct penstock_error *err);
/* Returns true if any bucket has logging; false if `log` is NULL. */
bool access_log_any(struct access_log *log);
/* Returns true if the bucket has logging; false if `log` is NULL. */
bool access_log_has(struct access_log *log, const char *bucket);
/* Applies a change of a bucket's configuration, as configs_update() does; `log` may be NULL. */
bool access_log_update(struct access_log *log, const char *bucket);
/* Adds a request to the log of its bucket, if the bucket has a log. A line that does not fit in
 * memory is dropped, and counted in a warning. */
void access_log_add(struct access_log *log, const char *bucket, const struct s3_log_record *record);
/* Delivers the waiting lines. `log` may be NULL. */
void access_log_stop(struct access_log *log);

#endif
