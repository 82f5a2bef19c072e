/* Accounts, users, groups, roles and managed policies in an archive: records of the store. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "store/upkeep/archive.h"

/* Returns false for records of the store itself, such as the key of its sessions. */
static bool is_exported(const char *name)
{
	static const char *const kinds[] = {"account/", "user/", "group/", "role/", "policy/"};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (str_starts(name, kinds[i]))
			return true;
	return false;
}

static int invalid(const char *name, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"cannot read the record '%s': it is not a JSON object", name);
}

int export_records_json(struct db *db, json_t **out, uint64_t *count, struct penstock_error *err)
{
	_cleanup_reset_ sqlite3_stmt *st = db_statement(db, SQL_RECORD_LIST);
	json_auto_t *all = json_object();
	int rc;

	while (all && (rc = db_step(db, st)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(st, 0);
		const char *value = (const char *)sqlite3_column_text(st, 1);
		json_t *record;

		if (!name || !value)
			return error_memory(err);
		if (!is_exported(name))
			continue;
		record = json_loads(value, 0, NULL);
		if (!json_is_object(record)) {
			json_decref(record);
			return invalid(name, err);
		}
		if (json_object_set_new(all, name, record) < 0)
			return error_memory(err);
	}
	if (!all)
		return error_memory(err);
	if (rc != SQLITE_DONE)
		return upkeep_db_failed(db, rc, "read the accounts", err);
	*count = json_object_size(all);
	*out = json_pack("{s:O}", "records", all);
	return *out ? 0 : error_memory(err);
}

/* --- import ---------------------------------------------------------------------------------- */

/* Fails if the archive lacks this record of the store, or has a different record of this name: an
 * import replaces nothing, and gives no key or name a second owner. */
static int compare(
	void *cookie, const char *name, const char *value, size_t len, struct penstock_error *err)
{
	const json_t *records = cookie;
	json_auto_t *own = json_loadb(value, len, 0, NULL);

	if (!is_exported(name) || (own && json_equal(own, json_object_get(records, name))))
		return 0;
	return error_set(err, PENSTOCK_E_EXISTS,
		"cannot import the accounts: the store has '%s', which is not the same in the "
		"archive; import into another store, or without accounts",
		name);
}

static int take_records(const json_t *records, struct store_record *out, struct penstock_error *err)
{
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)records, name, value) {
		if (!is_exported(name) || !json_is_object(value))
			return error_set(err, PENSTOCK_E_CORRUPT,
				"the record '%s' of the archive is invalid", name);
		out[n].name = name;
		out[n].value = json_dumps(value, JSON_COMPACT);
		if (!out[n++].value)
			return error_memory(err);
	}
	return 0;
}

int import_records(
	struct store *store, const json_t *document, uint64_t *count, struct penstock_error *err)
{
	json_t *records = json_object_get(document, "records");
	size_t n = json_object_size(records);
	struct store_record *list;
	int rc;

	if (!json_is_object(records))
		return error_set(
			err, PENSTOCK_E_CORRUPT, "the accounts of the archive are invalid");
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return error_memory(err);
	rc = take_records(records, list, err);
	if (rc == 0 && store_record_list(store, compare, records, err) != STORE_OK)
		rc = -(int)err->code;
	if (rc == 0 && store_record_set(store, list, n, err) != STORE_OK)
		rc = err->code ? -(int)err->code
			       : error_set(err, PENSTOCK_E_IO, "cannot import the accounts");
	for (size_t i = 0; i < n; i++)
		str_wipe((char *)(uintptr_t)list[i].value);
	free(list);
	*count = rc == 0 ? n : 0;
	return rc;
}
