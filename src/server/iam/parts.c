/* The parts of users, groups and roles: access keys, inline policies, memberships. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/access/policy.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/directory/directory.h"
#include "server/directory/record.h"
#include "server/iam/actions.h"
#include "server/iam/entity.h"

/* Maximum characters of all inline policies of one entity together, as with AWS. */
#define INLINE_USER_MAX	 2048
#define INLINE_GROUP_MAX 5120
#define INLINE_ROLE_MAX	 10240
#define SECRET_ALPHABET	 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

/* --- access keys ----------------------------------------------------------------------------- */

static const char *holder_name(struct query *q, const json_t *entity)
{
	return q->who->is_root && !query_value(q, "UserName") ? NULL : record_text(entity, "name");
}

static void write_key(struct query *q, const char *user, const char *id, const json_t *key)
{
	xml_element(&q->xml, "UserName", user);
	xml_element(&q->xml, "AccessKeyId", id);
	xml_element(&q->xml, "Status",
		json_is_true(json_object_get(key, "active")) ? "Active" : "Inactive");
	query_date(q, "CreateDate", json_integer_value(json_object_get(key, "created")));
}

void iam_create_key(struct query *q)
{
	const char *record, *id, *secret;
	const json_t *entity = entity_find_user(q, &record);
	json_t *copy, *keys, *key;

	if (!entity) {
		if (!q->failed) /* the root of the first account has only the keys of the store */
			query_fail(q, 501, "NotImplemented",
				"Cannot create an access key for the root of this account, which has only "
				"the keys of the store; create a user");
		return;
	}
	id = entity_id(q, "AKIA", 16, ENTITY_ID_ALPHABET);
	secret = id ? entity_id(q, "", 40, SECRET_ALPHABET) : NULL;
	if (!secret)
		return;
	if (json_object_size(json_object_get(entity, "keys")) >= ENTITY_KEYS_MAX) {
		query_fail(q, 409, "LimitExceeded", "Cannot exceed quota for AccessKeysPerUser: %d",
			ENTITY_KEYS_MAX);
		return;
	}
	copy = entity_copy_with(q, entity, "keys", &keys);
	if (!copy)
		return;
	key = json_pack("{s:s,s:b,s:I}", "secret", secret, "active", 1, "created",
		(json_int_t)(clock_wall_ns() / NS_PER_S));
	if (!entity_store(q, record, copy, !key || json_object_set_new(keys, id, key) < 0))
		return;
	entity = directory_get(q->directory, record);
	xml_open(&q->xml, "AccessKey");
	write_key(q, holder_name(q, entity), id,
		json_object_get(json_object_get(entity, "keys"), id));
	xml_element(&q->xml, "SecretAccessKey", secret);
	xml_close(&q->xml, "AccessKey");
}

void iam_list_keys(struct query *q)
{
	const char *record, *id;
	const json_t *entity = entity_find_user(q, &record);
	json_t *key;

	if (q->failed)
		return;
	xml_open(&q->xml, "AccessKeyMetadata");
	json_object_foreach (json_object_get(entity, "keys"), id, key) {
		xml_open(&q->xml, "member");
		write_key(q, holder_name(q, entity), id, key);
		xml_close(&q->xml, "member");
	}
	xml_close(&q->xml, "AccessKeyMetadata");
	xml_element_bool(&q->xml, "IsTruncated", false);
}

/* Finds the key that the request names, in a copy of the entity that has it. Sets the reply and
 * returns NULL on failure. */
static json_t *find_key(struct query *q, const char **record, const char **id, json_t **keys)
{
	const json_t *entity = entity_find_user(q, record);

	*id = q->failed ? NULL : query_need(q, "AccessKeyId");
	if (!*id)
		return NULL;
	if (!json_object_get(json_object_get(entity, "keys"), *id)) {
		query_fail(
			q, 404, "NoSuchEntity", "The Access Key with id %s cannot be found.", *id);
		return NULL;
	}
	return entity_copy_with(q, entity, "keys", keys);
}

void iam_update_key(struct query *q)
{
	const char *status = query_need(q, "Status"), *record, *id;
	bool active = status && strcmp(status, "Active") == 0;
	json_t *keys, *copy = status ? find_key(q, &record, &id, &keys) : NULL;

	if (!copy)
		return;
	if (!active && strcmp(status, "Inactive") != 0) {
		json_decref(copy);
		query_fail(q, 400, "ValidationError", "Status must be Active or Inactive");
		return;
	}
	entity_store(q, record, copy,
		json_object_set_new(json_object_get(keys, id), "active", json_boolean(active)) < 0);
}

void iam_delete_key(struct query *q)
{
	const char *record, *id;
	json_t *keys, *copy = find_key(q, &record, &id, &keys);

	if (copy)
		entity_store(q, record, copy, json_object_del(keys, id) < 0);
}

/* --- inline policies ------------------------------------------------------------------------- */

