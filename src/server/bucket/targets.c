#include "server/bucket/targets.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "net/credentials/credentials.h"
#include "net/http/http.h"
#include "s3/json.h"
#include "server/directory/identity.h"
#include "transfer/objects.h"

/* A request has few attempts, because its version stays in the queue and is sent again. */
#define ATTEMPTS      2
#define CONNECTIONS   LIMIT_REPLICATION_LANES
#define CONNECT_MS    10000
#define MEMBERS_KNOWN 9

static int invalid(const char *path, size_t i, const char *reason, struct penstock_error *err)
{
	return error_set(
		err, PENSTOCK_E_INVALID, "cannot read target %zu of '%s': %s", i + 1, path, reason);
}

static const char *member(const json_t *entry, const char *name)
{
	return json_string_value(json_object_get(entry, name));
}

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	return len && len < TARGET_NAME_SIZE &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == len;
}

/* Returns NULL if all members are valid, else the reason. */
static const char *problem_of(json_t *entry)
{
	static const char *const known[MEMBERS_KNOWN] = {"name", "endpoint", "bucket", "region",
		"account", "access_key_id", "secret_access_key", "session_token", "profile"};
	const char *name = member(entry, "name"), *endpoint = member(entry, "endpoint"),
		   *account = member(entry, "account"), *key;
	bool has_key = member(entry, "access_key_id"),
	     has_secret = member(entry, "secret_access_key");
	json_t *value;

	json_object_foreach (entry, key, value) {
		size_t i = 0;

		while (i < MEMBERS_KNOWN && strcmp(known[i], key) != 0)
			i++;
		if (i == MEMBERS_KNOWN)
			return "a member has an unknown name; the names are name, endpoint, bucket, "
			       "region, account, access_key_id, secret_access_key, session_token and "
			       "profile";
		if (!json_is_string(value) || !*json_string_value(value))
			return "a member is not a string, or is empty";
	}
	if (!name || !is_name(name))
		return "'name' must have only lower-case letters, digits, -, _ and .";
	if (!endpoint)
		return "'endpoint' is missing; expected a URL such as https://store.example:9000";
	if (account && !account_is_number(account))
		return "'account' must be a number of 12 digits";
	if (has_key != has_secret)
		return "access_key_id and secret_access_key must be set together";
	if (has_key == !!member(entry, "profile"))
		return "expected either access_key_id and secret_access_key, or profile";
	return NULL;
}

static int open_target(struct target *target, const json_t *entry, const atomic_int *cancel,
	struct penstock_error *err)
{
	const char *bucket = member(entry, "bucket"), *account = member(entry, "account");
	int rc;

	snprintf(target->name, sizeof(target->name), "%s", member(entry, "name"));
	snprintf(target->account, sizeof(target->account), "%s", account ? account : ACCOUNT_FIRST);
	target->bucket = strdup(bucket ? bucket : target->name);
	if (!target->bucket)
		return error_memory(err);
	rc = http_engine_new(&target->engine,
		&(struct http_engine_options){.max_connections = CONNECTIONS,
			.max_attempts = ATTEMPTS,
			.connect_timeout_ms = CONNECT_MS,
			.cancel = cancel},
		err);
	if (rc < 0)
		return rc;
	return object_client_open(&target->client, target->engine,
		&(struct store_place){.endpoint_url = member(entry, "endpoint"),
			.region = member(entry, "region"),
			.access_key_id = member(entry, "access_key_id"),
			.secret_access_key = member(entry, "secret_access_key"),
			.session_token = member(entry, "session_token"),
			.profile = member(entry, "profile")},
		err);
}

static int add(struct targets *out, const char *path, size_t i, json_t *entry,
	const atomic_int *cancel, struct penstock_error *err)
{
	const char *problem = problem_of(entry);
	struct target *grown;
	int rc;

	if (problem)
		return invalid(path, i, problem, err);
	if (targets_find(out, member(entry, "name")) >= 0)
		return invalid(path, i, "the name is repeated", err);
	grown = array_grow(out->all, out->n, sizeof(*grown));
	if (!grown)
		return error_memory(err);
	out->all = grown;
	grown[out->n] = (struct target){0};
	rc = open_target(&grown[out->n++], entry, cancel, err);
	return rc < 0 ? error_prefix(err, "cannot use target %zu of '%s'", i + 1, path) : 0;
}

/* Fails if the file contains secret keys and other users may read the file. */
static int check_mode(const char *path, const json_t *list, struct penstock_error *err)
{
	json_t *entry;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)list, i, entry)
		if (json_object_get(entry, "secret_access_key"))
			return fs_check_private(path, err);
	return 0;
}

int targets_read(
	struct targets *out, const char *path, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(buf_wipe) struct buf text = BUF_INIT(LIMIT_CREDENTIALS_FILE);
	_cleanup_(s3_json_freep) json_t *list = NULL;
	json_t *entry;
	size_t i;
	int rc;

	*out = (struct targets){0};
	if (!path)
		return 0;
	rc = fs_read(path, &text, err);
	if (rc < 0)
		return rc;
	if (s3_json_load(buf_str(&text), text.len, &list, err) < 0)
		return error_prefix(err, "cannot read '%s'", path);
	if (!json_is_array(list))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot read '%s': the file is not a JSON array of targets", path);
	rc = check_mode(path, list, err);
	json_array_foreach (list, i, entry) {
		if (rc < 0)
			break;
		rc = add(out, path, i, entry, cancel, err);
	}
	return rc;
}

void targets_release(struct targets *targets)
{
	for (size_t i = 0; i < targets->n; i++) {
		object_client_free(targets->all[i].client);
		http_engine_free(targets->all[i].engine);
		free(targets->all[i].bucket);
	}
	free(targets->all);
	*targets = (struct targets){0};
}

int targets_find(const struct targets *targets, const char *name)
{
	for (size_t i = 0; i < targets->n; i++)
		if (strcmp(targets->all[i].name, name) == 0)
			return (int)i;
	return -1;
}
