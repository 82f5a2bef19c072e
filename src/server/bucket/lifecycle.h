/*
 * The lifecycle of buckets: a thread that deletes versions and uploads when they expire under the
 * rules of their bucket. The thread walks over a bucket in small steps, and holds no transaction
 * between two steps.
 *
 *	r = lifecycle_start(&lifecycle, store, S3_DAY_NS, err);
 *	...
 *	lifecycle_wake(lifecycle); // rules have changed: a walk a second later
 *	...
 *	lifecycle_stop(lifecycle); // before store_close()
 */
#ifndef SERVER_BUCKET_LIFECYCLE_H
#define SERVER_BUCKET_LIFECYCLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct lifecycle;
struct penstock_error;
struct s3_lifecycle;
struct store;

/* Name of a bucket's lifecycle configuration in the store. */
#define LIFECYCLE_CONFIG "lifecycle"

/* `day_ns` is the length of a day, which only tests change. */
int lifecycle_start(
	struct lifecycle **out, struct store *store, int64_t day_ns, struct penstock_error *err);
/* Returns at once. `lifecycle` may be NULL. */
void lifecycle_wake(struct lifecycle *lifecycle);
/* Ends the thread; a walk in progress ends at its next step. `lifecycle` may be NULL. */
void lifecycle_stop(struct lifecycle *lifecycle);

/* One walk over a bucket; tests use it, too. */
struct lifecycle_walk {
	struct store *store;
	const char *bucket;
	const struct s3_lifecycle *rules;
	int64_t day_ns, now_ns;
	const atomic_bool *stop;
	/* The configuration that contains the rules; may be NULL. The walk ends when the
	 * configuration of the bucket differs from this text. */
	const char *text;
	size_t text_len;
	uint64_t generation; /* generation of the store at the last comparison */
	size_t n_versions, n_uploads; /* results: numbers of deleted versions and uploads */
};
int lifecycle_walk(struct lifecycle_walk *walk, struct penstock_error *err);

#endif
