/*
 * All buckets' configurations of one kind, parsed and in memory. An unreadable configuration counts
 * as missing, and is reported.
 *
 *	// kind: its name, the size of the parsed form, and how it is parsed and released
 *	r = configs_new(&configs, store, kind, err);
 *	...
 *	if (!configs_update(configs, "bucket")) // after a change
 *		...
 *	logging = configs_get(configs, "bucket"); // NULL if the bucket has none
 *	configs_done(configs);
 */
#ifndef SERVER_BUCKET_CONFIGS_H
#define SERVER_BUCKET_CONFIGS_H

#include <stdbool.h>
#include <stddef.h>

struct configs;
struct penstock_error;
struct store;

struct config_kind {
	const char *name; /* name of the configuration in the store */
	size_t size; /* size of the zeroed struct that parse() fills */
	int (*parse)(const char *text, size_t len, void *out, struct penstock_error *err);
	void (*release)(void *parsed);
};
/* Reads the configurations of all buckets. */
int configs_new(struct configs **out, struct store *store, const struct config_kind *kind,
	struct penstock_error *err);
/* `configs` may be NULL. */
void configs_free(struct configs *configs);
/* Reads the configuration of a bucket again. Call this function on a worker after each change of
 * the configuration, and after the bucket was deleted, before the reply. After a failure, which is
 * logged, returns false; the bucket then has no configuration until the next call. */
bool configs_update(struct configs *configs, const char *bucket);
/* Returns true if any bucket has such a configuration; takes no lock. */
bool configs_any(struct configs *configs);
/* Returns the configuration of a bucket, or NULL if the bucket has none. Call configs_done() after
 * use, unless the result is NULL. */
const void *configs_get(struct configs *configs, const char *bucket);
void configs_done(struct configs *configs);

#endif
