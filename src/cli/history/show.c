/* `penstock show`: the state, attempts, steps and files of a run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Clang warns about the fallthrough in uthash's default hash. */
#define HASH_FUNCTION(key, len, value) HASH_OAT(key, len, value)
#include <uthash.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/history/places.h"
#include "cli/history/show_steps.h"
#include "cli/history/show_text.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "s3/date.h"
#include "sync/record/journal.h"
#include "sync/record/names.h"
#include "transfer/location.h"

/* ---- the files that a run has published, kept and set aside, from its local journal ---- */

/* The last journal record of a path. */
struct known {
	char *path;
	char *etag;
	uint64_t size;
	int64_t mtime_ns;
	bool published;
	bool open; /* only the beginning is published, because the file is still being written */
	bool suspect;
	UT_hash_handle hh;
};

struct reading {
	struct known *all;
	json_t *replaced; /* indexed by the keys of the copies, in the order of their creation */
	const char *run; /* id */
	const char *base; /* "s3://bucket/prefix/"; NULL if there is none */
	const char *endpoint; /* a URL, or "embedded"; NULL for AWS */
	bool no_memory;
};

static struct known *find(struct reading *reading, const char *path)
{
	struct known *k = NULL;

	HASH_FIND_STR(reading->all, path, k);
	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (k)
		k->path = strdup(path);
	if (!k || !k->path) {
		free(k);
		reading->no_memory = true;
		return NULL;
	}
	HASH_ADD_KEYPTR(hh, reading->all, k->path, strlen(k->path), k);
	return k;
}

static void free_known(struct reading *reading, struct known *k)
{
	HASH_DEL(reading->all, k);
	free(k->path);
	free(k->etag);
	free(k);
}

/* Returns the ETag without the quotes of the header. */
static json_t *plain_etag(const char *etag)
{
	size_t len = etag ? strlen(etag) : 0;

	if (len >= 2 && etag[0] == '"' && etag[len - 1] == '"')
		return json_stringn(etag + 1, len - 2);
	return json_text(etag);
}

static void add_endpoint(struct buf *out, const char *endpoint)
{
	if (!endpoint)
		return;
	buf_add_str(out, " --endpoint-url ");
	buf_add_quoted(out, endpoint);
}

static void add_version_command(struct buf *out, const char *endpoint, const char *bucket,
	const char *key, const char *version)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

	buf_printf(&url, "s3://%s/%s", bucket, key);
	buf_add_str(out, "penstock restore --version-id ");
	buf_add_quoted(out, version);
	add_endpoint(out, endpoint);
	buf_add_char(out, ' ');
	buf_add_quoted(out, buf_str(&url));
}

/* Adds the URL of the copy or version that is kept of a replaced object, and the command that
 * restores it. */
static void add_way_back(const struct reading *reading, json_t *object,
	const struct journal_record *r, const char *bucket, const char *key)
{
	json_auto_t *etag = plain_etag(r->etag);
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING),
					  command = BUF_INIT(4 * LIMIT_STRING);
	const char *version = str_starts(r->key, "version:") ? r->key + strlen("version:") : NULL;
	const char *scheme = str_starts(reading->base, "gs://") ? "gs" : "s3";

	buf_printf(&url, "%s://%s/", scheme, bucket);
	if (version)
		buf_printf(&url, "%s?versionId=%s", key, version);
	else
		buf_add_str(&url, r->key);
	if (version) {
		add_version_command(&command, reading->endpoint, bucket, key, version);
	} else {
		buf_printf(&command, "penstock restore --etag ");
		buf_add_quoted(&command, json_string_value(etag) ? json_string_value(etag) : "");
		buf_printf(&command, " %s ", reading->run);
		buf_add_quoted(&command, r->path);
	}
	json_object_update_new(object, json_pack("{s:o, s:o}", "url", json_text(buf_str(&url)),
					       "restore", json_text(buf_str(&command))));
}

static void keep(struct reading *reading, const struct journal_record *r)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *bucket = NULL;
	json_t *object = json_pack("{s:o, s:o, s:o, s:I}", "path", json_text(r->path), "etag",
		plain_etag(r->etag), "kept", json_text(r->key), "size", (json_int_t)r->ident.size);

	if (reading->base && location_is_object(reading->base)) {
		const char *prefix = strchr(reading->base + 5, '/');

		bucket = strndup(reading->base + 5,
			prefix ? (size_t)(prefix - reading->base - 5) : strlen(reading->base) - 5);
		buf_add_str(&key, prefix ? prefix + 1 : "");
		names_key(&key, r->path);
		reading->no_memory |= !bucket;
		if (bucket)
			add_way_back(reading, object, r, bucket, buf_str(&key));
	}
	json_object_set_new(reading->replaced, r->key, object);
}

