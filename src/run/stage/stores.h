/*
 * The object stores of a run: one HTTP engine, one client for each `s3` of the workflow, and the
 * embedded store if a workflow uses it.
 *
 *	stores_init(&stores, &embedded_ops, &patience, err);
 *	stores_open(&stores, workflow, &workflow->output.s3, &store, err);
 *	... store->client, store->bucket, store->prefix ...
 *	stores_release(&stores);	// after all users of its clients have ended
 */
#ifndef RUN_STAGE_STORES_H
#define RUN_STAGE_STORES_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/credentials/credentials.h"
#include "workflow/model.h"

struct http_engine;
struct object_client;
struct penstock_error;

/* The caller starts and joins the embedded store, because src/run does not depend on the server. */
struct stores_embedded_ops {
	/* Fills in endpoint and keys, which are valid until `leave` is called. */
	int (*join)(const char *home, void **handle, struct store_place *place,
		struct penstock_error *err);
	void (*leave)(void *handle);
	const char *home; /* borrowed */
};

/* At the start of a run, requests wait for a host that is missing or not ready, up to
 * $PENSTOCK_NETWORK_PATIENCE seconds without any progress. */
struct stores_patience {
	const atomic_int *cancel; /* cancels every request, at any time; outlives the stores */
	/* Gets one line for display; from any thread. NULL if requests must not wait. */
	void (*waiting)(void *cookie, const char *text);
	void *cookie;
};

struct run_store {
	struct object_client *client;
	const char *bucket; /* borrowed from the workflow */
	const char *prefix; /* borrowed: "" or "a/b/" */
	struct run_store *next;
};

struct stores {
	struct http_engine *engine;
	struct stores_embedded_ops ops;
	struct stores_patience patience;
	atomic_llong patience_ms; /* 0 if requests do not wait, or no longer wait */
	pthread_mutex_t lock;
	void *embedded; /* under lock; NULL until it is joined */
	struct store_place embedded_place; /* endpoint and keys */
	struct run_store *opened; /* under lock */
};

/* `patience` is NULL if requests must not wait. */
int stores_init(struct stores *stores, const struct stores_embedded_ops *ops,
	const struct stores_patience *patience, struct penstock_error *err);
void stores_release(struct stores *stores);
/* After this call no request waits for a host: the callers handle missing hosts. */
void stores_hurry(struct stores *stores);

/* Resolves credentials, region and endpoint, and makes a client; sends nothing. The result is owned
 * by `stores`. Any thread may call it. An error names the place in the workflow. */
int stores_open(struct stores *stores, const struct workflow *workflow,
	const struct workflow_s3 *s3, struct run_store **out, struct penstock_error *err);

#endif