void iam_put_policy(struct query *q)
{
	const char *record, *name, *document, *key;
	const struct entity_kind *kind = entity_kind_of(q->action);
	const json_t *entity = entity_find(q, kind, &record);
	json_t *copy, *policies, *other;
	size_t others = 0;

	if (!entity || !(name = query_need(q, "PolicyName")) ||
		!(document = query_need(q, "PolicyDocument")))
		return;
	if (!entity_is_name(name, 128)) {
		query_fail(q, 400, "ValidationError",
			"PolicyName must have 1 to 128 characters: letters, digits and _+=,.@-");
		return;
	}
	json_object_foreach (json_object_get(entity, "policies"), key, other)
		if (strcmp(key, name) != 0)
			others += entity_policy_size(json_string_value(other));
	document = entity_check_policy(q, document, POLICY_OF_IDENTITY, others,
		kind == &entity_user	? INLINE_USER_MAX
		: kind == &entity_group ? INLINE_GROUP_MAX
					: INLINE_ROLE_MAX);
	if (!document)
		return;
	copy = entity_copy_with(q, entity, "policies", &policies);
	if (copy)
		entity_store(q, record, copy,
			json_object_set_new(policies, name, json_string(document)) < 0);
}

/* Finds the policy that the request names. Sets the reply and returns NULL on failure. */
static const char *find_policy(
	struct query *q, const json_t **entity, const char **record, const char **name)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *document;

	*entity = entity_find(q, kind, record);
	*name = *entity ? query_need(q, "PolicyName") : NULL;
	if (!*name)
		return NULL;
	document = json_string_value(json_object_get(json_object_get(*entity, "policies"), *name));
	if (!document)
		query_fail(q, 404, "NoSuchEntity", "The %s policy with name %s cannot be found.",
			kind->word, *name);
	return document;
}

void iam_get_policy(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	_cleanup_(buf_release) struct buf encoded = BUF_INIT(3 * QUERY_MAX);
	const char *record, *name;
	const json_t *entity;
	const char *document = find_policy(q, &entity, &record, &name);

	if (!document)
		return;
	uri_encode(&encoded, document, strlen(document), false);
	xml_element(&q->xml, kind->parameter, record_text(entity, "name"));
	xml_element(&q->xml, "PolicyName", name);
	xml_element(&q->xml, "PolicyDocument", buf_str(&encoded));
	if (buf_failed(&encoded))
		query_no_memory(q);
}

void iam_list_policies(struct query *q)
{
	const char *record, *name;
	const json_t *entity = entity_find(q, entity_kind_of(q->action), &record);
	json_t *policies = json_object_get(entity, "policies"), *document;
	_cleanup_free_ const char **names = calloc(json_object_size(policies) + 1, sizeof(*names));
	struct entity_page page;
	size_t n = 0;

	if (!entity)
		return;
	if (!names) {
		query_no_memory(q);
		return;
	}
	json_object_foreach (policies, name, document)
		names[n++] = name;
	if (!entity_page(q, names, n, &page))
		return;
	xml_open(&q->xml, "PolicyNames");
	for (size_t i = 0; i < page.n; i++)
		xml_element(&q->xml, "member", page.names[i]);
	xml_close(&q->xml, "PolicyNames");
	entity_page_end(q, &page);
}

void iam_delete_policy(struct query *q)
{
	const char *record, *name;
	const json_t *entity;
	json_t *copy, *policies;

	if (!find_policy(q, &entity, &record, &name))
		return;
	copy = entity_copy_with(q, entity, "policies", &policies);
	if (copy)
		entity_store(q, record, copy, json_object_del(policies, name) < 0);
}

/* --- groups ---------------------------------------------------------------------------------- */

static void change_member(struct query *q, bool add)
{
	const char *record, *group;
	const json_t *user;

	if (!entity_find(q, &entity_group, &group) ||
		!(user = entity_find(q, &entity_user, &record)))
		return;
	if (add && json_array_size(json_object_get(user, "groups")) >= ENTITY_GROUPS_MAX)
		query_fail(q, 409, "LimitExceeded", "Cannot exceed quota for GroupsPerUser: %d",
			ENTITY_GROUPS_MAX);
	else
		entity_store_listed(q, record, user, "groups", group, add);
}

void iam_add_member(struct query *q)
{
	change_member(q, true);
}

void iam_remove_member(struct query *q)
{
	change_member(q, false);
}

void iam_groups_of_user(struct query *q)
{
	const char *record;
	const json_t *user = entity_find(q, &entity_user, &record);
	json_t *member;
	size_t i;

	if (!user)
		return;
	xml_open(&q->xml, "Groups");
	json_array_foreach (json_object_get(user, "groups"), i, member) {
		xml_open(&q->xml, "member");
		entity_write(
			q, &entity_group, directory_get(q->directory, json_string_value(member)));
		xml_close(&q->xml, "member");
	}
	xml_close(&q->xml, "Groups");
	xml_element_bool(&q->xml, "IsTruncated", false);
}
