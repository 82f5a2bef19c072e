/*
 * The destinations of replication, as the operator names them in a file: a JSON array of objects
 * with "name", "endpoint", optionally "bucket" (default: the name), "region" and "account" (the
 * account whose buckets may use the destination; default: ACCOUNT_FIRST), and either
 * "access_key_id" and "secret_access_key" (and "session_token") or "profile". The ARN of a
 * destination is arn:aws:s3:::NAME.
 *
 *	r = targets_read(&targets, "replication.json", &cancel, err);
 *	...
 *	if (targets_find(&targets, "backup") >= 0)
 *		...
 *	targets_release(&targets);
 */
#ifndef SERVER_BUCKET_TARGETS_H
#define SERVER_BUCKET_TARGETS_H

#include <stdatomic.h>
#include <stddef.h>

#include "store/store.h"

struct http_engine;
struct object_client;
struct penstock_error;

#define TARGET_NAME_SIZE 64

struct target {
	char name[TARGET_NAME_SIZE];
	char account[STORE_OWNER_SIZE]; /* number of the account */
	char *bucket;
	struct http_engine *engine; /* not shared, so that no target waits for another target */
	struct object_client *client;
};
struct targets {
	struct target *all;
	size_t n;
};

/* Reads the file, and opens the clients. `path` is NULL if there are no targets. `cancel` ends all
 * requests. Release the targets even after a failure. */
int targets_read(struct targets *out, const char *path, const atomic_int *cancel,
	struct penstock_error *err);
void targets_release(struct targets *targets);
/* Returns the index of a target, or -1 if there is no such target. */
int targets_find(const struct targets *targets, const char *name);

#endif
