#include "server/iam/entity.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/access/policy.h"
#include "s3/message/xml.h"
#include "s3/uri.h"
#include "server/directory/directory.h"
#include "server/directory/record.h"
#include "server/iam/actions.h"
#include "server/request/request.h"

const struct entity_kind entity_user = {"user", "User", "UserName", "AIDA", 5000};
const struct entity_kind entity_group = {"group", "Group", "GroupName", "AGPA", 300};
const struct entity_kind entity_role = {"role", "Role", "RoleName", "AROA", 1000};
const struct entity_kind entity_policy = {"policy", "Policy", "PolicyName", "ANPA", 1500};

const struct entity_kind *entity_kind_of(const char *action)
{
	if (strstr(action, "Role"))
		return &entity_role;
	if (strstr(action, "Group") && !strstr(action, "ForUser"))
		return &entity_group;
	return strstr(action, "User") || !strstr(action, "Polic") ? &entity_user : &entity_policy;
}

/* --- names ----------------------------------------------------------------------------------- */

bool entity_is_name(const char *name, size_t most)
{
	size_t n = strlen(name);

	return n && n <= most &&
	       strspn(name,
		       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+=,.@-") ==
		       n;
}

const char *entity_path(struct query *q, const char *parameter)
{
	const char *path = query_value(q, parameter);
	size_t n = path ? strlen(path) : 0;
	bool ok = !path || (n && n <= 512 && path[0] == '/' && path[n - 1] == '/');

	for (const char *p = path; ok && p && *p; p++)
		ok = *p >= '!' && *p <= '~';
	if (ok)
		return path ? path : "/";
	query_fail(q, 400, "ValidationError", "The path must begin and end with /");
	return NULL;
}

const char *entity_record(struct query *q, const struct entity_kind *kind, const char *name)
{
	size_t most = kind == &entity_group || kind == &entity_policy ? 128 : 64;
	char *record;

	if (!entity_is_name(name, most)) {
		query_fail(q, 400, "ValidationError",
			"The name must have 1 to %zu characters: letters, digits and _+=,.@-",
			most);
		return NULL;
	}
	record = (char *)(uintptr_t)query_text(q, "%s/%s/%s", kind->word, q->account, name);
	for (char *p = record; p && *p; p++)
		*p = (char)tolower((unsigned char)*p);
	return record;
}

const json_t *entity_find(struct query *q, const struct entity_kind *kind, const char **record)
{
	const char *name = query_need(q, kind->parameter);
	const json_t *found;

	*record = name ? entity_record(q, kind, name) : NULL;
	if (!*record)
		return NULL;
	found = directory_get(q->directory, *record);
	if (!found)
		query_fail(q, 404, "NoSuchEntity", "The %s with name %s cannot be found.",
			kind->word, name);
	return found;
}

const json_t *entity_find_user(struct query *q, const char **record)
{
	if (query_value(q, "UserName"))
		return entity_find(q, &entity_user, record);
	if (q->who->kind == IDENTITY_ROLE) {
		query_fail(q, 400, "ValidationError",
			"The keys of a role belong to no user; send UserName");
		return NULL;
	}
	*record = q->who->record;
	return directory_get(q->directory, *record);
}

/* Returns true for an action on a whole account. Such an action ignores names in the request. */
static bool is_about_all(const char *action)
{
	static const char *const actions[] = {"GetAccountSummary", "ListGroups",
		"ListOpenIDConnectProviders", "ListPolicies", "ListRoles", "ListUsers"};

	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(actions[i], action) == 0)
			return true;
	return false;
}

