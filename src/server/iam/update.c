/* Changes of existing users, groups and roles. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/directory/directory.h"
#include "server/directory/record.h"
#include "server/iam/actions.h"
#include "server/iam/entity.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* The changes that a new name causes: the old record is removed, the new record is added, and the
 * members of a group get the new name. */
struct renaming {
	struct directory_change *changes;
	size_t n;
};

static void renaming_release(struct renaming *r)
{
	for (size_t i = 0; i < r->n; i++)
		json_decref(r->changes[i].value);
	free(r->changes);
}

/* Adds a change, and takes the reference to `value`. Returns false if `value` is NULL. */
static bool add_change(struct renaming *r, const char *name, json_t *value)
{
	r->changes[r->n++] = (struct directory_change){.name = name, .value = value};
	return value != NULL;
}

/* Adds changes that replace the name of a group in its members. Returns false if out of memory. */
static bool add_members(struct query *q, struct renaming *r, const char *from, const char *to)
{
	const char *name;
	json_t *user, *member;
	size_t i;

	json_object_foreach ((json_t *)(uintptr_t)directory_records(q->directory), name, user)
		json_array_foreach (json_object_get(user, "groups"), i, member) {
			json_t *copy;

			if (strcmp(json_string_value(member), from) != 0)
				continue;
			copy = json_deep_copy(user);
			if (!add_change(r, name, copy) ||
				json_array_set_new(
					json_object_get(copy, "groups"), i, json_string(to)) < 0)
				return false;
		}
	return true;
}

static void rename_entity(struct query *q, const char *from, const char *to, json_t *copy)
{
	_cleanup_(renaming_release) struct renaming r = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	enum store_status status;

	r.changes = calloc(
		json_object_size(directory_records(q->directory)) + 2, sizeof(*r.changes));
	if (!r.changes) {
		json_decref(copy);
		query_no_memory(q);
		return;
	}
	if (strcmp(from, to) != 0)
		add_change(&r, from, NULL);
	add_change(&r, to, copy);
	if (strcmp(from, to) != 0 && !add_members(q, &r, from, to)) {
		query_no_memory(q);
		return;
	}
	status = directory_change(q->directory, r.changes, r.n, &err);
	if (status != STORE_OK) {
		q->failed = true;
		reply_unless_stored(q->req, status, &err);
	}
}

/* Handles UpdateUser and UpdateGroup. */
void iam_update(struct query *q)
{
	const struct entity_kind *kind = entity_kind_of(q->action);
	const char *parameter = query_text(q, "New%s", kind->parameter), *record, *to;
	const json_t *entity = entity_find(q, kind, &record);
	const char *name = parameter ? query_value(q, parameter) : NULL;
	const char *path = query_value(q, "NewPath") ? entity_path(q, "NewPath") : NULL;
	json_t *copy;

	if (!entity || q->failed)
		return;
	to = name ? entity_record(q, kind, name) : record;
	if (!to)
		return;
	if (strcmp(to, record) != 0 && directory_get(q->directory, to)) {
		query_fail(q, 409, "EntityAlreadyExists", "%s with name %s already exists.",
			kind->title, name);
		return;
	}
	copy = json_deep_copy(entity);
	if (!copy || (name && json_object_set_new(copy, "name", json_string(name)) < 0) ||
		(path && json_object_set_new(copy, "path", json_string(path)) < 0)) {
		json_decref(copy);
		query_no_memory(q);
		return;
	}
	/* Policies name entities by their ARN, so the sender needs rights for the old and the new
	 * ARN. */
	if (query_may(q, query_text(q, "iam:%s", q->action), entity_arn(q, kind, copy)))
		rename_entity(q, record, to, copy);
	else
		json_decref(copy);
}

void iam_update_role(struct query *q)
{
	const char *record, *description = entity_description(q);
	const json_t *role = entity_find(q, &entity_role, &record);
	uint64_t seconds = (uint64_t)json_integer_value(json_object_get(role, "max"));
	json_t *copy;

	if (!role || q->failed || !query_number(q, "MaxSessionDuration", 3600, 43200, &seconds))
		return;
	copy = json_deep_copy(role);
	entity_store(q, record, copy,
		!copy || json_object_set_new(copy, "max", json_integer((json_int_t)seconds)) < 0 ||
			(description && json_object_set_new(copy, "description",
						json_string(description)) < 0));
}

void iam_update_trust(struct query *q)
{
	const char *record, *document;
	const json_t *role = entity_find(q, &entity_role, &record);
	json_t *copy;

	if (!role || !(document = query_need(q, "PolicyDocument")) ||
		!(document = entity_check_policy(q, document, POLICY_OF_ROLE, 0, ENTITY_TRUST_MAX)))
		return;
	copy = json_deep_copy(role);
	entity_store(q, record, copy,
		!copy || json_object_set_new(copy, "trust", json_string(document)) < 0);
}
