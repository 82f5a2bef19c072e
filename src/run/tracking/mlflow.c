#include "run/tracking/mlflow.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "net/http/http.h"
#include "s3/uri.h"
#include "workflow/document/document.h"

void mlflow_login_release(struct mlflow_login *login)
{
	str_wipe(login->password);
	str_wipe(login->token);
	free(login->user);
	*login = (struct mlflow_login){0};
}

/* ---- requests ---- */

static char *text_of(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	return text;
}

char *mlflow_experiment_body(const char *name)
{
	return text_of(json_pack("{s:s}", "name", name));
}

char *mlflow_search_body(const char *experiment, const char *tracked)
{
	/* `tracked` is hexadecimal: nothing in it needs to be quoted. */
	return text_of(json_pack("{s:[s], s:o, s:s, s:i, s:[s]}", "experiment_ids", experiment,
		"filter", json_sprintf("tags.`" MLFLOW_TAG_TRACKED "` = '%s'", tracked),
		"run_view_type", "ACTIVE_ONLY", "max_results", 1, "order_by",
		"attributes.start_time DESC"));
}

char *mlflow_create_body(
	const char *experiment, const char *name, int64_t start_ms, const struct mlflow_tags *tags)
{
	return text_of(json_pack("{s:s, s:s, s:I, s:[{s:s, s:s}, {s:s, s:o}, {s:s, s:s}]}",
		"experiment_id", experiment, "run_name", name, "start_time", (json_int_t)start_ms,
		"tags", "key", MLFLOW_TAG_RUN, "value", tags->run, "key", MLFLOW_TAG_BEGAN, "value",
		json_sprintf("%d", tags->began), "key", MLFLOW_TAG_TRACKED, "value",
		tags->tracked));
}

char *mlflow_update_body(const char *run, const char *status, int64_t end_ms)
{
	json_t *body = json_pack("{s:s, s:s}", "run_id", run, "status", status);

	if (body && end_ms && json_object_set_new(body, "end_time", json_integer(end_ms)) < 0) {
		json_decref(body);
		return NULL;
	}
	return text_of(body);
}

char *mlflow_context(const struct mlflow_tags *tags)
{
	return text_of(json_pack("{s:s, s:o, s:s}", MLFLOW_TAG_RUN, tags->run, MLFLOW_TAG_BEGAN,
		json_sprintf("%d", tags->began), MLFLOW_TAG_TRACKED, tags->tracked));
}

/* ---- replies ---- */

static int read_id(const json_t *value, char id[static MLFLOW_ID_SIZE], struct penstock_error *err)
{
	const char *text = json_string_value(value);

	if (!text || !*text || strlen(text) >= MLFLOW_ID_SIZE ||
		text[strspn(text, LETTERS_AND_DIGITS "_-")])
		return error_set(err, PENSTOCK_E_PROTOCOL, "the reply has no id");
	snprintf(id, MLFLOW_ID_SIZE, "%s", text);
	return 0;
}

static int load(const char *text, size_t len, json_t **out, struct penstock_error *err)
{
	*out = json_loadb(text, len, 0, NULL);
	return *out ? 0 : error_set(err, PENSTOCK_E_PROTOCOL, "the reply is not JSON");
}

/* Reads the reply to a search for an experiment, or to its creation. */
int mlflow_read_experiment(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err)
{
	json_auto_t *root = NULL;
	const json_t *found;
	const char *stage;
	int r = load(text, len, &root, err);

	if (r < 0)
		return r;
	found = json_object_get(root, "experiment");
	stage = json_string_value(json_object_get(found, "lifecycle_stage"));
	if (stage && strcmp(stage, "deleted") == 0)
		return error_set(err, PENSTOCK_E_EXISTS,
			"the experiment is deleted; restore it, or name another");
	return read_id(json_object_get(found ? found : root, "experiment_id"), id, err);
}

static int read_run(const json_t *run, char id[static MLFLOW_ID_SIZE], struct penstock_error *err)
{
	return read_id(json_object_get(json_object_get(run, "info"), "run_id"), id, err);
}

int mlflow_read_run(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err)
{
	json_auto_t *root = NULL;
	int r = load(text, len, &root, err);

	return r < 0 ? r : read_run(json_object_get(root, "run"), id, err);
}

int mlflow_read_found(
	const char *text, size_t len, char id[static MLFLOW_ID_SIZE], struct penstock_error *err)
{
	json_auto_t *root = NULL;
	const json_t *first;
	int r = load(text, len, &root, err);

	if (r < 0)
		return r;
	first = json_array_get(json_object_get(root, "runs"), 0);
	if (first)
		return read_run(first, id, err);
	*id = '\0';
	return 0;
}