const char *entity_resource(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	/* A request for a new policy has no ARN; the ARN is formed from the name. */
	bool has_arn = kind == &entity_policy && strcmp(q->action, "CreatePolicy") != 0;
	const char *arn = has_arn ? query_value(q, "PolicyArn") : NULL;
	const char *name = query_value(q, kind->parameter), *record, *path;
	const json_t *found;

	if (is_about_all(q->action))
		return "*";
	if (arn && strlen(arn) > LIMIT_POLICY_VALUE) {
		query_fail(q, 400, "ValidationError", "PolicyArn must have at most %d characters",
			LIMIT_POLICY_VALUE);
		return NULL;
	}
	if (arn)
		return arn;
	if (!name)
		return kind == &entity_user ? q->who->principal_arn : "*";
	record = entity_record(q, kind, name);
	found = record ? directory_get(q->directory, record) : NULL;
	if (found || !record)
		return found ? entity_arn(q, kind, found) : NULL;
	path = entity_path(q, "Path");
	return path ? query_text(q, "arn:aws:iam::%s:%s%s%s", q->account, kind->word, path, name)
		    : NULL;
}

/* Copies a JSON document without white space between tokens to `out`, which may be NULL. Returns
 * the length. */
static size_t compact(const char *document, char *out)
{
	bool in_string = false, escaped = false;
	size_t n = 0;

	for (const char *p = document; *p; p++) {
		if (!in_string && isspace((unsigned char)*p))
			continue;
		if (*p == '"' && !escaped)
			in_string = !in_string;
		escaped = *p == '\\' && !escaped;
		if (out)
			out[n] = *p;
		n++;
	}
	if (out)
		out[n] = '\0';
	return n;
}

size_t entity_policy_size(const char *document)
{
	return compact(document, NULL);
}

const char *entity_check_policy(
	struct query *q, const char *document, enum policy_kind kind, size_t others, size_t most)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct policy *policy = NULL;
	int rc = policy_parse(document, strlen(document), kind, NULL, &policy, &err);
	char *stored = NULL;

	policy_free(policy);
	if (rc == -PENSTOCK_E_MEMORY)
		query_no_memory(q);
	else if (rc < 0)
		query_fail(q, 400, "MalformedPolicyDocument", "%s",
			err.message ? err.message : "The policy is not valid");
	penstock_error_release(&err);
	if (rc < 0)
		return NULL;
	stored = request_strdup(q->req, document);
	if (!stored)
		query_no_memory(q);
	else if (others + compact(document, stored) <= most)
		return stored;
	else
		query_fail(
			q, 409, "LimitExceeded", "Maximum policy size of %zu bytes exceeded", most);
	return NULL;
}

const char *entity_description(struct query *q)
{
	const char *text = query_value(q, "Description");
	size_t n = 0;

	for (const char *p = text; p && *p; p++)
		n += ((unsigned char)*p & 0xc0) != 0x80; /* a byte that begins a character */
	if (n <= ENTITY_DESCRIPTION_MAX)
		return text;
	query_fail(q, 400, "ValidationError", "Description must have at most %d characters",
		ENTITY_DESCRIPTION_MAX);
	return NULL;
}

