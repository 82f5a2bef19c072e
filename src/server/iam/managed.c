/* Managed policies, their versions, and the entities that they are attached to. */
#include "server/directory/managed.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/json.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/directory/directory.h"
#include "server/directory/record.h"
#include "server/iam/actions.h"
#include "server/iam/entity.h"
#include "server/request/request.h"

/* Limits, as with AWS. */
#define VERSIONS_MAX 5
#define DOCUMENT_MAX 6144 /* characters */

static json_int_t now_s(void)
{
	return (json_int_t)(clock_wall_ns() / NS_PER_S);
}

/* --- policies -------------------------------------------------------------------------------- */

/* Finds the policy that the request names, in the sender's account. Sets the reply and returns NULL
 * on failure. */
static const json_t *find_policy(struct query *q, const char **arn, const char **record)
{
	const json_t *found;

	*arn = query_need(q, "PolicyArn");
	if (!*arn)
		return NULL;
	found = record_by_arn(directory_records(q->directory), *arn, record);
	if (found && str_starts(*record, "policy/") &&
		strcmp(record_account(*record).number, q->account) == 0) {
		*record = query_text(q, "%s", *record);
		return *record ? found : NULL;
	}
	if (managed_builtin_find(*arn))
		query_fail(q, 403, "AccessDenied", "The policy %s cannot be changed", *arn);
	else
		query_fail(q, 404, "NoSuchEntity", "Policy %s was not found.", *arn);
	return NULL;
}

/* Like find_policy(), for a request that only reads: *policy is NULL for a policy of AWS. Sets the
 * reply and returns false on failure. */
static bool find_any(struct query *q, const char **arn, const json_t **policy)
{
	const char *record;

	*arn = query_value(q, "PolicyArn");
	*policy = NULL;
	if (*arn && managed_builtin_find(*arn))
		return true;
	*policy = find_policy(q, arn, &record);
	return *policy != NULL;
}

static bool is_attached(const json_t *entity, const char *arn)
{
	json_t *attached;
	size_t i;

	json_array_foreach (json_object_get(entity, "attached"), i, attached)
		if (strcmp(json_string_value(attached), arn) == 0)
			return true;
	return false;
}

/* Returns an object that has, for the ARN of each policy, the number of entities of the account
 * with this policy. One walk over all entities counts for all policies. Returns NULL if out of
 * memory. */
static json_t *count_holders(struct query *q)
{
	json_t *counts = json_object(), *entity, *arn;
	const char *name;
	size_t i;

	json_object_foreach ((json_t *)(uintptr_t)directory_records(q->directory), name, entity) {
		const json_t *attached = json_object_get(entity, "attached");

		if (!attached || strcmp(record_account(name).number, q->account) != 0)
			continue;
		json_array_foreach (attached, i, arn) {
			const char *text = json_string_value(arn);
			json_int_t n = json_integer_value(json_object_get(counts, text));

			if (json_object_set_new(counts, text, json_integer(n + 1)) < 0) {
				json_decref(counts);
				return NULL;
			}
		}
	}
	return counts;
}

static void write_policy(
	struct query *q, const char *arn, const json_t *policy, const json_t *holders)
{
	const struct managed_builtin *builtin = managed_builtin_find(arn);

	xml_element(&q->xml, "PolicyName", builtin ? builtin->name : record_text(policy, "name"));
	xml_element(&q->xml, "PolicyId", builtin ? builtin->id : record_text(policy, "id"));
	xml_element(&q->xml, "Arn", arn);
	xml_element(&q->xml, "Path", builtin ? "/" : record_text(policy, "path"));
	xml_element(&q->xml, "DefaultVersionId", builtin ? "v1" : record_text(policy, "default"));
	xml_element_u64(&q->xml, "AttachmentCount",
		(uint64_t)json_integer_value(json_object_get(holders, arn)));
	xml_element_u64(&q->xml, "PermissionsBoundaryUsageCount", 0);
	xml_element_bool(&q->xml, "IsAttachable", true);
	if (json_object_get(policy, "description"))
		xml_element(&q->xml, "Description", record_text(policy, "description"));
	query_date(q, "CreateDate", json_integer_value(json_object_get(policy, "created")));
	query_date(q, "UpdateDate", json_integer_value(json_object_get(policy, "updated")));
}

