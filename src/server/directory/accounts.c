#include "server/directory/accounts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "s3/json.h"
#include "s3/sign/sigv4.h"
#include "server/directory/directory.h"
#include "server/directory/record.h"

static int invalid(const char *path, size_t i, const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID, "cannot read account %zu of '%s': %s", i + 1,
		path, reason);
}

/* Returns true for an entry with "access_key_id": null, whose account is revoked. */
static bool is_revoked(const json_t *entry)
{
	return json_is_null(json_object_get(entry, "access_key_id"));
}

/* Returns the problem of the first invalid member, or NULL if all members are valid. */
static const char *problem_of(const struct directory *d, const json_t *entry, const char *record)
{
	const char *id = record_member(entry, "id"), *key = record_member(entry, "access_key_id");
	const char *number = record_member(entry, "number"),
		   *secret = record_member(entry, "secret_access_key");
	const char *holder = key ? directory_key_holder(d, key) : NULL;

	if (!number || !account_is_number(number))
		return "number must have 12 digits";
	if (strcmp(number, ACCOUNT_FIRST) == 0)
		return "000000000000 is the account of the store's own keys";
	if (!json_is_string(json_object_get(entry, "name")))
		return "name is missing";
	if (!is_revoked(entry) &&
		(!key || !*key || strlen(key) > SIGV4_ACCESS_KEY_MAX || !secret || !*secret))
		return "access_key_id or secret_access_key is missing or invalid; "
		       "access_key_id may be null to revoke the account";
	if (holder && strcmp(holder, record) != 0)
		return "the access key has another owner";
	if (id && (strlen(id) != 64 || strspn(id, "0123456789abcdef") != 64))
		return "id must have 64 hexadecimal digits";
	return NULL;
}

/* --- records --------------------------------------------------------------------------------- */

/* Sets the key that the file has for the account, and records its id in "file_key". Keys that the
 * account has created itself are kept. In a record without "file_key", which an older version of
 * penstock has written, all keys came from the file and are replaced. If the file still has the
 * same key, a key that the account has deactivated or deleted stays deactivated or deleted. */
static int set_keys(json_t *record, const json_t *entry)
{
	const json_t *before = json_object_get(record, "file_key");
	const char *id = record_member(entry, "access_key_id");
	json_t *keys = before ? json_object_get(record, "keys") : NULL;

	if (id && json_is_string(before) && strcmp(id, json_string_value(before)) == 0) {
		json_t *key = json_object_get(keys, id);

		return key ? json_object_set(
				     key, "secret", json_object_get(entry, "secret_access_key"))
			   : 0;
	}
	if (json_is_string(before))
		json_object_del(keys, json_string_value(before));
	if (!keys && json_object_set_new(record, "keys", json_object()) < 0)
		return -1;
	keys = json_object_get(record, "keys");
	if (is_revoked(entry))
		return json_object_set_new(record, "file_key", json_null()) < 0 ||
				       json_object_set_new(record, "revoked", json_true()) < 0
			       ? -1
			       : 0;
	json_object_del(record, "revoked");
	return json_object_set_new(record, "file_key", json_string(id)) < 0 ||
			       json_object_set_new(keys, id,
				       json_pack("{s:O,s:b,s:I}", "secret",
					       json_object_get(entry, "secret_access_key"),
					       "active", 1, "created",
					       (json_int_t)(clock_wall_ns() / NS_PER_S))) < 0
		       ? -1
		       : 0;
}

/* Sets the canonical id: the id in the file, else the old id, else a random id. */
static int set_id(json_t *record, const json_t *entry)
{
	unsigned char random[32];
	char hex[65];

	if (record_member(entry, "id"))
		return json_object_set(record, "id", json_object_get(entry, "id"));
	if (record_member(record, "id"))
		return 0;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -1;
	str_hex(random, sizeof(random), hex);
	return json_object_set_new(record, "id", json_string(hex));
}

/* Creates the record of an account; members that the account already has are kept. Returns NULL if
 * out of memory. */
static json_t *record_of(const json_t *entry, const json_t *old)
{
	json_t *record = old ? json_deep_copy(old) : json_object();

	if (record && set_id(record, entry) == 0 &&
		json_object_set(record, "name", json_object_get(entry, "name")) == 0 &&
		(!record_member(entry, "email") ||
			json_object_set(record, "email", json_object_get(entry, "email")) == 0) &&
		set_keys(record, entry) == 0)
		return record;
	json_decref(record);
	return NULL;
}

