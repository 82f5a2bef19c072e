#include "run/stage/stores.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/http/http.h"
#include "run/config/times.h"
#include "transfer/objects.h"
#include "base/banned.h"

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

static void run_store_free(struct run_store *store)
{
	if (store->client)
		object_client_free(store->client);
	s3_settings_release(&store->settings);
	free(store);
}

void stores_release(struct stores *stores)
{
	if (!stores || !stores->engine)
		return;
	while (stores->opened) {
		struct run_store *store = stores->opened;

		stores->opened = store->next;
		run_store_free(store);
	}
	http_engine_free(stores->engine);
	if (stores->embedded.handle)
		stores->ops.release(&stores->embedded);
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

/* Acquires the embedded store on first use. */
static int join_embedded(struct stores *stores, struct penstock_error *err)
{
	LOCK_SCOPE(&stores->lock);
	if (stores->embedded.handle)
		return 0;
	if (!stores->ops.acquire)
		return error_set(
			err, PENSTOCK_E_UNSUPPORTED, "the embedded store is not available here");
	return stores->ops.acquire(stores->ops.cookie, &stores->embedded, err);
}

static int resolve(struct stores *stores, const struct workflow_s3 *s3,
	struct s3_settings *settings, struct penstock_error *err)
{
	struct s3_given given = {
		.access_key_id = s3->access_key_id.value,
		.secret_access_key = s3->secret_access_key.value,
		.region = s3->region.value,
		.endpoint_url = s3->endpoint_url.value,
		.google = s3->google,
		.google_key_json = s3->service_account_key.value,
	};
	int r;

	if (s3->embedded) {
		r = join_embedded(stores, err);
		if (r < 0)
			return r;
		given.endpoint_url = stores->embedded.endpoint_url;
		/* The embedded store has one account: keys in the workflow belong to another
		 * store. */
		given.access_key_id = stores->embedded.access_key;
		given.secret_access_key = stores->embedded.secret_key;
		if (log_redact(given.secret_access_key) < 0)
			return error_memory(err);
	}
	return s3_settings_resolve(settings, &given, err);
}

static int open_store(struct stores *stores, const struct workflow_s3 *s3, struct run_store *store,
	struct penstock_error *err)
{
	int r = resolve(stores, s3, &store->settings, err);

	if (r < 0)
		return r;
	store->bucket = s3->bucket;
	store->prefix = s3->prefix;
	return object_client_open(&store->client, stores->engine, &store->settings, err);
}

int stores_open(struct stores *stores, const struct workflow *workflow,
	const struct workflow_s3 *s3, struct run_store **out, struct penstock_error *err)
{
	struct run_store *store = calloc(1, sizeof(*store));
	int r;

	if (!store)
		return error_memory(err);
	r = open_store(stores, s3, store, err);
	if (r < 0) {
		_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);

		run_store_free(store);
		workflow_place_format(workflow, &s3->at, &place);
		return error_prefix(err, "%s", buf_str(&place));
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

void run_store_describe(
	const struct run_store *from, struct credentials *keys, struct store_access *store)
{
	/* S3 clients can use only Google's HMAC keys. */
	if (!from || (from->settings.google && from->settings.key))
		return;
	store->endpoint_url = from->settings.endpoint_url;
	store->region = from->settings.region;
	if (credentials_get(from->settings.credentials, keys, NULL) == 0) {
		store->access_key = keys->access_key_id;
		store->secret_key = keys->secret_access_key;
		store->session_token = keys->session_token;
	}
}