void iam_create_managed(struct query *q)
{
	const char *name = query_need(q, "PolicyName"), *path = entity_path(q, "Path");
	const char *record = name ? entity_record(q, &entity_policy, name) : NULL;
	const char *document = record ? query_need(q, "PolicyDocument") : NULL;
	const char *id = document ? entity_id(q, entity_policy.id_prefix, 17, ENTITY_ID_ALPHABET)
				  : NULL;
	const char *description = entity_description(q), *arn;
	json_t *policy;

	if (!id || !path || q->failed ||
		!(document = entity_check_policy(q, document, POLICY_OF_IDENTITY, 0, DOCUMENT_MAX)))
		return;
	if (directory_get(q->directory, record)) {
		query_fail(q, 409, "EntityAlreadyExists",
			"A policy called %s already exists. Duplicate names are not allowed.",
			name);
		return;
	}
	if (!entity_may_add(q, &entity_policy))
		return;
	policy = json_pack("{s:s,s:s,s:s,s:I,s:I,s:s,s:i,s:{s:{s:s,s:I}}}", "name", name, "path",
		path, "id", id, "created", now_s(), "updated", now_s(), "default", "v1", "next", 2,
		"versions", "v1", "document", document, "created", now_s());
	if (!entity_store(q, record, policy,
		    !policy || (description && json_object_set_new(policy, "description",
						       json_string(description)) < 0)))
		return;
	policy = (json_t *)(uintptr_t)directory_get(q->directory, record);
	arn = entity_arn(q, &entity_policy, policy);
	if (!arn)
		return;
	xml_open(&q->xml, "Policy");
	write_policy(q, arn, policy, NULL);
	xml_close(&q->xml, "Policy");
}

void iam_get_managed(struct query *q)
{
	_cleanup_(s3_json_freep) json_t *holders = NULL;
	const json_t *policy;
	const char *arn;

	if (!find_any(q, &arn, &policy))
		return;
	holders = count_holders(q);
	if (!holders) {
		query_no_memory(q);
		return;
	}
	xml_open(&q->xml, "Policy");
	write_policy(q, arn, policy, holders);
	xml_close(&q->xml, "Policy");
}

/* Returns the ARN if the policy matches the filters of the request, else NULL. If `attached` is not
 * NULL, the policy must be in it. */
static const char *listed(
	const char *arn, const char *path, const char *under, const json_t *attached)
{
	if (!arn || (under && !str_starts(path, under)) ||
		(attached && !json_object_get(attached, arn)))
		return NULL;
	return arn;
}

void iam_list_managed(struct query *q)
{
	const json_t *records = directory_records(q->directory);
	const char *scope = query_value(q, "Scope"), *only = query_value(q, "OnlyAttached");
	const char *prefix = query_text(q, "policy/%s/", q->account), *name, *arn;
	const char *under = query_value(q, "PathPrefix");
	_cleanup_(s3_json_freep) json_t *holders = count_holders(q);
	const json_t *attached = only && strcmp(only, "true") == 0 ? holders : NULL;
	_cleanup_free_ const char **arns = calloc(json_object_size(records) + 16, sizeof(*arns));
	struct entity_page page;
	json_t *policy;
	size_t n = 0;

	if (!arns || !prefix || !holders) {
		query_no_memory(q);
		return;
	}
	for (size_t i = 0; managed_builtin(i) && (!scope || strcmp(scope, "Local") != 0); i++) {
		arn = query_text(q, MANAGED_BUILTIN_ARN "%s", managed_builtin(i)->name);
		if ((arns[n] = listed(arn, "/", under, attached)))
			n++;
	}
	json_object_foreach ((json_t *)(uintptr_t)records, name, policy) {
		if (!str_starts(name, prefix) || (scope && strcmp(scope, "AWS") == 0))
			continue;
		arn = entity_arn(q, &entity_policy, policy);
		if ((arns[n] = listed(arn, record_text(policy, "path"), under, attached)))
			n++;
	}
	if (q->failed || !entity_page(q, arns, n, &page))
		return;
	xml_open(&q->xml, "Policies");
	for (size_t i = 0; i < page.n; i++) {
		xml_open(&q->xml, "member");
		write_policy(
			q, page.names[i], record_by_arn(records, page.names[i], NULL), holders);
		xml_close(&q->xml, "member");
		entity_page_fit(q, &page, i + 1);
	}
	xml_close(&q->xml, "Policies");
	entity_page_end(q, &page);
}

void iam_delete_managed(struct query *q)
{
	const char *arn, *record;
	const json_t *policy = find_policy(q, &arn, &record);
	_cleanup_(s3_json_freep) json_t *holders = policy ? count_holders(q) : NULL;

	if (!policy)
		return;
	if (!holders)
		query_no_memory(q);
	else if (json_object_get(holders, arn))
		query_fail(
			q, 409, "DeleteConflict", "Cannot delete a policy attached to entities.");
	else if (json_object_size(json_object_get(policy, "versions")) > 1)
		query_fail(q, 409, "DeleteConflict",
			"This policy has more than one version. Before you delete a policy, you must "
			"delete the policy's versions. The default version is deleted with the "
			"policy.");
	else
		query_store(q, record, NULL);
}