/* --- the accounts together ------------------------------------------------------------------- */

static bool is_same(const json_t *a, const json_t *b, const char *member)
{
	const char *x = record_member(a, member), *y = record_member(b, member);

	return x && y && strcasecmp(x, y) == 0;
}

/* Returns the problem if another account has the same id, email address or access key, else
 * NULL. */
static const char *clash_of(const json_t *records, const char *name, const char *key)
{
	const json_t *record = json_object_get(records, name), *other;
	const char *other_name;

	if (strcmp(record_member(record, "id"), ACCOUNT_FIRST_ID) == 0)
		return "the id is that of the account 000000000000";
	json_object_foreach ((json_t *)(uintptr_t)records, other_name, other) {
		if (strcmp(other_name, name) == 0 || !str_starts(other_name, "account/"))
			continue;
		if (is_same(record, other, "id"))
			return "the id is that of another account";
		if (is_same(record, other, "email"))
			return "the email address is that of another account";
		if (key && json_object_get(json_object_get(other, "keys"), key))
			return "the access key has another owner";
	}
	return NULL;
}

/* Adds the record of an entry to `changed`; the entry gets the name of the record as "record". */
static int add(struct directory *d, const char *path, size_t i, json_t *entry, json_t *changed,
	struct penstock_error *err)
{
	const char *number = record_member(entry, "number");
	_cleanup_free_ char *name = str_printf("account/%s", number ? number : "");
	const char *problem = name ? problem_of(d, entry, name) : NULL;

	if (!name)
		return error_memory(err);
	if (!problem && json_object_get(changed, name))
		problem = "the number is repeated";
	if (problem)
		return invalid(path, i, problem, err);
	if (json_object_set_new(entry, "record", json_string(name)) < 0 ||
		json_object_set_new(changed, name, record_of(entry, directory_get(d, name))) < 0)
		return error_memory(err);
	return 0;
}

/* Compares the accounts with each other and with the accounts of the store. */
static int check(const struct directory *d, const char *path, const json_t *list, json_t *changed,
	struct penstock_error *err)
{
	_cleanup_(s3_json_freep) json_t *all = json_copy((json_t *)(uintptr_t)directory_records(d));

	if (!all || json_object_update(all, changed) < 0)
		return error_memory(err);
	/* Starts at the end, so that the later of two accounts with the same value is reported. */
	for (size_t i = json_array_size(list); i-- > 0;) {
		const json_t *entry = json_array_get(list, i);
		const char *problem = clash_of(
			all, record_member(entry, "record"), record_member(entry, "access_key_id"));

		if (problem)
			return invalid(path, i, problem, err);
	}
	return 0;
}

/* Stores all changed records, or none. */
static int store(struct directory *d, json_t *changed, struct penstock_error *err)
{
	size_t n = json_object_size(changed), i = 0;
	_cleanup_free_ struct directory_change *changes = calloc(n + 1, sizeof(*changes));
	const char *name;
	json_t *record;

	if (!changes)
		return error_memory(err);
	json_object_foreach (changed, name, record)
		changes[i++] = (struct directory_change){.name = name, .value = record};
	return !n || directory_change(d, changes, n, err) == STORE_OK ? 0 : -(int)err->code;
}

int accounts_read(struct directory *d, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(s3_json_freep) json_t *list = NULL, *changed = json_object();
	json_t *entry;
	size_t i;
	int rc = fs_read(path, &text, err);

	if (rc < 0)
		return rc;
	fs_warn_readable(path);
	if (!changed)
		return error_memory(err);
	if (s3_json_load(buf_str(&text), text.len, &list, err) < 0)
		return error_prefix(err, "cannot read '%s'", path);
	if (!json_is_array(list))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read '%s': the file is not a JSON array of accounts", path);
	directory_begin(d);
	json_array_foreach (list, i, entry) {
		rc = add(d, path, i, entry, changed, err);
		if (rc < 0)
			break;
	}
	if (rc == 0)
		rc = check(d, path, list, changed, err);
	if (rc == 0)
		rc = store(d, changed, err);
	directory_end(d);
	return rc;
}
