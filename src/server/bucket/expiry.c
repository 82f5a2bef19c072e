#include "server/bucket/expiry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "s3/message/lifecycle.h"
#include "server/bucket/lifecycle.h"
#include "store/store.h"

struct bucket_rules {
	char bucket[64];
	struct s3_lifecycle rules;
};

struct expiry {
	struct store *store;
	atomic_ullong generation; /* that was read */
	atomic_size_t n; /* of `rules` */
	pthread_rwlock_t lock;
	struct bucket_rules *rules; /* under lock; in the order of their buckets */
};

static void rules_free(struct bucket_rules *rules, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s3_lifecycle_release(&rules[i].rules);
	free(rules);
}

/* Reads the rules of all buckets. */
static int read_all(
	struct store *store, struct bucket_rules **out, size_t *n, struct penstock_error *err)
{
	struct store_config *configs = NULL;
	struct bucket_rules *rules = NULL;
	size_t count = 0;
	int rc = 0;

	if (store_config_list(store, LIFECYCLE_CONFIG, &configs, &count, err) != STORE_OK)
		return -(int)err->code;
	if (count)
		rules = calloc(count, sizeof(*rules));
	if (count && !rules)
		rc = error_memory(err);
	for (size_t i = 0; i < count && rc == 0; i++) {
		snprintf(rules[i].bucket, sizeof(rules[i].bucket), "%s", configs[i].bucket);
		rc = s3_lifecycle_parse(configs[i].value, configs[i].len, &rules[i].rules, err);
	}
	store_config_list_free(configs, count);
	if (rc < 0) {
		rules_free(rules, rules ? count : 0);
		return rc;
	}
	*out = rules;
	*n = count;
	return 0;
}

static int refresh(struct expiry *expiry, struct penstock_error *err)
{
	/* Before the rules: a change in between is seen by the next call. */
	uint64_t generation = store_config_generation(expiry->store);
	struct bucket_rules *rules = NULL;
	size_t n = 0;
	int rc;

	pthread_rwlock_wrlock(&expiry->lock);
	rc = read_all(expiry->store, &rules, &n, err);
	if (rc == 0) {
		rules_free(expiry->rules, atomic_load(&expiry->n));
		expiry->rules = rules;
		atomic_store(&expiry->n, n);
		atomic_store(&expiry->generation, generation);
	}
	pthread_rwlock_unlock(&expiry->lock);
	return rc;
}

int expiry_new(struct expiry **out, struct store *store, struct penstock_error *err)
{
	struct expiry *expiry = calloc(1, sizeof(*expiry));
	int rc;

	if (!expiry)
		return error_memory(err);
	expiry->store = store;
	pthread_rwlock_init(&expiry->lock, NULL);
	rc = refresh(expiry, err);
	if (rc < 0)
		expiry_free(expiry);
	else
		*out = expiry;
	return rc;
}

void expiry_free(struct expiry *expiry)
{
	if (!expiry)
		return;
	rules_free(expiry->rules, atomic_load(&expiry->n));
	pthread_rwlock_destroy(&expiry->lock);
	free(expiry);
}

bool expiry_any(struct expiry *expiry)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (atomic_load(&expiry->generation) != store_config_generation(expiry->store) &&
		refresh(expiry, &err) < 0) {
		log_warn("lifecycle: %s", err.message ? err.message : "out of memory");
		penstock_error_release(&err);
	}
	return atomic_load(&expiry->n) > 0;
}

static int by_bucket(const void *key, const void *item)
{
	return strcmp(key, ((const struct bucket_rules *)item)->bucket);
}

/* `object` is NULL for an upload. */
static bool find_end(struct expiry *expiry, const char *bucket, const char *key, int64_t started_ns,
	const struct s3_lifecycle_object *object, struct expiry_note *out)
{
	const struct bucket_rules *found;
	struct s3_lifecycle_end end;
	bool ends = false;

	if (!expiry_any(expiry))
		return false;
	pthread_rwlock_rdlock(&expiry->lock);
	found = bsearch(bucket, expiry->rules, atomic_load(&expiry->n), sizeof(*found), by_bucket);
	if (found)
		ends = object ? s3_lifecycle_object_end(&found->rules, object, S3_DAY_NS, &end)
			      : s3_lifecycle_upload_end(
					&found->rules, key, started_ns, S3_DAY_NS, &end);
	if (ends) {
		out->at_ns = end.at_ns;
		snprintf(out->id, sizeof(out->id), "%s", end.id ? end.id : "");
	}
	pthread_rwlock_unlock(&expiry->lock);
	return ends;
}

bool expiry_of_object(struct expiry *expiry, const char *bucket,
	const struct s3_lifecycle_object *object, struct expiry_note *out)
{
	return find_end(expiry, bucket, NULL, 0, object, out);
}

bool expiry_of_upload(struct expiry *expiry, const char *bucket, const char *key,
	int64_t started_ns, struct expiry_note *out)
{
	return find_end(expiry, bucket, key, started_ns, NULL, out);
}