static int take_record(void *cookie, const struct journal_record *r)
{
	struct reading *reading = cookie;
	struct known *k;

	if (r->type == JOURNAL_KEPT) {
		keep(reading, r);
		return 0;
	}
	if (r->type == JOURNAL_UNKEPT) {
		json_object_del(reading->replaced, r->key);
		return 0;
	}
	if (r->type != JOURNAL_PUBLISHED && r->type != JOURNAL_APPENDED &&
		r->type != JOURNAL_SUSPECT && r->type != JOURNAL_FORGET)
		return 0;
	k = find(reading, r->path);
	if (!k)
		return 1;
	if (r->type == JOURNAL_FORGET) {
		free_known(reading, k);
	} else if (r->type == JOURNAL_SUSPECT) {
		k->suspect = true;
	} else {
		free(k->etag);
		k->etag = strdup(r->etag ? r->etag : "");
		reading->no_memory |= !k->etag;
		k->published = true;
		k->suspect = false;
		k->open = r->type == JOURNAL_APPENDED;
		k->size = r->ident.size;
		k->mtime_ns = r->ident.mtime_ns;
	}
	return reading->no_memory;
}

static int by_path(const struct known *a, const struct known *b)
{
	return strcmp(a->path, b->path);
}

/*
 * Adds to `object` the lists "outputs" (path, url, size, etag, mtime, open), "replaced" (path,
 * etag, kept, size) and "partial" (path). For an output in a store, "replaced" also has `url`, and
 * `restore`, the command that restores the object. `base` is the URL of the output,
 * "s3://bucket/prefix/", and `endpoint` is the endpoint of its store, or "embedded"; each may be
 * NULL. A run without a journal has empty lists.
 */
static int read_outputs(json_t *object, const char *journal_path, const char *base,
	const char *endpoint, struct penstock_error *err)
{
	json_auto_t *by_key = json_object();
	struct reading reading = {.replaced = by_key,
		.run = json_string_value(json_object_get(object, "id")),
		.base = base,
		.endpoint = endpoint};
	json_t *outputs = json_array();
	json_t *replaced = json_array();
	json_t *partial = json_array();
	struct known *k;
	struct known *next;
	const char *key;
	json_t *value;
	int r = journal_replay(journal_path, take_record, &reading, NULL, err);

	HASH_SORT(reading.all, by_path);
	HASH_ITER (hh, reading.all, k, next) {
		_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);

		buf_add_str(&url, base ? base : "");
		names_key(&url, k->path);
		if (k->published)
			json_array_append_new(outputs,
				json_pack("{s:o, s:o, s:I, s:o, s:o, s:b}", "path",
					json_text(k->path), "url", json_text(buf_str(&url)), "size",
					(json_int_t)k->size, "etag", plain_etag(k->etag), "mtime",
					json_time(k->mtime_ns), "open", k->open));
		if (k->suspect)
			json_array_append_new(partial, json_text(k->path));
		free_known(&reading, k);
	}
	json_object_foreach (by_key, key, value)
		json_array_append(replaced, value);
	json_object_update_new(object, json_pack("{s:o, s:o, s:o}", "outputs", outputs, "replaced",
					       replaced, "partial", partial));
	return r == 0 && reading.no_memory ? error_memory(err) : r;
}

/* ---- collecting the JSON object, which is also the source of the text ---- */

/* Adds the cost of an attempt: up to its end, up to now if the attempt is live, or up to the last
 * report of a lost attempt. Adds nothing if the attempt has no price. */
static void add_cost(json_t *object, const struct records_attempt *a, const json_t *provenance)
{
	const char *price = json_string_value(json_object_get(provenance, "price"));
	int64_t until = a->ended_ns;

	if (!until)
		until = run_state_is_live(a->state) ? clock_wall_ns() : a->heard_ns;
	if (price && until >= a->started_ns)
		json_object_set_new(object, "cost",
			json_real(strtod(price, NULL) * (double)(until - a->started_ns) /
				  (3600.0 * NS_PER_S)));
}

