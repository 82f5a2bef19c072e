#include "server/bucket/configs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "store/store.h"

struct configs {
	struct store *store;
	const struct config_kind *kind;
	atomic_ullong generation; /* generation that was read */
	atomic_size_t n;
	pthread_rwlock_t lock;
	/* Under lock, like `parsed`, and sorted by bucket. An unreadable configuration has no
	 * value. */
	struct store_config *names;
	char *parsed; /* `n` structs */
};

static void drop(const struct config_kind *kind, struct store_config *names, char *parsed, size_t n)
{
	for (size_t i = 0; parsed && i < n; i++)
		kind->release(parsed + i * kind->size);
	free(parsed);
	store_config_list_free(names, n);
}

static int by_bucket(const void *key, const void *item)
{
	return strcmp(key, ((const struct store_config *)item)->bucket);
}

static const struct store_config *find(const struct configs *configs, const char *bucket)
{
	return configs->names ? bsearch(bucket, configs->names, atomic_load(&configs->n),
					sizeof(*configs->names), by_bucket)
			      : NULL;
}

/* Sets aside a configuration that cannot be read, and reports it once. */
static void set_aside(
	const struct configs *configs, struct store_config *config, struct penstock_error *err)
{
	const struct store_config *before = find(configs, config->bucket);

	if (!before || before->value)
		log_warn("store bucket '%s': its %s configuration is unreadable, and has no "
			 "effect: %s; replace the configuration",
			config->bucket, configs->kind->name,
			err->message ? err->message : "unknown reason");
	penstock_error_release(err);
	free(take_pointer(config->value));
}

/* Reads the configurations of all buckets. */
static int read_all(struct configs *configs, struct store_config **names, char **parsed, size_t *n,
	struct penstock_error *err)
{
	const struct config_kind *kind = configs->kind;
	int rc = 0;

	*names = NULL;
	*parsed = NULL;
	*n = 0;
	if (store_config_list(configs->store, kind->name, names, n, err) != STORE_OK)
		return -(int)err->code;
	*parsed = calloc(*n + 1, kind->size);
	if (!*parsed)
		rc = error_memory(err);
	for (size_t i = 0; i < *n && rc == 0; i++) {
		struct store_config *config = &(*names)[i];

		rc = kind->parse(config->value, config->len, *parsed + i * kind->size, err);
		if (rc < 0 && rc != -PENSTOCK_E_MEMORY) {
			set_aside(configs, config, err);
			rc = 0;
		}
	}
	if (rc < 0)
		drop(kind, *names, *parsed, *n);
	return rc;
}

static int refresh(struct configs *configs, struct penstock_error *err)
{
	/* The generation is read before the configurations, so that the next call sees a change
	 * in between. */
	uint64_t generation = store_config_generation(configs->store);
	struct store_config *names;
	char *parsed;
	size_t n;
	int rc;

	pthread_rwlock_wrlock(&configs->lock);
	rc = read_all(configs, &names, &parsed, &n, err);
	if (rc == 0) {
		drop(configs->kind, configs->names, configs->parsed, atomic_load(&configs->n));
		configs->names = names;
		configs->parsed = parsed;
		atomic_store(&configs->n, n);
		atomic_store(&configs->generation, generation);
	}
	pthread_rwlock_unlock(&configs->lock);
	return rc;
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
	pthread_rwlock_init(&configs->lock, NULL);
	rc = refresh(configs, err);
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
	drop(configs->kind, configs->names, configs->parsed, atomic_load(&configs->n));
	pthread_rwlock_destroy(&configs->lock);
	free(configs);
}

bool configs_any(struct configs *configs)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (atomic_load(&configs->generation) != store_config_generation(configs->store) &&
		refresh(configs, &err) < 0) {
		log_warn("cannot read the %s configurations: %s", configs->kind->name,
			err.message ? err.message : "out of memory");
		penstock_error_release(&err);
	}
	return atomic_load(&configs->n) > 0;
}

const void *configs_get(struct configs *configs, const char *bucket)
{
	const struct store_config *found;

	if (!configs_any(configs))
		return NULL;
	pthread_rwlock_rdlock(&configs->lock);
	found = find(configs, bucket);
	if (found && found->value)
		return configs->parsed + (size_t)(found - configs->names) * configs->kind->size;
	pthread_rwlock_unlock(&configs->lock);
	return NULL;
}

void configs_done(struct configs *configs)
{
	pthread_rwlock_unlock(&configs->lock);
}
