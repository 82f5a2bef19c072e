#include "ui/outputs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "records/records.h"
#include "s3/json.h"
#include "transfer/output_keys.h"
#include "ui/answer.h"
#include "ui/changes.h"
#include "ui/verb.h"

#define FRESH_MS 5000 /* time for which a list of runs in a store is reused */
#define READ_MS	 120000

struct outputs {
	struct strlist places;
	pthread_mutex_t lock; /* protects the next three members; held during a listing */
	json_t *runs; /* NULL before the first list */
	json_t *failures; /* places that could not be read */
	int64_t listed_ms;

	pthread_mutex_t seen_lock;
	json_t *seen; /* the state of each run, by its id */

	struct changes *changes; /* changes of the list of all runs */
};

int outputs_init(struct ui *ui, const struct strlist *places, struct penstock_error *err)
{
	struct outputs *outputs = ui->outputs = calloc(1, sizeof(*outputs));

	if (!outputs)
		return error_memory(err);
	pthread_mutex_init(&outputs->lock, NULL);
	pthread_mutex_init(&outputs->seen_lock, NULL);
	outputs->seen = json_object();
	outputs->changes = changes_new();
	for (size_t i = 0; places && i < places->n; i++) {
		if (!verb_place_url(places->items[i]))
			return error_set(err, PENSTOCK_E_INVALID,
				"invalid output '%s'; write s3://BUCKET/PREFIX, or STORE:s3://…, "
				"with a profile's name or 'embedded' for STORE",
				places->items[i]);
		if (strlist_add(&outputs->places, places->items[i]) < 0)
			return error_memory(err);
	}
	return outputs->seen && outputs->changes ? 0 : error_memory(err);
}

void outputs_free(struct outputs *outputs)
{
	if (!outputs)
		return;
	strlist_release(&outputs->places);
	changes_free(outputs->changes);
	json_decref(outputs->runs);
	json_decref(outputs->failures);
	json_decref(outputs->seen);
	pthread_mutex_destroy(&outputs->lock);
	pthread_mutex_destroy(&outputs->seen_lock);
	free(outputs);
}

bool outputs_is_live(struct ui *ui, const char *run)
{
	struct outputs *outputs = ui->outputs;

	LOCK_SCOPE(&outputs->seen_lock);
	return run_state_is_live(
		run_state_find(json_string_value(json_object_get(outputs->seen, run))));
}

bool outputs_has(const struct ui *ui, const char *place)
{
	const struct strlist *places = &ui->outputs->places;

	for (size_t i = 0; i < places->n; i++) {
		size_t len = strlen(places->items[i]);

		while (len && places->items[i][len - 1] == '/')
			len--;
		if (strncmp(place, places->items[i], len) == 0 &&
			(place[len] == '/' || place[len] == '\0'))
			return true;
	}
	return false;
}

static void fail(struct verb_result *result, const char *message)
{
	result->code = 70;
	buf_clear(&result->message);
	buf_add_str(&result->message, message);
}

/* Runs a verb that prints JSON. Returns its value, or NULL with the failure in `result`. */
static json_t *json_of(const struct ui *ui, const struct strlist *words, struct verb_result *result)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	json_t *value = NULL;

	if (verb_run(words, READ_MS, &ui->stopping, result, &err) < 0) {
		fail(result, err.message);
	} else if (!result->code) {
		value = json_loadb(buf_str(&result->out), result->out.len, 0, NULL);
		if (!value)
			fail(result, "cannot read the output of the verb: it is not JSON");
	}
	return value;
}

/* ---- runs ---- */

/* Sets "place" of a run that was found at `place`: the URL of the run's output, after the "STORE:"
 * of `place` if `place` has one. */
static void set_place(json_t *run, const char *place)
{
	json_object_set_new(run, "place",
		json_sprintf("%.*s%s", (int)(verb_place_url(place) - place), place,
			s3_json_text(run, "output")));
}

/* Returns the runs of one place, each with its "place", or NULL with the failure in `result`. */
static json_t *runs_of_place(struct ui *ui, const char *place, struct verb_result *result)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	json_t *list, *run;
	size_t i;

	if (verb_add(&words, "ps", "--all", "--json", NULL) < 0 ||
		verb_add_place(&words, place) < 0) {
		fail(result, "out of memory");
		return NULL;
	}
	list = json_of(ui, &words, result);
	/* The place of a run is its output, even if the run was listed from a shorter prefix. */
	LOCK_SCOPE(&ui->outputs->seen_lock);
	json_array_foreach (list, i, run) {
		const char *id = json_string_value(json_object_get(run, "id"));

		set_place(run, place);
		if (id)
			json_object_set(ui->outputs->seen, id, json_object_get(run, "state"));
	}
	return list;
}

/* Returns the runs of all places, at most FRESH_MS old. The list is borrowed, and valid while
 * outputs->lock is held. A place that cannot be read has no runs, and is in outputs->failures. */
static json_t *runs_of_places(struct ui *ui, struct outputs *outputs)
{
	if (outputs->runs && clock_monotonic_ms() - outputs->listed_ms < FRESH_MS)
		return outputs->runs;
	json_decref(outputs->runs);
	json_decref(outputs->failures);
	outputs->runs = json_array();
	outputs->failures = json_array();
	for (size_t i = 0; i < outputs->places.n; i++) {
		_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
		const char *place = outputs->places.items[i];
		json_t *some = runs_of_place(ui, place, &result);

		if (result.message.len)
			str_make_utf8(result.message.data);
		if (some)
			json_array_extend(outputs->runs, some);
		else
			json_array_append_new(
				outputs->failures, json_pack("{s:s, s:s}", "place", place, "error",
							   buf_str(&result.message)));
		json_decref(some);
	}
	outputs->listed_ms = clock_monotonic_ms();
	return outputs->runs;
}