const char *entity_id(struct query *q, const char *prefix, size_t n, const char *alphabet)
{
	unsigned char random[64];
	char text[sizeof(random) + 1];
	size_t size = strlen(alphabet);

	if (n > sizeof(random) || getrandom(random, n, 0) != (ssize_t)n) {
		query_fail(q, 500, "ServiceFailure", "Cannot generate an id");
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		text[i] = alphabet[random[i] % size]; /* `size` is a power of 2: no bias */
	text[n] = '\0';
	return query_text(q, "%s%s", prefix, text);
}

const char *entity_arn(struct query *q, const struct entity_kind *kind, const json_t *entity)
{
	return query_text(q, "arn:aws:iam::%s:%s%s%s", q->account, kind->word,
		record_text(entity, "path"), record_text(entity, "name"));
}

/* --- changing -------------------------------------------------------------------------------- */

json_t *entity_copy_with(struct query *q, const json_t *entity, const char *member, json_t **part)
{
	json_t *copy = entity ? json_deep_copy(entity) : json_object();

	if (copy && !json_object_get(copy, member))
		json_object_set_new(copy, member, json_object());
	*part = json_object_get(copy, member);
	if (*part)
		return copy;
	json_decref(copy);
	query_no_memory(q);
	return NULL;
}

bool entity_store(struct query *q, const char *record, json_t *copy, int failed)
{
	if (!failed)
		return query_store(q, record, copy);
	json_decref(copy);
	return query_no_memory(q);
}

/* Returns a copy of a list without `text`, or NULL if out of memory. */
static json_t *list_without(const json_t *list, const char *text)
{
	json_t *rest = json_array(), *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (strcmp(json_string_value(item), text) != 0 &&
			json_array_append(rest, item) < 0) {
			json_decref(rest);
			return NULL;
		}
	return rest;
}

bool entity_store_listed(struct query *q, const char *record, const json_t *entity,
	const char *member, const char *text, bool add)
{
	json_t *list = list_without(json_object_get(entity, member), text);
	json_t *copy = json_deep_copy(entity);

	if (add && list && json_array_append_new(list, json_string(text)) < 0) {
		json_decref(list);
		list = NULL;
	}
	return entity_store(q, record, copy, !copy || json_object_set_new(copy, member, list) < 0);
}

/* --- writing --------------------------------------------------------------------------------- */

void entity_write(struct query *q, const struct entity_kind *kind, const json_t *entity)
{
	const char *arn = entity_arn(q, kind, entity);
	const char *id = query_text(q, "%sId", kind->title);
	_cleanup_(buf_release) struct buf trust = BUF_INIT(3 * QUERY_MAX);

	if (!arn || !id)
		return;
	xml_element(&q->xml, "Path", record_text(entity, "path"));
	xml_element(&q->xml, kind->parameter, record_text(entity, "name"));
	xml_element(&q->xml, id, record_text(entity, "id"));
	xml_element(&q->xml, "Arn", arn);
	query_date(q, "CreateDate", json_integer_value(json_object_get(entity, "created")));
	if (kind != &entity_role)
		return;
	uri_encode(
		&trust, record_text(entity, "trust"), strlen(record_text(entity, "trust")), false);
	xml_element(&q->xml, "AssumeRolePolicyDocument", buf_str(&trust));
	if (json_object_get(entity, "description"))
		xml_element(&q->xml, "Description", record_text(entity, "description"));
	xml_element_u64(&q->xml, "MaxSessionDuration",
		(uint64_t)json_integer_value(json_object_get(entity, "max")));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool entity_page(struct query *q, const char **names, size_t n, struct entity_page *out)
{
	const char *marker = query_value(q, "Marker");
	uint64_t most = 100;
	size_t from = 0;

	if (!query_number(q, "MaxItems", 1, 1000, &most))
		return false;
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	while (marker && from < n && strcmp(names[from], marker) <= 0)
		from++;
	out->names = names + from;
	out->n = n - from > most ? (size_t)most : n - from;
	out->truncated = n - from > most;
	return true;
}

void entity_page_fit(struct query *q, struct entity_page *page, size_t n)
{
	if (n == page->n || q->xml.len < LIMIT_LIST_REPLY / 2)
		return;
	page->n = n;
	page->truncated = true;
}

void entity_page_end(struct query *q, const struct entity_page *page)
{
	xml_element_bool(&q->xml, "IsTruncated", page->truncated);
	if (page->truncated)
		xml_element(&q->xml, "Marker", page->names[page->n - 1]);
}

/* --- quotas ---------------------------------------------------------------------------------- */

static uint64_t count(struct query *q, const struct entity_kind *kind)
{
	const char *prefix = query_text(q, "%s/%s/", kind->word, q->account), *name;
	json_t *record;
	uint64_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)directory_records(q->directory), name, record)
		n += prefix && str_starts(name, prefix);
	return n;
}