/* --- versions -------------------------------------------------------------------------------- */

static void write_version(
	struct query *q, const char *id, const char *document, json_int_t created, bool is_default)
{
	_cleanup_(buf_release) struct buf encoded = BUF_INIT(3 * QUERY_MAX);

	if (document) {
		uri_encode(&encoded, document, strlen(document), false);
		xml_element(&q->xml, "Document", buf_str(&encoded));
		if (buf_failed(&encoded))
			query_no_memory(q);
	}
	xml_element(&q->xml, "VersionId", id);
	xml_element_bool(&q->xml, "IsDefaultVersion", is_default);
	query_date(q, "CreateDate", created);
}

static void write_stored_version(
	struct query *q, const json_t *policy, const char *id, bool with_document)
{
	const json_t *version = json_object_get(json_object_get(policy, "versions"), id);

	write_version(q, id, with_document ? record_text(version, "document") : NULL,
		json_integer_value(json_object_get(version, "created")),
		strcmp(record_text(policy, "default"), id) == 0);
}

void iam_create_version(struct query *q)
{
	const char *arn, *record, *id, *document, *as = query_value(q, "SetAsDefault");
	const json_t *policy = find_policy(q, &arn, &record);
	json_int_t number = json_integer_value(json_object_get(policy, "next"));
	json_t *copy, *versions;
	int failed;

	if (!policy || !(document = query_need(q, "PolicyDocument")) ||
		!(document = entity_check_policy(
			  q, document, POLICY_OF_IDENTITY, 0, DOCUMENT_MAX)) ||
		!(id = query_text(q, "v%lld", (long long)number)))
		return;
	if (json_object_size(json_object_get(policy, "versions")) >= VERSIONS_MAX) {
		query_fail(q, 409, "LimitExceeded", "A managed policy can have up to %d versions.",
			VERSIONS_MAX);
		return;
	}
	copy = entity_copy_with(q, policy, "versions", &versions);
	if (!copy)
		return;
	failed = json_object_set_new(versions, id,
			 json_pack("{s:s,s:I}", "document", document, "created", now_s())) < 0 ||
		 json_object_set_new(copy, "next", json_integer(number + 1)) < 0;
	if (!failed && as && strcmp(as, "true") == 0)
		failed = json_object_set_new(copy, "default", json_string(id)) < 0 ||
			 json_object_set_new(copy, "updated", json_integer(now_s())) < 0;
	if (!entity_store(q, record, copy, failed))
		return;
	xml_open(&q->xml, "PolicyVersion");
	write_stored_version(q, directory_get(q->directory, record), id, false);
	xml_close(&q->xml, "PolicyVersion");
}

/* Finds the policy and the version that the request names. Sets the reply and returns NULL on
 * failure. */
static const json_t *find_version(
	struct query *q, const char **arn, const char **record, const char **id)
{
	const json_t *policy = find_policy(q, arn, record);

	*id = policy ? query_need(q, "VersionId") : NULL;
	if (!*id)
		return NULL;
	if (json_object_get(json_object_get(policy, "versions"), *id))
		return policy;
	query_fail(q, 404, "NoSuchEntity",
		"Policy %s version %s does not exist or is not attachable.", *arn, *id);
	return NULL;
}

void iam_get_version(struct query *q)
{
	const char *arn = query_value(q, "PolicyArn"), *id = query_value(q, "VersionId"), *record;
	const struct managed_builtin *builtin = arn ? managed_builtin_find(arn) : NULL;
	const json_t *policy = NULL;

	if (!builtin || !id || strcmp(id, "v1") != 0) {
		policy = find_version(q, &arn, &record, &id);
		if (!policy)
			return;
	}
	xml_open(&q->xml, "PolicyVersion");
	if (policy)
		write_stored_version(q, policy, id, true);
	else
		write_version(q, id, builtin->document, 0, true);
	xml_close(&q->xml, "PolicyVersion");
}

void iam_list_versions(struct query *q)
{
	const json_t *policy;
	const char *arn, *id;
	json_t *version;

	if (!find_any(q, &arn, &policy))
		return;
	xml_open(&q->xml, "Versions");
	if (!policy) {
		xml_open(&q->xml, "member");
		write_version(q, "v1", NULL, 0, true);
		xml_close(&q->xml, "member");
	}
	json_object_foreach (json_object_get(policy, "versions"), id, version) {
		xml_open(&q->xml, "member");
		write_stored_version(q, policy, id, false);
		xml_close(&q->xml, "member");
	}
	xml_close(&q->xml, "Versions");
	xml_element_bool(&q->xml, "IsTruncated", false);
}

