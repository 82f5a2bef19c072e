#include "cli/history/artifacts_place.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/str.h"
#include "cli/objects/remote.h"
#include "cli/workflow/load.h"
#include "records/layout.h"
#include "records/supervisor.h"

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

int artifacts_open(struct artifacts_place *place, const char *home, struct penstock_error *err)
{
	struct stores_embedded_ops ops = remote_embedded_ops(home);
	int r = stores_init(&place->stores, &ops, NULL, err);

	return r < 0 ? r
		     : stores_open(&place->stores, place->workflow, &place->workflow->output.s3,
			       &place->store, err);
}

void artifacts_place_release(struct artifacts_place *place)
{
	stores_release(&place->stores);
	free(place->name);
	free(place->dir);
	free(place->prefix);
	workflow_free(place->workflow);
	*place = (struct artifacts_place){0};
}

/* State of a removal of all objects of a listing. Objects are removed while the listing is read,
 * because the list may not fit in memory. */
struct removal {
	struct object_ref at;
	struct strlist keys;
	int r;
	struct penstock_error *err;
};

static void remove_noted(struct removal *removal)
{
	removal->r = object_delete_many(&(struct object_deletion){.client = removal->at.client,
						.bucket = removal->at.bucket,
						.keys = &removal->keys},
		NULL, removal->err);
	strlist_release(&removal->keys);
}

static int note_to_remove(void *cookie, const struct object_info *info)
{
	struct removal *removal = cookie;

	if (strlist_add(&removal->keys, info->key) < 0)
		removal->r = error_memory(removal->err);
	else if (removal->keys.n == LIMIT_S3_LIST_KEYS)
		remove_noted(removal);
	return removal->r < 0;
}

int artifacts_remove(struct object_ref at, const atomic_int *cancel, struct penstock_error *err)
{
	struct removal removal = {.at = at, .err = err};
	int r = object_list(at, NULL, note_to_remove, &removal, cancel, err);

	if (r == 0 && removal.r == 0 && removal.keys.n)
		remove_noted(&removal);
	strlist_release(&removal.keys);
	return r < 0 ? r : removal.r;
}

int artifacts_tag_path(char **out, const char *home, const char *tag, const char *ending,
	struct penstock_error *err)
{
	if (!*tag || *tag == '.' || *tag == '-' || tag[strspn(tag, NAME_CHARS)] ||
		strlen(tag) > LIMIT_WORKFLOW_NAME)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid tag: use 1 to %d letters, digits, '.', '_' and '-', not '%s'",
			LIMIT_WORKFLOW_NAME, tag);
	/* The description of tag "v1" is the file v1.json. */
	if (str_ends(tag, ".json"))
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid tag '%s'; a tag must not end in '.json'", tag);
	*out = str_printf("%s/tags/%s%s", home, tag, ending);
	return *out ? 0 : error_memory(err);
}

/* Finds the place of the run's output. */
static int place_of_run(struct artifacts_place *out, const char *home,
	const struct records_run *run, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	int r = load_run_workflow(
		&out->workflow, home, run, &(struct load_run_given){.places_only = true}, err);

	if (r < 0)
		return r;
	snprintf(out->id, sizeof(out->id), "%s", run->id);
	out->name = strdup(run->name ? run->name : run->id);
	if (!out->name)
		return error_memory(err);
	if (out->workflow->output.kind == WORKFLOW_HTTP)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot read the output of run '%s': it went to %s, which cannot be read "
			"back",
			run->id, run->output ? run->output : "an HTTP server");
	if (out->workflow->output.kind == WORKFLOW_S3) {
		out->prefix = strdup(out->workflow->output.s3.prefix);
		return out->prefix ? 0 : error_memory(err);
	}
	r = run_layout_init(&layout, home, run->id, 1, err);
	if (r == 0 && !(out->dir = strdup(layout.output)))
		r = error_memory(err);
	return r;
}

static int find_run(struct artifacts_place *out, const char *home, struct records *records,
	const char *word, bool finished, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	int r = records_find(records, word, &run, err);

	if (r == -(int)PENSTOCK_E_NOT_FOUND && finished)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find run '%s'; start it with 'penstock run' (if '%s' is a workflow "
			"of dstack: 'penstock run %s'), or find its name with 'penstock ps -a'",
			word, word, word);
	if (r < 0)
		return r;
	out->live = run_state_is_live(run.last.state) && supervisor_lives(home, run.id);
	/* Read the record again: the run may have ended since the first read. */
	if (run_state_is_live(run.last.state) && !out->live) {
		records_run_release(&run);
		r = records_find(records, word, &run, err);
		if (r < 0)
			return r;
	}
	if (finished && run.last.state != RUN_SUCCEEDED && !out->live)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot use the output of run '%s': it has not succeeded (it is %s); start "
			"it first with 'penstock run'",
			word, run_state_name(run.last.state));
	return place_of_run(out, home, &run, err);
}

