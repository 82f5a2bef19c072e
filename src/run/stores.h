/*
 * The object stores that a run talks to: one HTTP engine, one client for each `s3` of the workflow,
 * and the embedded store where a workflow asks for it by name.
 *
 *	stores_init(&stores, &embedded_ops, &cancel, err);
 *	stores_open(&stores, &workflow->output.s3, &store, err);
 *	object_head(store->client, store->bucket, "key", &info, err);
 *	stores_release(&stores);	after everything that uses a client has ended
 */
#ifndef RUN_STORES_H
#define RUN_STORES_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/credentials.h"
#include "workflow/model.h"

struct environment_store;

struct http_engine;
struct object_client;
struct penstock_error;

/* Where an embedded store answers. */
struct stores_embedded {
	const char *endpoint_url; /* valid until it is released */
	const char *access_key;
	const char *secret_key;
	void *handle;
};

/* Starting and joining the embedded store is the caller's: run does not stand on the server. */
struct stores_embedded_ops {
	int (*acquire)(void *cookie, struct stores_embedded *out, struct penstock_error *err);
	void (*release)(struct stores_embedded *embedded);
	void *cookie;
};

/*
 * While a run begins, a host that is not there or not ready is waited for, up to $PENSTOCK_NETWORK_PATIENCE
 * seconds without any progress.
 */
struct stores_patience {
	const atomic_int *cancel; /* ends every request, at any time; outlives the stores */
	/* One line for people; from any thread. NULL: nothing is waited for. */
	void (*waiting)(void *cookie, const char *text);
	void *cookie;
};

struct run_store {
	struct s3_settings settings;
	struct object_client *client;
	const char *bucket; /* borrowed from the workflow */
	const char *prefix; /* borrowed: "" or "a/b/" */
	struct run_store *next;
};

struct stores {
	struct http_engine *engine;
	struct stores_embedded_ops ops;
	struct stores_patience patience;
	atomic_llong patience_ms; /* 0: none (any more) */
	pthread_mutex_t lock;
	struct stores_embedded embedded; /* under lock; handle NULL: not acquired */
	struct run_store *opened;	 /* under lock */
};

/* `patience` may be NULL: then nothing is waited for. */
int stores_init(struct stores *stores, const struct stores_embedded_ops *ops,
	const struct stores_patience *patience, struct penstock_error *err);
void stores_release(struct stores *stores);
/* From now on nothing is waited for: whoever talks to a store has a plan of his own for its absence. */
void stores_hurry(struct stores *stores);

/*
 * Resolves credentials, region and endpoint, and makes a client; nothing is sent. Owned by `stores`.
 * Any thread. Errors name the place in the workflow.
 */
int stores_open(struct stores *stores, const struct workflow *workflow,
	const struct workflow_s3 *s3, struct run_store **out, struct penstock_error *err);

/* What a step's own clients are told of it; nothing where it is NULL. `keys` own what `store` has. */
void run_store_describe(
	const struct run_store *from, struct credentials *keys, struct environment_store *store);

#endif