void iam_set_version(struct query *q)
{
	const char *arn, *record, *id;
	const json_t *policy = find_version(q, &arn, &record, &id);
	json_t *versions,
		*copy = policy ? entity_copy_with(q, policy, "versions", &versions) : NULL;

	if (copy)
		entity_store(q, record, copy,
			json_object_set_new(copy, "default", json_string(id)) < 0 ||
				json_object_set_new(copy, "updated", json_integer(now_s())) < 0);
}

void iam_delete_version(struct query *q)
{
	const char *arn, *record, *id;
	const json_t *policy = find_version(q, &arn, &record, &id);
	json_t *versions, *copy;

	if (!policy)
		return;
	if (strcmp(record_text(policy, "default"), id) == 0) {
		query_fail(
			q, 409, "DeleteConflict", "Cannot delete the default version of a policy.");
		return;
	}
	copy = entity_copy_with(q, policy, "versions", &versions);
	if (copy)
		entity_store(q, record, copy, json_object_del(versions, id) < 0);
}

/* --- attached policies ----------------------------------------------------------------------- */

static void change_attached(struct query *q, bool attach)
{
	const char *record, *arn, *policy;
	const json_t *entity = entity_find(q, entity_kind_of(q->action), &record);

	if (!entity || !(arn = query_need(q, "PolicyArn")) ||
		(!managed_builtin_find(arn) && !find_policy(q, &arn, &policy)))
		return;
	if (is_attached(entity, arn) == attach) {
		if (!attach)
			query_fail(q, 404, "NoSuchEntity", "Policy %s was not found.", arn);
		return;
	}
	if (attach && json_array_size(json_object_get(entity, "attached")) >= ENTITY_ATTACHED_MAX) {
		query_fail(q, 409, "LimitExceeded", "Cannot exceed quota for attached policies: %d",
			ENTITY_ATTACHED_MAX);
		return;
	}
	entity_store_listed(q, record, entity, "attached", arn, attach);
}

void iam_attach(struct query *q)
{
	change_attached(q, true);
}

void iam_detach(struct query *q)
{
	change_attached(q, false);
}

void iam_list_attached(struct query *q)
{
	const char *record, *under = query_value(q, "PathPrefix");
	const json_t *entity = entity_find(q, entity_kind_of(q->action), &record), *policy;
	const json_t *list = json_object_get(entity, "attached");
	_cleanup_free_ const char **arns = calloc(json_array_size(list) + 1, sizeof(*arns));
	struct entity_page page;
	json_t *attached;
	size_t i, n = 0;

	if (!entity)
		return;
	if (!arns) {
		query_no_memory(q);
		return;
	}
	json_array_foreach (list, i, attached) {
		policy = record_by_arn(
			directory_records(q->directory), json_string_value(attached), NULL);
		if (!under || str_starts(policy ? record_text(policy, "path") : "/", under))
			arns[n++] = json_string_value(attached);
	}
	if (!entity_page(q, arns, n, &page))
		return;
	xml_open(&q->xml, "AttachedPolicies");
	for (i = 0; i < page.n; i++) {
		xml_open(&q->xml, "member");
		xml_element(&q->xml, "PolicyName", strrchr(page.names[i], '/') + 1);
		xml_element(&q->xml, "PolicyArn", page.names[i]);
		xml_close(&q->xml, "member");
	}
	xml_close(&q->xml, "AttachedPolicies");
	entity_page_end(q, &page);
}

static void write_holders(struct query *q, const struct entity_kind *kind, const char *arn)
{
	const char *prefix = query_text(q, "%s/%s/", kind->word, q->account), *name;
	const char *list = query_text(q, "Policy%ss", kind->title);
	const char *id = query_text(q, "%sId", kind->title);
	const char *filter = query_value(q, "EntityFilter");
	json_t *entity;

	if (!prefix || !list || !id)
		return;
	xml_open(&q->xml, list);
	json_object_foreach ((json_t *)(uintptr_t)directory_records(q->directory), name, entity) {
		if (!str_starts(name, prefix) || !is_attached(entity, arn) ||
			(filter && strcmp(filter, kind->title) != 0))
			continue;
		xml_open(&q->xml, "member");
		xml_element(&q->xml, kind->parameter, record_text(entity, "name"));
		xml_element(&q->xml, id, record_text(entity, "id"));
		xml_close(&q->xml, "member");
	}
	xml_close(&q->xml, list);
}

void iam_list_holders(struct query *q)
{
	const json_t *policy;
	const char *arn;

	if (!find_any(q, &arn, &policy))
		return;
	write_holders(q, &entity_group, arn);
	write_holders(q, &entity_user, arn);
	write_holders(q, &entity_role, arn);
	xml_element_bool(&q->xml, "IsTruncated", false);
}

void iam_list_providers(struct query *q)
{
	xml_open(&q->xml, "OpenIDConnectProviderList");
	xml_close(&q->xml, "OpenIDConnectProviderList");
}