enum MHD_Result outputs_failures(struct exchange *x)
{
	struct outputs *outputs = x->ui->outputs;
	json_t *failures;

	LOCK_SCOPE(&outputs->lock);
	failures = outputs->failures ? json_incref(outputs->failures) : json_array();
	return answer_json(x, failures);
}

/* Sorts the run with the newest attempt first, like `penstock ps`. */
static int newest_first(const void *a, const void *b)
{
	const json_t *const *x = a, *const *y = b;

	return strcmp(s3_json_text(*y, "started"), s3_json_text(*x, "started"));
}

static json_t *sorted(const json_t *runs)
{
	size_t n = json_array_size(runs);
	_cleanup_free_ json_t **order = calloc(n + 1, sizeof(json_t *));
	json_t *out = order ? json_array() : NULL;

	for (size_t i = 0; out && i < n; i++)
		order[i] = json_array_get(runs, i);
	if (out)
		qsort(order, n, sizeof(json_t *), newest_first);
	for (size_t i = 0; out && i < n; i++)
		json_array_append(out, order[i]);
	return out;
}

/* Adds the runs of other homes to the runs of this home. */
static int add_runs(json_t *runs, const json_t *others)
{
	json_auto_t *known = json_object();
	json_t *run;
	size_t i;

	json_array_foreach (runs, i, run)
		json_object_set(known, s3_json_text(run, "id"), run);
	json_array_foreach (others, i, run) {
		if (json_object_get(known, s3_json_text(run, "id")))
			continue;
		json_object_set(known, s3_json_text(run, "id"), run);
		if (json_array_append(runs, run) < 0)
			return -1;
	}
	return 0;
}

static enum MHD_Result answer_runs(struct exchange *x, struct buf *list)
{
	_cleanup_(buf_release) struct buf changes = BUF_INIT(LIMIT_UI_REPLY);
	char tag[ANSWER_TAG_SIZE];
	bool known;

	if (!answer_tag(x, list, tag))
		return MHD_NO;
	known = changes_since(x->ui->outputs->changes, param(x, "since"), list, tag, &changes);
	return answer_with_tag(x, "application/json", known ? &changes : list, tag);
}

enum MHD_Result outputs_runs(struct exchange *x)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_UI_REPLY);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct outputs *outputs = x->ui->outputs;
	json_auto_t *runs = NULL, *all = NULL;
	_cleanup_free_ char *text = NULL;

	if (verb_add(&words, "ps", "--all", "--json", NULL) < 0)
		return MHD_NO;
	if (verb_run(&words, READ_MS, &x->ui->stopping, &result, &err) < 0)
		return answer_failure(x, &err);
	if (result.code)
		return answer_verb_failed(x, result.code, buf_str(&result.message));
	if (!outputs->places.n)
		return answer_runs(x, &result.out);
	runs = json_loadb(buf_str(&result.out), result.out.len, 0, NULL);
	{
		LOCK_SCOPE(&outputs->lock);
		if (add_runs(runs, runs_of_places(x->ui, outputs)) < 0)
			return MHD_NO;
		x->unreadable = json_array_size(outputs->failures);
	}
	all = sorted(runs);
	text = all ? json_dumps(all, JSON_COMPACT) : NULL;
	if (!text || buf_add_str(&body, text) < 0)
		return MHD_NO;
	return answer_runs(x, &body);
}

/* ---- one run ---- */

enum MHD_Result outputs_run(struct exchange *x)
{
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	_cleanup_(strlist_release) struct strlist words = {0};
	const char *place = param(x, "place"), *id = param(x, "run");
	json_t *run;

	if (!id || !verb_place_url(place))
		return answer_error(
			x, MHD_HTTP_BAD_REQUEST, "'place' must be s3://BUCKET/PATH/ or gs://…");
	if (verb_add(&words, "show", "--json", NULL) < 0 ||
		verb_add_place_store(&words, place) < 0 ||
		verb_add(&words, "--", id, verb_place_url(place), NULL) < 0)
		return MHD_NO;
	run = json_of(x->ui, &words, &result);
	if (!run)
		return answer_verb_failed(x, result.code, buf_str(&result.message));
	set_place(run, place);
	{
		LOCK_SCOPE(&x->ui->outputs->seen_lock);
		json_object_set(x->ui->outputs->seen, id, json_object_get(run, "state"));
	}
	return answer_json(x, run);
}

enum MHD_Result outputs_files(struct exchange *x)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	const char *place = param(x, "place"), *url = verb_place_url(place);
	const char *key = url ? strchr(url + strlen("s3://"), '/') : NULL;
	_cleanup_(verb_result_release) struct verb_result result = VERB_RESULT_INIT;
	json_auto_t *objects = NULL;
	struct output_keys keys = {0};
	json_t *files, *object;
	size_t i, cut;

	if (!key)
		return answer_error(
			x, MHD_HTTP_BAD_REQUEST, "'place' must be s3://BUCKET/PATH/ or gs://…");
	if (verb_add(&words, "ls", "--recursive", "--raw", "--json", NULL) < 0 ||
		verb_add_place(&words, place) < 0)
		return MHD_NO;
	objects = json_of(x->ui, &words, &result);
	if (!objects)
		return answer_verb_failed(x, result.code, buf_str(&result.message));
	cut = strlen(key + 1);
	files = json_array();
	json_array_foreach (objects, i, object) {
		const char *path = s3_json_text(object, "key");

		path = strlen(path) > cut ? path + cut : "";
		if (output_keys_take(&keys, path) && *path)
			json_array_append_new(files, json_pack("{s:s, s:O}", "path", path, "size",
							     json_object_get(object, "size")));
	}
	return answer_json(x, files);
}