bool entity_may_add(struct query *q, const struct entity_kind *kind)
{
	return count(q, kind) < kind->quota ||
	       query_fail(q, 409, "LimitExceeded", "Cannot exceed quota for %s records: %llu",
		       kind->title, (unsigned long long)kind->quota);
}

/* --- actions --------------------------------------------------------------------------------- */

/* Adds the members that only roles have. Sets the reply and returns false on failure. */
static bool describe_role(struct query *q, json_t *role)
{
	const char *trust = query_need(q, "AssumeRolePolicyDocument");
	const char *description = entity_description(q);
	uint64_t seconds = 3600;

	if (!trust || q->failed || !query_number(q, "MaxSessionDuration", 3600, 43200, &seconds) ||
		!(trust = entity_check_policy(q, trust, POLICY_OF_ROLE, 0, ENTITY_TRUST_MAX)))
		return false;
	return (json_object_set_new(role, "trust", json_string(trust)) == 0 &&
		       json_object_set_new(role, "max", json_integer((json_int_t)seconds)) == 0 &&
		       (!description || json_object_set_new(role, "description",
						json_string(description)) == 0)) ||
	       query_no_memory(q);
}

void iam_create(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *name = query_need(q, kind->parameter), *path = entity_path(q, "Path");
	const char *record = name ? entity_record(q, kind, name) : NULL;
	const char *id = record ? entity_id(q, kind->id_prefix, 17, ENTITY_ID_ALPHABET) : NULL;
	json_t *entity;

	if (!id || !path)
		return;
	if (directory_get(q->directory, record)) {
		query_fail(q, 409, "EntityAlreadyExists", "%s with name %s already exists.",
			kind->title, name);
		return;
	}
	if (!entity_may_add(q, kind))
		return;
	entity = json_pack("{s:s,s:s,s:s,s:I}", "name", name, "path", path, "id", id, "created",
		(json_int_t)(clock_wall_ns() / NS_PER_S));
	if (!entity) {
		query_no_memory(q);
		return;
	}
	if (kind == &entity_role && !describe_role(q, entity)) {
		json_decref(entity);
		return;
	}
	if (!query_store(q, record, entity))
		return;
	xml_open(&q->xml, kind->title);
	entity_write(q, kind, directory_get(q->directory, record));
	xml_close(&q->xml, kind->title);
}

/* Writes the root of an account as a user with the name of the account. */
static void write_root(struct query *q)
{
	const char *arn = query_text(q, "arn:aws:iam::%s:root", q->account);

	xml_open(&q->xml, "User");
	xml_element(&q->xml, "Path", "/");
	xml_element(&q->xml, "UserName", q->who->owner->name);
	xml_element(&q->xml, "UserId", q->account);
	xml_element(&q->xml, "Arn", arn);
	query_date(q, "CreateDate", 0);
	xml_close(&q->xml, "User");
}

static void write_members(struct query *q, const char *group)
{
	const json_t *records = directory_records(q->directory);
	const char *prefix = query_text(q, "user/%s/", q->account), *name;
	json_t *user, *member;
	size_t i;

	xml_open(&q->xml, "Users");
	json_object_foreach ((json_t *)(uintptr_t)records, name, user) {
		if (!prefix || !str_starts(name, prefix))
			continue;
		json_array_foreach (json_object_get(user, "groups"), i, member) {
			if (strcmp(json_string_value(member), group) != 0)
				continue;
			xml_open(&q->xml, "member");
			entity_write(q, &entity_user, user);
			xml_close(&q->xml, "member");
		}
	}
	xml_close(&q->xml, "Users");
	xml_element_bool(&q->xml, "IsTruncated", false);
}

void iam_get(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *record;
	const json_t *entity;

	if (kind == &entity_user && !query_value(q, "UserName") && q->who->is_root) {
		write_root(q);
		return;
	}
	entity = kind == &entity_user ? entity_find_user(q, &record)
				      : entity_find(q, kind, &record);
	if (!entity)
		return;
	xml_open(&q->xml, kind->title);
	entity_write(q, kind, entity);
	xml_close(&q->xml, kind->title);
	if (kind == &entity_group)
		write_members(q, record);
}

