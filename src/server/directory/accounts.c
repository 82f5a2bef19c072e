#include "server/directory/accounts.h"

#include <jansson.h>
#include <string.h>
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

static int invalid(const char *path, size_t i, const char *reason, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID, "cannot read account %zu of '%s': %s", i + 1,
		path, reason);
}

/* Returns NULL if all members are valid, else the reason. */
static const char *problem_of(const struct directory *d, const json_t *entry, const char *record)
{
	const char *id = json_string_value(json_object_get(entry, "id"));
	const char *key = json_string_value(json_object_get(entry, "access_key_id"));
	const char *number = json_string_value(json_object_get(entry, "number"));
	const char *holder = key ? directory_key_holder(d, key) : NULL;

	if (!number || strlen(number) != 12 || strspn(number, "0123456789") != 12)
		return "number must have 12 digits";
	if (strcmp(number, ACCOUNT_FIRST) == 0)
		return "000000000000 is the account of the store's own keys";
	if (!json_is_string(json_object_get(entry, "name")))
		return "it needs a name";
	if (!key || !*key || strlen(key) > SIGV4_ACCESS_KEY_MAX ||
		!json_is_string(json_object_get(entry, "secret_access_key")))
		return "it needs access_key_id and secret_access_key";
	if (holder && strcmp(holder, record) != 0)
		return "its access key has another owner";
	if (id && (strlen(id) != 64 || strspn(id, "0123456789abcdef") != 64))
		return "id must have 64 hexadecimal digits";
	return NULL;
}

/* Makes the record of an account; keeps what the account has. Returns NULL if out of memory. */
static json_t *record_of(const json_t *entry, const json_t *old)
{
	const char *id = json_string_value(json_object_get(entry, "id"));
	json_t *record = old ? json_deep_copy(old) : json_object(), *keys = json_object();
	unsigned char random[32];
	char hex[65];

	if (!id)
		id = json_string_value(json_object_get(old, "id"));
	if (!id) {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			goto failed;
		str_hex(random, sizeof(random), hex);
		id = hex;
	}
	if (!keys || json_object_set_new(record, "id", json_string(id)) < 0 ||
		json_object_set(record, "name", json_object_get(entry, "name")) < 0 ||
		(json_object_get(entry, "email") &&
			json_object_set(record, "email", json_object_get(entry, "email")) < 0) ||
		json_object_set_new(keys,
			json_string_value(json_object_get(entry, "access_key_id")),
			json_pack("{s:O,s:b,s:I}", "secret",
				json_object_get(entry, "secret_access_key"), "active", 1, "created",
				(json_int_t)(clock_wall_ns() / NS_PER_S))) < 0 ||
		json_object_set(record, "keys", keys) < 0)
		goto failed;
	json_decref(keys);
	return record;
failed:
	json_decref(keys);
	json_decref(record);
	return NULL;
}

static int add(struct directory *d, const char *path, size_t i, const json_t *entry,
	struct penstock_error *err)
{
	const char *number = json_string_value(json_object_get(entry, "number"));
	_cleanup_free_ char *name = str_printf("account/%s", number ? number : "");
	const char *problem = name ? problem_of(d, entry, name) : NULL;
	_cleanup_(s3_json_freep) json_t *record = NULL;

	if (!name)
		return error_memory(err);
	if (problem)
		return invalid(path, i, problem, err);
	record = record_of(entry, directory_get(d, name));
	if (!record)
		return error_memory(err);
	return directory_change(d, &(struct directory_change){.name = name, .value = record}, 1,
		       err) == STORE_OK
		       ? 0
		       : -(int)err->code;
}

int accounts_read(struct directory *d, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(s3_json_freep) json_t *list = NULL;
	json_t *entry;
	size_t i;
	int rc = fs_read(path, &text, err);

	if (rc < 0)
		return rc;
	if (s3_json_load(buf_str(&text), text.len, &list, err) < 0)
		return error_prefix(err, "cannot read '%s'", path);
	if (!json_is_array(list))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read '%s': it is not a JSON array of accounts", path);
	directory_begin(d);
	json_array_foreach (list, i, entry) {
		rc = add(d, path, i, entry, err);
		if (rc < 0)
			break;
	}
	directory_end(d);
	return rc;
}
