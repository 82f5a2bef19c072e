#include "server/access/settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "s3/access/acl.h"
#include "server/access/grants.h"
#include "server/directory/identity.h"
#include "server/request/request.h"

/* Maximum number of buckets whose settings are kept. If two buckets have the same slot, the slot
 * keeps the settings that were read last. */
#define SLOTS 1024
/* Maximum bytes of all texts. A parsed policy takes up to eight times the memory of its text. */
#define TEXTS_MAX (8 * MIB)

struct settings_cache {
	pthread_mutex_t lock;
	/* under lock */
	struct access_settings *slots[SLOTS];
	size_t len; /* sum of the lengths of the texts in all slots */
	size_t next; /* slot to be emptied if the texts are too long */
};

int settings_start(struct settings_cache **out)
{
	struct settings_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -1;
	pthread_mutex_init(&cache->lock, NULL);
	*out = cache;
	return 0;
}

void settings_stop(struct settings_cache *cache)
{
	if (!cache)
		return;
	for (size_t i = 0; i < SLOTS; i++)
		settings_unref(cache->slots[i]);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

void settings_unref(struct access_settings *settings)
{
	if (!settings || atomic_fetch_sub(&settings->refs, 1) > 1)
		return;
	policy_free(settings->policy);
	free(settings->acl);
	free(settings);
}

bool settings_are_public(const struct access_settings *s)
{
	return s->policy_is_public || (s->ownership != BUCKET_OWNER_ENFORCED &&
					      !s->block.ignore_acls && acl_is_public(s->acl));
}

/* --- names ----------------------------------------------------------------------------------- */

static const char *const ownerships[] = {[OBJECT_WRITER] = "ObjectWriter",
	[BUCKET_OWNER_PREFERRED] = "BucketOwnerPreferred",
	[BUCKET_OWNER_ENFORCED] = "BucketOwnerEnforced"};

const char *ownership_name(enum object_ownership ownership)
{
	return ownerships[ownership];
}

enum object_ownership ownership_find(const char *name)
{
	for (size_t i = OBJECT_WRITER; i < ARRAY_SIZE(ownerships); i++)
		if (strcmp(name, ownerships[i]) == 0)
			return (enum object_ownership)i;
	return OWNERSHIP_MISSING;
}

/* --- reading --------------------------------------------------------------------------------- */

static int read_policy(
	struct access_settings *s, const char *text, size_t len, struct penstock_error *err)
{
	int rc;

	s->policy_binds_root = *text == '!';
	text += s->policy_binds_root;
	len -= s->policy_binds_root;
	rc = policy_parse(text, len, POLICY_OF_BUCKET, s->bucket, &s->policy, err);
	if (rc < 0 && rc != -PENSTOCK_E_MEMORY) {
		log_warn("store bucket '%s': its policy is unreadable, and all requests are "
			 "refused: %s; replace the policy",
			s->bucket, err->message ? err->message : "unknown reason");
		penstock_error_release(err);
		s->policy_is_unreadable = true;
		rc = 0;
	}
	s->policy_is_public = policy_is_public(s->policy);
	return rc;
}

/* Parses the value of a configuration; `text` is empty if the bucket has no such configuration. */
static int take(struct access_settings *s, const char *name, const char *text, size_t len,
	struct penstock_error *err)
{
	if (!len)
		return 0;
	if (strcmp(name, POLICY_CONFIG) == 0)
		return read_policy(s, text, len, err);
	if (strcmp(name, ACL_CONFIG) == 0) {
		s->acl = strdup(text);
		return s->acl ? 0 : error_memory(err);
	}
	if (strcmp(name, OWNERSHIP_CONFIG) == 0) {
		s->ownership = ownership_find(text);
		if (s->ownership == OWNERSHIP_MISSING) /* the name is unknown */
			s->ownership = BUCKET_OWNER_ENFORCED;
		return 0;
	}
	s->has_block = true;
	/* An unreadable configuration blocks all public access. */
	s->block = (struct access_block){.block_acls = text[0] != '0',
		.ignore_acls = len < 2 || text[1] != '0',
		.block_policy = len < 3 || text[2] != '0',
		.restrict_buckets = len < 4 || text[3] != '0'};
	return 0;
}

static int failure(struct penstock_error *err)
{
	return err->code ? -(int)err->code : error_memory(err);
}

static int load(struct store *store, struct access_settings *s, struct penstock_error *err)
{
	static const char *const names[] = {
		POLICY_CONFIG, BLOCK_CONFIG, OWNERSHIP_CONFIG, ACL_CONFIG};
	struct store_bucket bucket;
	enum store_status status = store_bucket_get(store, s->bucket, &bucket, err);

	if (status != STORE_OK)
		return status == STORE_NO_SUCH_BUCKET ? 0 : failure(err);
	s->id = bucket.id;
	snprintf(s->owner, sizeof(s->owner), "%s", *bucket.owner ? bucket.owner : ACCOUNT_FIRST);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);
		int rc;

		status = store_config_get(store, s->bucket, names[i], &text, err);
		if (status == STORE_NO_SUCH_BUCKET)
			return 0;
		if (status != STORE_OK && status != STORE_NO_SUCH_KEY)
			return failure(err);
		s->len += text.len;
		rc = take(s, names[i], buf_str(&text), text.len, err);
		if (rc < 0)
			return rc;
	}
	s->exists = true;
	return 0;
}

static struct access_settings **slot_of(struct settings_cache *cache, const char *bucket)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */

	for (const char *p = bucket; *p; p++)
		h = (h ^ (unsigned char)*p) * UINT64_C(1099511628211);
	return &cache->slots[(h ^ (h >> 32)) % SLOTS];
}

static struct access_settings *find(
	struct settings_cache *cache, const char *bucket, uint64_t generation)
{
	struct access_settings *found;

	LOCK_SCOPE(&cache->lock);
	found = *slot_of(cache, bucket);
	if (!found || found->generation != generation || strcmp(found->bucket, bucket) != 0)
		return NULL;
	atomic_fetch_add(&found->refs, 1);
	return found;
}

static void empty(struct settings_cache *cache, struct access_settings **slot)
{
	cache->len -= *slot ? (*slot)->len : 0;
	settings_unref(*slot);
	*slot = NULL;
}

static void keep(struct settings_cache *cache, struct access_settings *settings)
{
	struct access_settings **slot = slot_of(cache, settings->bucket);

	if (settings->len > TEXTS_MAX)
		return;
	atomic_fetch_add(&settings->refs, 1);
	LOCK_SCOPE(&cache->lock);
	empty(cache, slot);
	while (cache->len + settings->len > TEXTS_MAX)
		empty(cache, &cache->slots[cache->next++ % SLOTS]);
	*slot = settings;
	cache->len += settings->len;
}

int settings_get(struct server *server, const char *bucket, struct access_settings **out,
	struct penstock_error *err)
{
	_cleanup_(settings_unrefp) struct access_settings *s = NULL;
	/* The generation is read before the tables, so that the settings are at least as new as
	 * the generation. */
	uint64_t generation = store_config_generation(server->store);
	struct penstock_error problem = PENSTOCK_ERROR_INIT;

	*out = find(server->settings, bucket, generation);
	if (*out)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return error_memory(err);
	atomic_init(&s->refs, 1);
	s->generation = generation;
	snprintf(s->bucket, sizeof(s->bucket), "%s", bucket);
	if (load(server->store, s, &problem) < 0)
		return error_move(err, &problem);
	keep(server->settings, s);
	*out = take_pointer(s);
	return 0;
}