/* Adds the cost and the provenance of an attempt to `object`, and the object to the list. */
static void append_attempt(json_t *list, json_t *object, const struct records_attempt *a)
{
	json_t *provenance = a->provenance ? json_loads(a->provenance, 0, NULL) : NULL;

	add_cost(object, a, provenance);
	json_object_set_new(object, "provenance", provenance ? provenance : json_null());
	json_array_append_new(list, object);
}

static int add_attempt(void *cookie, const struct records_attempt *attempt)
{
	json_t *object = json_object();

	json_add_attempt(object, attempt);
	append_attempt(cookie, object, attempt);
	return 0;
}

/* Returns the cost of all attempts; NULL if no attempt has a price. */
static json_t *add_up(const json_t *attempts)
{
	const json_t *a;
	double sum = 0;
	bool any = false;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)attempts, i, a) {
		sum += json_real_value(json_object_get(a, "cost"));
		any |= json_object_get(a, "cost") != NULL;
	}
	return any ? json_real(sum) : NULL;
}

/* Returns the tracked runs of the newest attempt that has any, or NULL if no attempt has any. An
 * attempt that ended before its first step has no tracked runs. */
static json_t *find_tracking(const json_t *attempts)
{
	for (size_t i = json_array_size(attempts); i-- > 0;) {
		json_t *found = json_object_get(
			json_object_get(json_array_get(attempts, i), "provenance"), "tracking");

		if (json_array_size(found))
			return found;
	}
	return NULL;
}

static int add_step(void *cookie, const struct records_step *step)
{
	json_array_append_new(cookie,
		json_pack("{s:i, s:i, s:o, s:o}", "attempt", step->attempt, "step", step->step + 1,
			"name", json_text(step->name), "ended", json_time(step->ended_ns)));
	return 0;
}

/* Returns the workflow without a `job` around it; NULL if it is invalid. */
static json_t *parse_workflow(const struct buf *text)
{
	json_auto_t *root = json_loadb(buf_str(text), text->len, 0, NULL);
	json_t *job = json_object_get(root, "job");

	return json_incref(job ? job : root);
}

/* Returns the workflow as it was run, without a `job` around it; NULL if it cannot be read. */
static json_t *read_workflow(const char *workflow_path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);

	return fs_read(workflow_path, &text, NULL) == 0 ? parse_workflow(&text) : NULL;
}

/* Adds the resources, the endpoint of the output, and the outputs that the local journal lists. */
static int collect_outputs(json_t *object, const struct run_layout *layout, const char *output,
	struct penstock_error *err)
{
	_cleanup_free_ char *journal = path_join(layout->state, "sync");
	json_auto_t *workflow = read_workflow(layout->workflow);
	json_t *resources = json_object_get(workflow, "resources");
	const json_t *s3 = json_object_get(json_object_get(workflow, "output"), "s3");
	const char *url = json_string_value(json_object_get(s3, "endpointUrl"));

	/* The endpoint is unknown if the workflow has only a reference to it. */
	if (url && !strstr(url, "://") && strcmp(url, "embedded") != 0)
		url = NULL;
	json_object_set_new(object, "resources", resources ? json_incref(resources) : json_null());
	json_object_set_new(object, "endpoint", json_text(url));
	return journal ? read_outputs(object,
				 access(journal, F_OK) == 0 ? journal : layout->published, output,
				 url, err)
		       : error_memory(err);
}

static int collect(json_t *object, struct records *records, const char *home,
	const struct records_run *run, bool elsewhere, bool moved, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	json_t *attempts = json_array(), *tracking, *cost;
	json_auto_t *done = json_array(), *workflow = NULL;
	int r = run_layout_init(&layout, home, run->id, run->last.attempt, err);

	json_object_update_new(object,
		json_pack("{s:o, s:o}", "id", json_text(run->id), "name", json_text(run->name)));
	json_add_attempt(object, &run->last);
	json_object_update_new(object,
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "workflow",
			json_text(run->workflow), "output", json_text(run->output), "created",
			json_time(run->created_ns), "notice",
			elsewhere ? json_null() : json_notice(home, run), "attempts", attempts,
			"directory", json_text(layout.dir), "log", json_text(layout.log)));
	if (r == 0)
		r = records_attempts(records, run->id, add_attempt, attempts, err);
	tracking = find_tracking(attempts);
	if (r == 0 && tracking)
		json_object_set(object, "tracking", tracking);
	cost = add_up(attempts);
	if (cost)
		json_object_set_new(object, "cost", cost);
	if (r == 0)
		r = records_steps(records, run->id, add_step, done, err);
	if (r == 0)
		workflow = read_workflow(layout.workflow);
	json_object_set_new(object, "steps",
		show_steps(workflow, done, &run->last, layout.dir, moved ? NULL : layout.state));
	return r == 0 ? collect_outputs(object, &layout, run->output, err) : r;
}

