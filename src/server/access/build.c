#include "server/access/build.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"

struct build_account build_account_of(const char *name)
{
	const char *number = strchr(name, '/');
	struct build_account account = {""};
	size_t len;

	number = number ? number + 1 : name;
	len = strcspn(number, "/");
	if (len < sizeof(account.number))
		memcpy(account.number, number, len);
	return account;
}

static const char *text_of(const json_t *record, const char *member)
{
	const char *text = json_string_value(json_object_get(record, member));

	return text ? text : "";
}

/* Returns a text of the identity, or NULL if out of memory. */
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

static bool add_policies(struct identity *identity, const json_t *record)
{
	json_t *policies = json_object_get(record, "policies"), *document;
	const char *name;

	json_object_foreach (policies, name, document)
		if (!identity_add_document(identity, &identity->own, json_string_value(document)))
			return false;
	return true;
}

static bool be_user(struct identity *identity, const json_t *records, const json_t *record)
{
	json_t *group;
	size_t i;

	identity->kind = IDENTITY_USER;
	identity->user_name = own(identity, text_of(record, "name"));
	identity->user_id = own(identity, text_of(record, "id"));
	identity->arn = ownf(identity, "arn:aws:iam::%s:user%s%s", identity->account,
		text_of(record, "path"), text_of(record, "name"));
	identity->principal_arn = identity->arn;
	if (!identity->user_name || !identity->user_id || !identity->arn ||
		!add_policies(identity, record))
		return false;
	json_array_foreach (json_object_get(record, "groups"), i, group)
		if (!add_policies(identity, json_object_get(records, json_string_value(group))))
			return false;
	return true;
}

struct identity *build_identity(const struct build_source *from, enum s3_error *problem)
{
	const json_t *record = json_object_get(from->records, from->name);
	const json_t *key = json_object_get(json_object_get(record, "keys"), from->access_key_id);
	const char *secret = from->secret_access_key ? from->secret_access_key
						     : text_of(key, "secret");
	struct identity *identity;

	*problem = S3_E_INVALID_ACCESS_KEY_ID;
	if (!from->owner || !*secret || (key && !json_is_true(json_object_get(key, "active"))))
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
	if (identity->record && identity->access_key_id && identity->secret_access_key &&
		(str_starts(from->name, "user/") ? be_user(identity, from->records, record)
						 : be_root(identity)))
		return identity;
	identity_unref(identity);
	return NULL;
}
