#include "run/stage/stores.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "net/http/http.h"
#include "run/config/times.h"
#include "transfer/objects.h"

#define PATIENCE_MS (90 * 1000)

static void on_wait(void *cookie, const char *host, const char *why, int64_t waited_ms)
{
	struct stores *stores = cookie;
	int64_t left = atomic_load(&stores->patience_ms) - waited_ms;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);

	buf_printf(&text, "waiting for %s: %s, retrying", host, why);
	if (left >= 1000)
		buf_printf(&text, " (for %lld s more)", (long long)(left / 1000));
	stores->patience.waiting(stores->patience.cookie, buf_str(&text));
}

int stores_init(struct stores *stores, const struct stores_embedded_ops *ops,
	const struct stores_patience *patience, struct penstock_error *err)
{
	struct http_engine_options options = {.buffer = LIMIT_HTTP_RUN_BUFFER};
	int r;

	*stores = (struct stores){0};
	if (ops)
		stores->ops = *ops;
	if (patience) {
		stores->patience = *patience;
		options.cancel = patience->cancel;
	}
	if (patience && patience->waiting) {
		atomic_store(&stores->patience_ms,
			wait_from_env_ms("PENSTOCK_NETWORK_PATIENCE", PATIENCE_MS));
		options.on_wait = on_wait;
		options.cookie = stores;
	}
	r = http_engine_new(&stores->engine, &options, err);
	if (r < 0)
		return r;
	pthread_mutex_init(&stores->lock, NULL);
	return 0;
}

void stores_release(struct stores *stores)
{
	if (!stores || !stores->engine)
		return;
	while (stores->opened) {
		struct run_store *store = stores->opened;

		stores->opened = store->next;
		object_client_free(store->client);
		free(store);
	}
	http_engine_free(stores->engine);
	if (stores->embedded)
		stores->ops.leave(stores->embedded);
	pthread_mutex_destroy(&stores->lock);
	*stores = (struct stores){0};
}

void stores_hurry(struct stores *stores)
{
	if (!stores->engine)
		return;
	LOCK_SCOPE(&stores->lock);
	atomic_store(&stores->patience_ms, 0);
	for (struct run_store *store = stores->opened; store; store = store->next)
		object_client_patience(store->client, 0, NULL);
}

/* Joins the embedded store on first use. */
static int join_embedded(
	struct stores *stores, struct store_place *place, struct penstock_error *err)
{
	LOCK_SCOPE(&stores->lock);
	int r = 0;

	if (!stores->ops.join)
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "the embedded store is not available here");
	if (!stores->embedded) {
		r = stores->ops.join(
			stores->ops.home, &stores->embedded, &stores->embedded_place, err);
		if (r == 0)
			log_info("using the embedded store in %s/store", stores->ops.home);
	}
	place->endpoint_url = stores->embedded_place.endpoint_url;
	/* Ignore keys in the workflow, which belong to another store: the embedded store has a
	 * single account. */
	place->access_key_id = stores->embedded_place.access_key_id;
	place->secret_access_key = stores->embedded_place.secret_access_key;
	return r;
}

static int open_client(struct stores *stores, const struct workflow_s3 *s3,
	struct object_client **out, struct penstock_error *err)
{
	struct store_place place = {
		.access_key_id = s3->access_key_id.value,
		.secret_access_key = s3->secret_access_key.value,
		.region = s3->region.value,
		.endpoint_url = s3->endpoint_url.value,
		.google = s3->google,
		.google_key_json = s3->service_account_key.value,
	};
	int r = s3->embedded ? join_embedded(stores, &place, err) : 0;

	return r < 0 ? r : object_client_open(out, stores->engine, &place, err);
}

int stores_open(struct stores *stores, const struct workflow *workflow,
	const struct workflow_s3 *s3, struct run_store **out, struct penstock_error *err)
{
	struct run_store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return error_memory(err);
	store->bucket = s3->bucket;
	store->prefix = s3->prefix;
	r = open_client(stores, s3, &store->client, err);
	if (r < 0) {
		free(store);
		return workflow_error_at(workflow, &s3->at, err);
	}
	pthread_mutex_lock(&stores->lock);
	object_client_patience(
		store->client, atomic_load(&stores->patience_ms), stores->patience.cancel);
	store->next = stores->opened;
	stores->opened = store;
	pthread_mutex_unlock(&stores->lock);
	*out = store;
	return 0;
}
