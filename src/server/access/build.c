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
		be_root(identity))
		return identity;
	identity_unref(identity);
	return NULL;
}
