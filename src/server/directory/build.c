#include "server/directory/build.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "server/directory/managed.h"
#include "server/directory/record.h"

/* Returns a copy of a text that lives as long as the identity, or NULL if out of memory. */
static const char *own(struct identity *identity, const char *text)
{
	return arena_copy(&identity->arena, text, strlen(text));
}

static const char *ownf(struct identity *identity, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static const char *ownf(struct identity *identity, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return buf_failed(&text) ? NULL : own(identity, buf_str(&text));
}

static bool be_root(struct identity *identity)
{
	identity->kind = IDENTITY_ROOT;
	identity->is_root = true;
	identity->arn = ownf(identity, "arn:aws:iam::%s:root", identity->account);
	identity->principal_arn = identity->arn;
	identity->user_id = identity->account;
	return identity->arn != NULL;
}

/* Adds managed policies to the documents `to`. A missing policy denies everything. */
static bool add_managed(struct identity *identity, struct identity_documents *to,
	const struct build_source *from, const json_t *arns)
{
	json_t *arn;
	size_t i;

	json_array_foreach (arns, i, arn) {
		const char *document = managed_document(from->records, json_string_value(arn));

		if (!identity_add_document(identity, to, document ? document : "", from->documents))
			return false;
	}
	return true;
}

/* Adds the policies of a user, a group or a role. */
static bool add_policies(
	struct identity *identity, const struct build_source *from, const json_t *record)
{
	json_t *policies = json_object_get(record, "policies"), *document;
	const char *name;

	json_object_foreach (policies, name, document)
		if (!identity_add_document(
			    identity, &identity->own, json_string_value(document), from->documents))
			return false;
	return add_managed(identity, &identity->own, from, json_object_get(record, "attached"));
}

static bool be_user(
	struct identity *identity, const struct build_source *from, const json_t *record)
{
	json_t *group;
	size_t i;

	identity->kind = IDENTITY_USER;
	identity->user_name = own(identity, record_text(record, "name"));
	identity->user_id = own(identity, record_text(record, "id"));
	identity->arn = ownf(identity, "arn:aws:iam::%s:user%s%s", identity->account,
		record_text(record, "path"), record_text(record, "name"));
	identity->principal_arn = identity->arn;
	if (!identity->user_name || !identity->user_id || !identity->arn ||
		!add_policies(identity, from, record))
		return false;
	json_array_foreach (json_object_get(record, "groups"), i, group)
		if (!add_policies(identity, from,
			    json_object_get(from->records, json_string_value(group))))
			return false;
	return true;
}

static bool be_role(
	struct identity *identity, const struct build_source *from, const json_t *record)
{
	const char *session_name = record_text(from->session, "name");

	identity->kind = IDENTITY_ROLE;
	identity->user_id = ownf(identity, "%s:%s", record_text(record, "id"), session_name);
	identity->arn = ownf(identity, "arn:aws:sts::%s:assumed-role/%s/%s", identity->account,
		record_text(record, "name"), session_name);
	identity->principal_arn = ownf(identity, "arn:aws:iam::%s:role%s%s", identity->account,
		record_text(record, "path"), record_text(record, "name"));
	return identity->user_id && identity->arn && identity->principal_arn &&
	       add_policies(identity, from, record);
}

/* Sets the members that only the identity of a temporary key has. */
static bool be_temporary(struct identity *identity, const struct build_source *from)
{
	const char *policy = json_string_value(json_object_get(from->session, "policy"));

	identity->is_temporary = true;
	identity->issued_s = json_integer_value(json_object_get(from->session, "issued"));
	identity->expires_s = json_integer_value(json_object_get(from->session, "expires"));
	identity->token = own(identity, from->token);
	return identity->token &&
	       (!policy || identity_add_document(
				   identity, &identity->session, policy, from->documents)) &&
	       add_managed(
		       identity, &identity->session, from, json_object_get(from->session, "arns"));
}

/* Returns true if the operator has revoked the account (server/directory/accounts.h). */
static bool is_revoked(const json_t *records, const char *number)
{
	char name[sizeof("account/") + STORE_OWNER_SIZE];

	snprintf(name, sizeof(name), "account/%s", number);
	return json_is_true(json_object_get(json_object_get(records, name), "revoked"));
}

struct identity *build_identity(const struct build_source *from, enum s3_error *problem)
{
	const json_t *record = json_object_get(from->records, from->name);
	const json_t *key = json_object_get(json_object_get(record, "keys"), from->access_key_id);
	const char *secret = from->secret_access_key ? from->secret_access_key
						     : record_text(key, "secret");
	struct identity *identity;
	bool ok;

	*problem = S3_E_INVALID_ACCESS_KEY_ID;
	if (!from->owner || !*secret || is_revoked(from->records, from->owner->number) ||
		is_revoked(from->records, record_text(from->session, "account")) ||
		(key && !json_is_true(json_object_get(key, "active"))))
		return NULL;
	*problem = S3_E_SLOW_DOWN;
	identity = identity_new();
	if (!identity)
		return NULL;
	identity->owner = from->owner;
	memcpy(identity->account, from->owner->number, sizeof(identity->account));
	identity->record = own(identity, from->name);
	identity->access_key_id = own(identity, from->access_key_id);
	identity->secret_access_key = own(identity, secret);
	ok = identity->record && identity->access_key_id && identity->secret_access_key;
	if (ok && str_starts(from->name, "user/"))
		ok = be_user(identity, from, record);
	else if (ok && str_starts(from->name, "role/"))
		ok = be_role(identity, from, record);
	else if (ok)
		ok = be_root(identity);
	if (ok && from->session)
		ok = be_temporary(identity, from);
	if (ok)
		return identity;
	identity_unref(identity);
	return NULL;
}
