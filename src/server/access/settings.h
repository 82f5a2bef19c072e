/*
 * The settings of a bucket that control access: its policy, its list of grants, its public access
 * block and its object ownership. These settings are kept in memory, so that most requests read no
 * table.
 *
 *	_cleanup_(settings_unrefp) struct access_settings *settings = NULL;
 *
 *	if (settings_get(server, "bucket", &settings, err) < 0)
 *		return -err->code;
 *	... settings->ownership ...
 *
 * Each request that starts after the reply to a change sees the change.
 */
#ifndef SERVER_ACCESS_SETTINGS_H
#define SERVER_ACCESS_SETTINGS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "s3/access/policy.h"
#include "store/store.h"

struct server;
struct settings_cache;

/* Names of a bucket's configurations in the store. */
#define POLICY_CONFIG	 "policy" /* the document, after a '!' if it also binds the owner's root */
#define BLOCK_CONFIG	 "public-access-block" /* four digits, 0 or 1 */
#define OWNERSHIP_CONFIG "ownership" /* as in the header x-amz-object-ownership */

struct access_block {
	bool block_acls, ignore_acls, block_policy, restrict_buckets;
};

/* A bucket without ownership controls is treated like a bucket with OBJECT_WRITER. */
enum object_ownership {
	OWNERSHIP_MISSING,
	OBJECT_WRITER,
	BUCKET_OWNER_PREFERRED,
	BUCKET_OWNER_ENFORCED,
};

/* Immutable. */
struct access_settings {
	atomic_uint refs;
	uint64_t generation;
	size_t len; /* sum of the lengths of the stored texts */
	char bucket[64];
	int64_t id; /* store_bucket.id */
	char owner[STORE_OWNER_SIZE]; /* the account */
	bool exists; /* if false, all settings are empty */
	char *acl; /* as in s3/access/acl.h; NULL if the bucket has no ACL */
	struct policy *policy; /* NULL if the bucket has no policy */
	bool policy_is_public;
	bool policy_is_unreadable; /* every action is denied, except the repair of the policy */
	/* the policy also applies to the root's requests about the policy */
	bool policy_binds_root;
	bool has_block;
	struct access_block block;
	enum object_ownership ownership;
};

/* Returns -1 if out of memory. */
int settings_start(struct settings_cache **out);
void settings_stop(struct settings_cache *cache); /* `cache` may be NULL */

int settings_get(struct server *server, const char *bucket, struct access_settings **out,
	struct penstock_error *err);
/* `settings` may be NULL. */
void settings_unref(struct access_settings *settings);
static inline void settings_unrefp(struct access_settings **settings)
{
	settings_unref(*settings);
}

/* Returns true if the policy of the bucket, or its ACL, allows something to all users. */
bool settings_are_public(const struct access_settings *settings);

/* ownership_name() returns NULL for OWNERSHIP_MISSING, and ownership_find() returns
 * OWNERSHIP_MISSING for an unknown name. */
const char *ownership_name(enum object_ownership ownership);
enum object_ownership ownership_find(const char *name);

#endif
