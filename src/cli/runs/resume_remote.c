#include "cli/runs/resume_remote.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/objects/remote.h"
#include "records/records.h"
#include "records/layout.h"

enum { SHORTEST_ID = 4 };

struct search {
	struct remote remote;
	struct location at;
	char *prefix; /* "a/b/.penstock/runs/" */
	const char *word;
	struct strlist ids; /* ids of all runs that have a state in this place */
	bool no_memory;
};

static void search_release(struct search *search)
{
	remote_release(&search->remote);
	location_release(&search->at);
	strlist_release(&search->ids);
	free(search->prefix);
}

static int note_id(void *cookie, const struct object_info *info)
{
	struct search *search = cookie;
	const char *id = info->key + strlen(search->prefix);
	size_t len = strcspn(id, "/");

	if (len == RECORDS_ID_SIZE - 1 && strspn(id, "0123456789abcdef") >= len &&
		strlist_addf(&search->ids, "%.*s", (int)len, id) < 0)
		search->no_memory = true;
	return search->no_memory;
}

static int get(struct search *search, const char *id, const char *name, struct buf *out,
	struct penstock_error *err)
{
	_cleanup_free_ char *key = str_printf("%s%s/%s", search->prefix, id, name);

	if (!key)
		return error_memory(err);
	return object_get(object_at(search->remote.client, search->at.bucket, key),
		&(struct object_get_options){.cancel = search->remote.cancel}, out, NULL, err);
}

/* Returns the name in the run's state, or NULL if there is none. Owned by the caller. */
static char *name_of(struct search *search, const char *id)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	json_auto_t *root = NULL;
	const char *name;

	if (get(search, id, "state.json", &text, NULL) < 0)
		return NULL;
	root = json_loadb(buf_str(&text), text.len, 0, NULL);
	name = json_string_value(json_object_get(root, "name"));
	return name ? strdup(name) : NULL;
}

/* Chooses a run of the list by the beginning of its id or by its name. Sets the name of `run` only
 * if the run was found by its name. */
static int choose(struct search *search, struct records_run *run, struct penstock_error *err)
{
	const char *found = NULL;
	size_t n = 0;

	for (size_t i = 0; i < search->ids.n; i++) {
		if (strlen(search->word) >= SHORTEST_ID &&
			str_starts(search->ids.items[i], search->word)) {
			found = search->ids.items[i];
			n++;
		}
	}
	for (size_t i = 0; n == 0 && i < search->ids.n; i++) {
		_cleanup_free_ char *name = name_of(search, search->ids.items[i]);

		if (!name || strcmp(name, search->word) != 0)
			continue;
		found = search->ids.items[i];
		free(run->name);
		run->name = take_pointer(name);
		break;
	}
	if (n > 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot choose a run: several run ids in this place begin with '%s'; give "
			"more digits",
			search->word);
	if (!found)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot find run '%s' below '%s://%s/%s' (%zu other%s there)", search->word,
			location_scheme(&search->at), search->at.bucket, search->prefix,
			search->ids.n, search->ids.n == 1 ? " is" : "s are");
	snprintf(run->id, sizeof(run->id), "%s", found);
	return 0;
}

static int list(struct search *search, struct penstock_error *err)
{
	const char *key = search->at.key;
	const char *slash = strrchr(key, '/');
	size_t len = slash ? (size_t)(slash - key) + 1 : 0;
	int r;

	search->word = key + len;
	if (!*search->word)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot resume '%s': the id or the name of a run must follow the output",
			search->at.text);
	search->prefix = str_printf("%.*s" RUN_STATE_ROOT, (int)len, key);
	if (!search->prefix)
		return error_memory(err);
	r = object_list(object_at(search->remote.client, search->at.bucket, search->prefix), "/",
		note_id, search, search->remote.cancel, err);
	if (r == 0 && search->no_memory)
		r = error_memory(err);
	return r;
}

/* Fetches the workflow of a run. The run must not be live on this machine, because a live run uses
 * the file that is replaced. */
static int fetch_workflow(struct search *search, const char *home, struct records_run *run,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *dir = NULL, *path = NULL;
	int r = get(search, run->id, "workflow", &text, &e);

	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot resume run '%s': its state has no workflow; pass the file to "
			"'penstock run'",
			run->id);
	if (r < 0)
		return error_move(err, &e);
	dir = run_path(home, run->id, RUN_FILE_DIR);
	path = run_path(home, run->id, RUN_FILE_WORKFLOW);
	run->workflow = str_printf("%s://%s/%s%s/workflow", location_scheme(&search->at),
		search->at.bucket, search->prefix, run->id);
	if (!dir || !path || !run->workflow)
		return error_memory(err);
	r = fs_mkdirs(dir, 0700, err);
	return r < 0 ? r : fs_write_atomic(path, text.data, text.len, 0600, err);
}

/* Takes the state and the workflow from the store if another machine has made a later attempt. */
static int take_newer(struct search *search, const char *home, struct records_run *run,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	char *local = run->workflow;
	json_auto_t *root = NULL;
	const char *state;
	int r = get(search, run->id, "state.json", &text, err);

	if (r == 0)
		root = json_loadb(buf_str(&text), text.len, 0, NULL);
	state = json_string_value(json_object_get(root, "state"));
	if (r < 0 || !state ||
		json_integer_value(json_object_get(root, "attempt")) <= run->last.attempt)
		return r;
	/* A live state counts as lost here: the lease decides later whether the run can be taken
	 * over. */
	run->last.state = RUN_LOST;
	for (int i = RUN_SUCCEEDED; i < RUN_MOVED; i++) {
		if (strcmp(state, run_state_name((enum run_state)i)) == 0)
			run->last.state = (enum run_state)i;
	}
	r = fetch_workflow(search, home, run, err);
	/* Keep the path of the local workflow file, from which credentials are read. */
	if (run->workflow != local)
		free(run->workflow);
	run->workflow = local;
	return r;
}

int resume_remote_find(const struct cli *cli, const char *home, struct records *records,
	struct records_run *run, struct penstock_error *err)
{
	_cleanup_(search_release) struct search search = {0};
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	struct records_run known = {0};
	int r = remote_open_at(&search.remote, cli, 0, true, &search.at, err);

	if (r == 0)
		r = list(&search, err);
	if (r == 0)
		r = choose(&search, run, err);
	if (r < 0)
		return r;
	run->last.state = RUN_LOST;
	r = records_find(records, run->id, &known, &e);
	if (r == 0) {
		records_run_release(run);
		*run = known;
		return run_state_is_live(run->last.state) ? 0 : take_newer(&search, home, run, err);
	}
	return r == -(int)PENSTOCK_E_NOT_FOUND ? fetch_workflow(&search, home, run, err)
					       : error_move(err, &e);
}
