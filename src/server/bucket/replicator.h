/*
 * Replication of buckets: an observer of the store adds an event to a queue in the transaction of a
 * new version, and threads send the version to the destinations of the rules that apply to it. The
 * versions of a key are sent in their order, by the same thread. Each destination has
 * LIMIT_REPLICATION_LANES threads, so that no destination waits for another destination.
 *
 * An event has the text "SIZE KIND BUCKET VERSION CLASS KEY": KIND is "v", "m" for a delete marker,
 * or "n" for tags or a lock that have changed; CLASS is the storage class at the destination ("-"
 * for the class of the version), or the name of the header that has changed. The event is removed
 * when the destination has the version; the same transaction sets the new state of the version.
 *
 *	r = replicator_start(&replicator, store, "replication.json", 1000, err);
 *	...
 *	if (replicator_has(replicator, "backup", bucket.owner))
 *	...
 *	replicator_stop(replicator);
 */
#ifndef SERVER_BUCKET_REPLICATOR_H
#define SERVER_BUCKET_REPLICATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct replicator;
struct store;

/* Name of a bucket's replication configuration in the store. */
#define REPLICATION_CONFIG "replication"

/* The request header with the name of a version that one penstock store sends to another. Every
 * signature covers this header, because its name begins with "x-amz-". */
#define REPLICA_HEADER "x-amz-penstock-replica"
/* Prefix of the stored headers with the state of a version at a destination. The name of the
 * destination follows the prefix. */
#define REPLICATION_HEADER    STORE_REPLICATION_HEADER
#define REPLICATION_PENDING   STORE_REPLICATION_PENDING
#define REPLICATION_COMPLETED "COMPLETED"
#define REPLICATION_REFUSED                                                                        \
	STORE_REPLICATION_REFUSED /* pending after a refusal; replies say "FAILED" */
#define REPLICATION_FAILED "FAILED" /* the version is not sent any more */

/* `targets` is the path of a file (server/bucket/targets.h), or NULL if there are no destinations.
 * A destination that fails is tried again after `retry_ms`, and then after longer pauses. */
int replicator_start(struct replicator **out, struct store *store, const char *targets,
	int64_t retry_ms, struct penstock_error *err);
/* Applies a change of a bucket's configuration, as configs_update() does; `replicator` may be
 * NULL. */
bool replicator_update(struct replicator *replicator, const char *bucket);
/* Returns true if the operator has named the destination `name` for the account `owner`, which may
 * be "" for ACCOUNT_FIRST. */
bool replicator_has(const struct replicator *replicator, const char *name, const char *owner);
struct replicator_stat {
	const char *name;
	size_t waiting; /* number of waiting versions; `bytes` is the sum of their sizes */
	uint64_t bytes;
	int64_t lag_ns; /* the age of the oldest version that waits */
	uint64_t sent, failed; /* versions that were sent or given up since the start */
};
/* Gets the statistics of destination `i`. Returns false if there is no such destination, or if
 * `replicator` is NULL. */
bool replicator_stat(struct replicator *replicator, size_t i, struct replicator_stat *out);
/* Ends transfers in progress, whose versions stay in the queue. `replicator` may be NULL. */
void replicator_stop(struct replicator *replicator);

#endif
