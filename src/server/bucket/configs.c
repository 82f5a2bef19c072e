#include "server/bucket/configs.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "store/store.h"

struct config {
	char bucket[64];
	alignas(max_align_t) char parsed[];
};

struct configs {
	struct store *store;
	const struct config_kind *kind;
	/* held by an update, so that the last update reads the newest text */
	pthread_mutex_t updates;
	pthread_rwlock_t lock;
	struct config **items; /* under lock; sorted by bucket */
	atomic_size_t n; /* written under lock */
};

static void config_free(const struct configs *configs, struct config *config)
{
	if (!config)
		return;
	configs->kind->release(config->parsed);
	free(config);
}

/* Returns the index of a bucket, or the index at which it would be inserted. */
static size_t place_of(const struct configs *configs, const char *bucket)
{
	size_t from = 0, to = atomic_load(&configs->n);

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (strcmp(configs->items[middle]->bucket, bucket) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static bool is_at(const struct configs *configs, size_t place, const char *bucket)
{
	return place < atomic_load(&configs->n) &&
	       strcmp(configs->items[place]->bucket, bucket) == 0;
}

/* Parses a configuration. Reports an unreadable configuration, and sets `*out` to NULL. */
static int read_config(const struct configs *configs, const char *bucket, const char *text,
	size_t len, struct config **out, struct penstock_error *err)
{
	const struct config_kind *kind = configs->kind;
	struct config *config = calloc(1, sizeof(*config) + kind->size);
	int rc;

	*out = NULL;
	if (!config)
		return error_memory(err);
	snprintf(config->bucket, sizeof(config->bucket), "%s", bucket);
	rc = kind->parse(text, len, config->parsed, err);
	if (rc == 0) {
		*out = config;
		return 0;
	}
	free(config);
	if (rc == -PENSTOCK_E_MEMORY)
		return rc;
	log_warn("store bucket '%s': its %s configuration is unreadable, and has no effect: %s; "
		 "replace the configuration",
		bucket, kind->name, err->message ? err->message : "unknown reason");
	penstock_error_release(err);
	return 0;
}

/* Sets the configuration of a bucket, and takes ownership of `config`; removes the configuration if
 * `config` is NULL. Fails only if out of memory for a configuration to add. */
static int set(struct configs *configs, const char *bucket, struct config *config,
	struct penstock_error *err)
{
	struct config **items, *old = NULL;
	size_t n, at;
	int rc = 0;

	pthread_rwlock_wrlock(&configs->lock);
	n = atomic_load(&configs->n);
	at = place_of(configs, bucket);
	if (is_at(configs, at, bucket)) {
		old = configs->items[at];
		configs->items[at] = config;
		if (!config) {
			memmove(&configs->items[at], &configs->items[at + 1],
				(n - at - 1) * sizeof(struct config *));
			atomic_store(&configs->n, n - 1);
		}
	} else if (config) {
		items = array_grow(configs->items, n, sizeof(struct config *));
		if (items) {
			configs->items = items;
			memmove(&items[at + 1], &items[at], (n - at) * sizeof(struct config *));
			items[at] = config;
			atomic_store(&configs->n, n + 1);
		} else {
			old = config;
			rc = error_memory(err);
		}
	}
	pthread_rwlock_unlock(&configs->lock);
	config_free(configs, old);
	return rc;
}

static int read_all(struct configs *configs, struct penstock_error *err)
{
	struct penstock_error problem = PENSTOCK_ERROR_INIT;
	struct store_config *list = NULL;
	size_t n = 0;
	int rc = 0;

	if (store_config_list(configs->store, configs->kind->name, &list, &n, err) != STORE_OK)
		return -(int)err->code;
	for (size_t i = 0; i < n && rc == 0; i++) {
		struct config *config;

		rc = read_config(
			configs, list[i].bucket, list[i].value, list[i].len, &config, &problem);
		if (config)
			rc = set(configs, list[i].bucket, config, &problem);
	}
	store_config_list_free(list, n);
	return rc < 0 ? error_move(err, &problem) : 0;
}

int configs_new(struct configs **out, struct store *store, const struct config_kind *kind,
	struct penstock_error *err)
{
	struct configs *configs = calloc(1, sizeof(*configs));
	int rc;

	if (!configs)
		return error_memory(err);
	configs->store = store;
	configs->kind = kind;
	pthread_mutex_init(&configs->updates, NULL);
	pthread_rwlock_init(&configs->lock, NULL);
	rc = read_all(configs, err);
	if (rc < 0)
		configs_free(configs);
	else
		*out = configs;
	return rc;
}

void configs_free(struct configs *configs)
{
	if (!configs)
		return;
	for (size_t i = 0; i < atomic_load(&configs->n); i++)
		config_free(configs, configs->items[i]);
	free(configs->items);
	pthread_mutex_destroy(&configs->updates);
	pthread_rwlock_destroy(&configs->lock);
	free(configs);
}

static int update(struct configs *configs, const char *bucket, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
	struct config *config = NULL;
	enum store_status status;
	int rc = 0;

	LOCK_SCOPE(&configs->updates);
	status = store_config_get(configs->store, bucket, configs->kind->name, &text, err);
	if (status == STORE_OK)
		rc = read_config(configs, bucket, buf_str(&text), text.len, &config, err);
	else if (status != STORE_NO_SUCH_KEY && status != STORE_NO_SUCH_BUCKET)
		rc = err->code ? -(int)err->code : error_memory(err);
	if (rc < 0)
		set(configs, bucket, NULL, NULL);
	else
		rc = set(configs, bucket, config, err);
	return rc;
}

bool configs_update(struct configs *configs, const char *bucket)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (update(configs, bucket, &err) == 0)
		return true;
	log_warn(
		"store bucket '%s': cannot read its %s configuration, which has no effect until it "
		"changes: %s",
		bucket, configs->kind->name, err.message ? err.message : "out of memory");
	penstock_error_release(&err);
	return false;
}

bool configs_any(struct configs *configs)
{
	return atomic_load(&configs->n) > 0;
}

const void *configs_get(struct configs *configs, const char *bucket)
{
	size_t place;

	if (!configs_any(configs))
		return NULL;
	pthread_rwlock_rdlock(&configs->lock);
	place = place_of(configs, bucket);
	if (is_at(configs, place, bucket))
		return configs->items[place]->parsed;
	pthread_rwlock_unlock(&configs->lock);
	return NULL;
}

void configs_done(struct configs *configs)
{
	pthread_rwlock_unlock(&configs->lock);
}
