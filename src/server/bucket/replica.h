/*
 * Sends one version, or a delete marker, to a destination.
 *
 *	if (replica_send(store, target, &version, err) == REPLICA_SENT)
 *		...
 */
#ifndef SERVER_BUCKET_REPLICA_H
#define SERVER_BUCKET_REPLICA_H

#include <stdbool.h>

struct penstock_error;
struct store;
struct store_object;
struct target;

struct replica_version {
	const char *bucket, *key, *version;
	bool marker; /* a delete marker */
	/* The stored header whose new value is sent; NULL to send the version. */
	const char *note;
	const char *class; /* storage class at the destination; NULL for the version's class */
};
enum replica_outcome {
	REPLICA_SENT, /* the destination has the version, or there is nothing to send for `note` */
	/* the version no longer exists, or `note` is set and the version itself was given up */
	REPLICA_GONE,
	REPLICA_REFUSED, /* the destination refuses the version, or the version cannot be read */
	REPLICA_UNSENT, /* a later attempt may succeed, for example if the destination is down */
};
/* `err` is set after a refusal or a failure. */
enum replica_outcome replica_send(struct store *store, const struct target *target,
	const struct replica_version *version, struct penstock_error *err);

/* Returns false if the object's checksum is not composite, and the checksums of its parts do not
 * combine to it, for example after a copy. The MD5s of the parts are then sent instead. */
bool replica_has_sums(struct store_object *object);

#endif