void iam_list(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *under = query_value(q, "PathPrefix"), *name;
	const char *prefix = query_text(q, "%s/%s/", kind->word, q->account);
	const char *list = query_text(q, "%ss", kind->title);
	const json_t *records = directory_records(q->directory);
	_cleanup_free_ const char **names = NULL;
	struct entity_page page = {0};
	json_t *entity;
	size_t n = 0;

	if (!prefix || !list)
		return;
	names = calloc(json_object_size(records) + 1, sizeof(*names));
	if (!names) {
		query_no_memory(q);
		return;
	}
	json_object_foreach ((json_t *)(uintptr_t)records, name, entity)
		if (str_starts(name, prefix) &&
			(!under || str_starts(record_text(entity, "path"), under)))
			names[n++] = name;
	if (!entity_page(q, names, n, &page))
		return;
	xml_open(&q->xml, list);
	for (size_t i = 0; i < page.n; i++) {
		xml_open(&q->xml, "member");
		entity_write(q, kind, directory_get(q->directory, page.names[i]));
		xml_close(&q->xml, "member");
		entity_page_fit(q, &page, i + 1);
	}
	xml_close(&q->xml, list);
	entity_page_end(q, &page);
}

static bool has_members(struct query *q, const char *group)
{
	const char *name;
	json_t *user, *member;
	size_t i;

	json_object_foreach ((json_t *)(uintptr_t)directory_records(q->directory), name, user)
		json_array_foreach (json_object_get(user, "groups"), i, member)
			if (strcmp(json_string_value(member), group) == 0)
				return true;
	return false;
}

/* As with AWS, an entity with policies, keys or members is not deleted. */
void iam_delete(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *record, *left = NULL;
	const json_t *entity = entity_find(q, kind, &record);

	if (!entity)
		return;
	if (json_object_size(json_object_get(entity, "policies")))
		left = "must delete policies first.";
	else if (json_array_size(json_object_get(entity, "attached")))
		left = "must detach all policies first.";
	else if (json_object_size(json_object_get(entity, "keys")))
		left = "must delete access keys first.";
	else if (json_array_size(json_object_get(entity, "groups")))
		left = "must remove users from group first.";
	else if (kind == &entity_group && has_members(q, record))
		left = "must remove users from group first.";
	if (left)
		query_fail(q, 409, "DeleteConflict", "Cannot delete entity, %s", left);
	else
		query_store(q, record, NULL);
}

/* --- the account ----------------------------------------------------------------------------- */

void iam_summary(struct query *q)
{
	const struct {
		const char *key;
		uint64_t value;
	} rows[] = {
		{"Users", count(q, &entity_user)},
		{"Groups", count(q, &entity_group)},
		{"Roles", count(q, &entity_role)},
		{"Policies", count(q, &entity_policy)},
		{"UsersQuota", entity_user.quota},
		{"GroupsQuota", entity_group.quota},
		{"RolesQuota", entity_role.quota},
		{"PoliciesQuota", entity_policy.quota},
		{"AccessKeysPerUserQuota", ENTITY_KEYS_MAX},
		{"GroupsPerUserQuota", ENTITY_GROUPS_MAX},
		{"AttachedPoliciesPerUserQuota", ENTITY_ATTACHED_MAX},
		{"AttachedPoliciesPerGroupQuota", ENTITY_ATTACHED_MAX},
		{"AttachedPoliciesPerRoleQuota", ENTITY_ATTACHED_MAX},
	};

	xml_open(&q->xml, "SummaryMap");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		xml_open(&q->xml, "entry");
		xml_element(&q->xml, "key", rows[i].key);
		xml_element_u64(&q->xml, "value", rows[i].value);
		xml_close(&q->xml, "entry");
	}
	xml_close(&q->xml, "SummaryMap");
}