static int find_tag(struct artifacts_place *out, const char *home, struct records *records,
	const char *tag, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *path = NULL;
	json_auto_t *json = NULL;
	const char *id, *prefix, *url;
	int r = artifacts_tag_path(&path, home, tag, ".json", err);

	if (r < 0)
		return r;
	if (!path || access(path, F_OK) < 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot open tag '%s': it does not exist; see 'penstock tag list'", tag);
	r = fs_read(path, &text, err);
	if (r < 0)
		return r;
	json = json_loads(buf_str(&text), 0, NULL);
	id = json_string_value(json_object_get(json, "run"));
	prefix = json_string_value(json_object_get(json, "prefix"));
	url = json_string_value(json_object_get(json, "url")); /* NULL in earlier versions */
	if (!json) {
		r = error_set(err, PENSTOCK_E_CORRUPT, "cannot read tag '%s': '%s' is not JSON",
			tag, path);
	} else if (!prefix) {
		r = artifacts_tag_path(&out->dir, home, tag, "", err);
	} else {
		r = records_find(records, id ? id : "", &run, err);
		if (r == -(int)PENSTOCK_E_NOT_FOUND)
			return error_set(err, PENSTOCK_E_NOT_FOUND,
				"cannot open tag '%s': run '%s', which has the address of the "
				"store, was removed; the copy is in '%s': remove it with "
				"'penstock rm -r', and then the file '%s'",
				tag, id ? id : "", url ? url : prefix, path);
		if (r == 0)
			r = place_of_run(out, home, &run, err);
		free(out->prefix);
		out->prefix = strdup(prefix);
		if (r == 0 && !out->prefix)
			r = error_memory(err);
	}
	free(out->name);
	out->name = strdup(tag);
	return r == 0 && !out->name ? error_memory(err) : r;
}

int artifacts_find(struct artifacts_place *out, const char *home, struct records *records,
	const char *word, bool finished, struct penstock_error *err)
{
	int r;

	*out = (struct artifacts_place){0};
	r = *word == ':' ? find_tag(out, home, records, word + 1, err)
			 : find_run(out, home, records, word, finished, err);
	if (r < 0)
		artifacts_place_release(out);
	return r;
}

/* A search for the newest run with a name in the dstack project of a workflow file. */
struct search {
	const char *name, *file;
	size_t len; /* bytes of `file` up to the end of "/.dstack/workflows" */
	char id[RECORDS_ID_SIZE];
};

static int see_run(void *cookie, const struct records_run *run)
{
	struct search *s = cookie;

	if (!run->name || strcmp(run->name, s->name) != 0 ||
		strncmp(run->workflow, s->file, s->len) != 0)
		return 0;
	snprintf(s->id, sizeof(s->id), "%s", run->id);
	return 1;
}

/* Finds the run that a dependency names. In the workflow of a dstack project, NAME is the newest
 * run of the same project. OWNER/REPO/NAME, and NAME in any other workflow, is the newest run of
 * that name in any project. */
static int find_dependency(struct artifacts_place *place, const char *file, const char *home,
	struct records *records, const char *name, struct penstock_error *err)
{
	static const char below[] = "/.dstack/workflows";
	const char *project = strstr(file, below), *slash = strrchr(name, '/');
	struct search s = {.name = name, .file = file};
	int r;

	if (!project || slash)
		return artifacts_find(place, home, records, slash ? slash + 1 : name, true, err);
	s.len = (size_t)(project - file) + strlen(below);
	r = records_list(records, see_run, &s, err);
	if (r == 0 && !*s.id)
		r = error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find run '%s' in this project; run it first: 'penstock run %s'",
			name, name);
	return r < 0 ? r : artifacts_find(place, home, records, s.id, true, err);
}

static int resolve_one(struct workflow *workflow, struct workflow_input *input, const char *home,
	struct records *records, struct artifacts_place *place, struct penstock_error *err)
{
	static const char latest[] = ":latest";
	const struct workflow_artifacts *from = &input->artifacts;
	const struct workflow_text *name = from->tag.value ? &from->tag : &from->run;
	_cleanup_(buf_release) struct buf at = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *run = from->tag.value ? NULL : strdup(name->value), *tag = NULL;
	const char *slash = run ? strrchr(run, '/') : NULL;
	bool either = run && str_ends(run, latest);
	int r = -(int)PENSTOCK_E_NOT_FOUND;

	workflow_place_format(workflow, &name->at, &at);
	/* dstack's NAME:latest is the tag NAME or, if there is no such tag, the newest run of that
	 * name. */
	if (either)
		run[strlen(run) - strlen(latest)] = '\0';
	if (!run || either)
		tag = str_printf(":%s", !run ? name->value : slash ? slash + 1 : run);
	if ((!run && !from->tag.value) || ((!run || either) && !tag))
		return error_memory(err);
	if (tag)
		r = artifacts_find(place, home, records, tag, true, either ? NULL : err);
	if (r < 0 && run)
		r = find_dependency(place, workflow->file, home, records, run, err);
	if (r < 0)
		return error_prefix(err, "%s", buf_str(&at));
	if (place->dir) {
		input->kind = WORKFLOW_LOCAL;
		input->local_path = (struct workflow_text){.value = place->dir, .at = name->at};
		return 0;
	}
	MUST(place->workflow);
	input->kind = WORKFLOW_S3;
	input->s3 = place->workflow->output.s3;
	input->s3.prefix = place->prefix;
	input->s3.path = (struct workflow_text){.value = place->prefix, .at = name->at};
	input->s3.at = name->at;
	return 0;
}

int artifacts_resolve(struct workflow *workflow, const char *home, struct records *records,
	struct artifacts_place *places, struct strlist *after, struct penstock_error *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < workflow->n_inputs; i++) {
		if (workflow->inputs[i].kind == WORKFLOW_ARTIFACTS)
			r = resolve_one(
				workflow, &workflow->inputs[i], home, records, &places[i], err);
		if (r == 0 && places[i].live && strlist_add(after, places[i].id) < 0)
			r = error_memory(err);
	}
	return r;
}