static bool read_value(const json_t *value, double *out)
{
	static const struct {
		const char *name; /* the name in the JSON format of Protocol Buffers */
		double value;
	} words[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
	const char *text = json_string_value(value);

	if (json_is_number(value)) {
		*out = json_number_value(value);
		return true;
	}
	for (size_t i = 0; text && i < ARRAY_SIZE(words); i++) {
		if (strcmp(words[i].name, text) == 0) {
			*out = words[i].value;
			return true;
		}
	}
	return false;
}

/* Returns the number; 0 if the number is missing or invalid. The JSON format of Protocol Buffers
 * has an int64 as a string; MLflow converts it to a number. */
static int64_t read_integer(const json_t *value)
{
	const char *text = json_string_value(value);
	int64_t number = 0;

	if (json_is_integer(value))
		return json_integer_value(value);
	return text && str_to_i64(text, INT64_MIN + 1, INT64_MAX, &number) ? number : 0;
}

static int read_points(const json_t *list, mlflow_point_fn fn, void *cookie)
{
	const json_t *item;
	size_t i;
	int r = 0;

	json_array_foreach (list, i, item) {
		const char *name = json_string_value(json_object_get(item, "key"));
		struct mlflow_point point = {.step = read_integer(json_object_get(item, "step")),
			.time_ms = read_integer(json_object_get(item, "timestamp"))};

		if (point.time_ms < 0 || point.time_ms > INT64_MAX / NS_PER_MS)
			point.time_ms = 0;
		if (r == 0 && name && *name && point.step != INT64_MIN &&
			read_value(json_object_get(item, "value"), &point.value))
			r = fn(cookie, name, &point);
	}
	return r;
}

int mlflow_read_last(
	const char *text, size_t len, mlflow_point_fn fn, void *cookie, struct penstock_error *err)
{
	json_auto_t *root = NULL;
	char id[MLFLOW_ID_SIZE];
	const json_t *run;
	int r = load(text, len, &root, err);

	if (r < 0)
		return r;
	run = json_object_get(root, "run");
	r = read_run(run, id, err);
	return r < 0 ? r
		     : read_points(json_object_get(json_object_get(run, "data"), "metrics"), fn,
			       cookie);
}

int mlflow_read_history(const char *text, size_t len, mlflow_point_fn fn, void *cookie,
	struct buf *next, struct penstock_error *err)
{
	json_auto_t *root = NULL;
	const char *token;
	int r = load(text, len, &root, err);

	if (r < 0)
		return r;
	if (!json_is_object(root))
		return error_set(err, PENSTOCK_E_PROTOCOL, "the reply has no history");
	token = json_string_value(json_object_get(root, "next_page_token"));
	if (token && buf_add_str(next, token) < 0)
		return buf_error(next, "the token of a page", err);
	return read_points(json_object_get(root, "metrics"), fn, cookie);
}

bool mlflow_refused_with(const char *text, size_t len, const char *code)
{
	json_auto_t *root = json_loadb(text, len, 0, NULL);
	const char *found = json_string_value(json_object_get(root, "error_code"));

	return found && strcmp(found, code) == 0;
}

/* ---- addresses ---- */

static char *decoded(const char *text, size_t len)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	/* An invalid escape is part of the text. */
	if (uri_decode(&out, text, len, URI_PLUS_LITERAL) < 0) {
		buf_truncate(&out, 0);
		buf_add(&out, text, len);
	}
	return buf_take(&out);
}

int mlflow_split_uri(const char *uri, struct buf *base, struct mlflow_login *login)
{
	const char *authority = strstr(uri, "://");
	const char *at, *colon;
	size_t len = strlen(uri);

	if (!authority)
		return buf_add_str(base, uri);
	authority += 3;
	at = memrchr(authority, '@', strcspn(authority, "/"));
	while (uri[len - 1] == '/' && uri + len > authority)
		len--;
	buf_add(base, uri, (size_t)(authority - uri));
	if (at) {
		mlflow_login_release(login);
		colon = memchr(authority, ':', (size_t)(at - authority));
		login->user = decoded(authority, (size_t)((colon ? colon : at) - authority));
		login->password = colon ? decoded(colon + 1, (size_t)(at - colon - 1)) : strdup("");
		if (!login->user || !login->password)
			return -1;
		authority = at + 1;
	}
	buf_add(base, authority, (size_t)(uri + len - authority));
	return buf_failed(base) ? -1 : 0;
}

int mlflow_authorization(const struct mlflow_login *login, struct buf *out)
{
	if (login->user)
		return http_add_basic(out, login->user, login->password ? login->password : "");
	return login->token ? buf_printf(out, "Bearer %s", login->token) : 0;
}

void mlflow_link(const char *base, const char *experiment, const char *run, struct buf *out)
{
	buf_printf(out, "%s" MLFLOW_PAGE "%s/runs/%s", base, experiment, run);
}