static int show_object(
	const struct cli *cli, json_t *object, const struct records_run *run, const char *host)
{
	if (*host)
		json_object_set_new(object, "host", json_text(host));
	if (cli_has(cli, "json"))
		return show_json(json_incref(object));
	show_print(object, run, host);
	return 0;
}

/* Shows a run of any machine from its state in a store. */
static int show_stored(void *cookie, const struct place_run *found)
{
	json_auto_t *object = json_object();
	json_auto_t *workflow = found->workflow ? parse_workflow(found->workflow) : NULL;
	const struct records_run *run = found->run;
	json_t *attempts = json_array(), *cost;

	json_add_state(object, &run->last);
	for (size_t i = 0; i < found->n; i++) {
		json_t *attempt = json_object();

		json_add_state(attempt, &found->attempts[i]);
		append_attempt(attempts, attempt, &found->attempts[i]);
	}
	cost = add_up(attempts);
	if (cost)
		json_object_set_new(object, "cost", cost);
	json_object_update_new(object,
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:O?}", "id", json_text(run->id), "name",
			json_text(run->name), "output", json_text(run->output), "attempts",
			attempts, "steps", show_steps(workflow, NULL, &run->last, NULL, NULL),
			"resources", json_object_get(workflow, "resources")));
	return show_object(cookie, object, run, found->host);
}

static int run_show_stored(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (!location_is_object(cli_operand(cli, 1)))
		return cli_misuse(
			cli, "invalid place '%s'; it is s3://BUCKET/PATH/", cli_operand(cli, 1));
	if (!records_is_id(cli_operand(cli, 0)))
		return cli_misuse(cli, "invalid id '%s'; with a place, RUN is a whole id",
			cli_operand(cli, 0));
	r = places_find(cli, 1, cli_operand(cli, 0), show_stored, (void *)(uintptr_t)cli, &err);
	return r < 0 ? remote_fail(cli, &err) : r;
}

static int run_show(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct cluster_view cluster = {0};
	json_auto_t *object = json_object();
	char host[SHOW_HOST_SIZE] = "";
	bool elsewhere = false;
	int r;

	if (cli_n_operands(cli) > 1)
		return run_show_stored(cli);
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r == 0)
		elsewhere = cluster_view_correct(&cluster, home, run.id, &run.last);
	if (r == 0)
		show_elsewhere(home, &run, host);
	cluster_view_release(&cluster);
	if (r == 0)
		r = collect(object, records, home, &run, elsewhere, *host != '\0', &err);
	if (r < 0)
		return cli_fail(cli, &err);
	return show_object(cli, object, &run, host);
}

const struct command command_show = {
	.name = "show",
	.summary = "show everything that is known about a run",
	.operands = "RUN [s3://PLACE]",
	.min_operands = 1,
	.max_operands = 2,
	.description =
		"Shows a run: its state and attempts, the state of each step, including those "
		"within groups, loops, launches and modules, its resources, its sources (versions, "
		"inputs with their ETags), the place of its log, the objects that it has "
		"published, with their ETags, and the objects that it kept before overwriting "
		"them.\n\n"
		"RUN is an id, the beginning of one, or a name. With the output of a run as a "
		"place, the verb shows a run of any machine, from the state that is there; then "
		"RUN is a whole id.",
	.options = OPTIONS({0, "json", NULL, "Print the run as a JSON object"}, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock show cifar10", "Everything that is known about the run named cifar10"},
		{"penstock show --json 3f2a",
			"The same for the run whose id begins with 3f2a, as JSON"},
		{"penstock show 3f2a9c0d5e6b s3://bucket/results/",
			"A run of another machine, by its state next to its output"}),
	.exits = EXITS({"66", "There is no such run or bucket"},
		{"69", "The store does not respond"}, {"77", "The store denies access"}),
	.run = run_show,
};
