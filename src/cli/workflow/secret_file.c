#include "cli/workflow/secret_file.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "base/str.h"
#include "records/records.h"

bool secret_name_is_valid(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	for (; *name; name++) {
		if (!isalnum((unsigned char)*name) && *name != '_')
			return false;
	}
	return true;
}

static int file_path(char **out, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL;
	int r = records_home(&home, err);

	if (r < 0)
		return r;
	*out = path_join(home, "secrets.json");
	return *out ? 0 : error_memory(err);
}

/* Loads the list, which is an empty object if there is no file yet. The caller releases the list,
 * even on failure. */
static int load(json_t **out, const char *path, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_SECRETS);
	int r;

	if (access(path, F_OK) < 0) {
		*out = json_object();
		return *out ? 0 : error_memory(err);
	}
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	*out = json_loads(buf_str(&text), 0, NULL);
	return json_is_object(*out)
		       ? 0
		       : error_set(err, PENSTOCK_E_CORRUPT,
				 "cannot read '%s': it is not a list of secrets", path);
}

static int save(json_t *json, const char *path, struct penstock_error *err)
{
	_cleanup_free_ char *text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS);
	int r;

	if (!text)
		return error_memory(err);
	/* Do not write a larger file: load() would refuse it, so all secrets would be lost. */
	if (strlen(text) > LIMIT_SECRETS)
		r = error_set(err, PENSTOCK_E_LIMIT,
			"cannot store the secrets: together they exceed the limit of %zu bytes; "
			"remove some, or name a file in the workflow",
			(size_t)LIMIT_SECRETS);
	else
		r = fs_write_atomic(path, text, strlen(text), 0600, err);
	explicit_bzero(text, strlen(text));
	return r;
}

/* ---- the keyring ---- */

#define KEYRING_MS 120000 /* the user may have to unlock the keyring */

/* Runs secret-tool's `verb` for a secret, with `input` as its standard input, and appends its
 * output to `output`; both may be NULL. */
static int keyring(const char *verb, const char *name, const char *input, struct buf *output,
	struct penstock_error *err)
{
	_cleanup_free_ char *tool = fs_find_tool("secret-tool");
	bool store = strcmp(verb, "store") == 0;
	const char *const argv[] = {tool, verb, store ? "--label=penstock" : "application",
		store ? "application" : "penstock", store ? "penstock" : "name",
		store ? "name" : name, store ? name : NULL, NULL};
	int status = 0, r;

	if (!tool)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot use the keyring: secret-tool is not installed (package "
			"libsecret-tools)");
	r = process_run(
		&(struct process_spec){
			.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1},
		&(struct process_run_options){.name = "secret-tool",
			.timeout_ms = KEYRING_MS,
			.input = input,
			.out.text = output},
		&status, err);
	if (r < 0)
		return error_prefix(err, "cannot use the keyring");
	if (status != 0)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot use the keyring: secret-tool failed; check that there is a "
			"keyring, and that it is unlocked");
	return 0;
}

/* ---- the list ---- */

bool secret_find(const char *name, struct buf *value)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *variable = str_printf("PENSTOCK_SECRET_%s", name);
	_cleanup_free_ char *path = NULL;
	json_auto_t *json = NULL;
	const json_t *entry;
	const char *given;

	if (!variable)
		return false;
	given = getenv(variable);
	if (given)
		return buf_add_str(value, given) == 0;
	if (file_path(&path, &err) < 0 || load(&json, path, &err) < 0)
		return false;
	entry = json_object_get(json, name);
	if (json_is_string(entry))
		return buf_add_str(value, json_string_value(entry)) == 0;
	return entry && keyring("lookup", name, NULL, value, &err) == 0 && value->len > 0;
}

/* Removes an old value from the keyring, unless a new value in the keyring replaces it. Fails if
 * the secret is to be removed and the keyring fails: the name then stays on the list, so that `rm`
 * can be repeated. If there is a new value, a failure of the keyring is only a warning. */
static int clear_before(
	const json_t *json, const char *name, const json_t *value, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error why = PENSTOCK_ERROR_INIT;

	if (!json_is_null(json_object_get(json, name)) || json_is_null(value) ||
		keyring("clear", name, NULL, NULL, &why) == 0)
		return 0;
	if (!value) {
		error_prefix(&why, "cannot remove '%s'", name);
		return error_move(err, &why);
	}
	log_warn("the keyring may still have the old value of '%s': %s", name, why.message);
	return 0;
}

/* Stores `value` (takes the reference) as the secret, or removes the secret if `value` is NULL.
 * Holds a lock, so that concurrent calls do not overwrite each other's changes. */
static int change(const char *name, json_t *value, struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL, *lock = NULL;
	_cleanup_close_ int fd = -1;
	json_auto_t *json = NULL;
	int r = file_path(&path, err);

	if (r == 0 && !(lock = str_printf("%s.lock", path)))
		r = error_memory(err);
	if (r == 0)
		r = fd = fs_lock_file(lock, err);
	if (r >= 0)
		r = load(&json, path, err);
	if (r == 0 && !value && !json_object_get(json, name))
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot remove secret '%s': it does not exist; see 'penstock secret list'",
			name);
	if (r == 0)
		r = clear_before(json, name, value, err);
	if (r == 0 && value)
		json_object_set(json, name, value);
	else if (r == 0)
		json_object_del(json, name);
	if (r == 0)
		r = save(json, path, err);
	json_decref(value);
	return r;
}

int secret_set(const char *name, const char *value, bool in_keyring, struct penstock_error *err)
{
	json_t *json = in_keyring ? json_null() : json_string(value);
	int r;

	/* A NULL value would make change() remove the secret. */
	if (!json)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot store secret '%s': its value is not UTF-8 text; store it in base64, "
			"and decode it in the step",
			name);
	r = in_keyring ? keyring("store", name, value, NULL, err) : 0;
	return r < 0 ? r : change(name, json, err);
}

int secret_remove(const char *name, struct penstock_error *err)
{
	return change(name, NULL, err);
}

int secret_list(void (*fn)(void *cookie, const char *name, bool in_keyring), void *cookie,
	struct penstock_error *err)
{
	_cleanup_free_ char *path = NULL;
	json_auto_t *json = NULL;
	json_t *entry;
	const char *name;
	int r = file_path(&path, err);

	if (r == 0)
		r = load(&json, path, err);
	if (r < 0)
		return r;
	json_object_foreach (json, name, entry)
		fn(cookie, name, json_is_null(entry));
	return 0;
}
