/* Compares the workflow of a run that is started again with the workflow of the attempt that the
 * run continues. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/internal.h"
#include "run/stage/stores.h"
#include "run/walk/finished.h"
#include "transfer/objects.h"
#include "workflow/workflow.h"

/* File below the run's state: the workflow to which the records of finished steps belong.
 * `runs/ID/workflow` may be newer: that file is also written when the run is submitted to Slurm or
 * found in a store. */
#define TAKEN "workflow"

/* Writes the file unless it already has this text: the fsync of a write takes as long as the rest
 * of a short run. */
static int keep_file(const char *path, const char *text, size_t len, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf there = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);

	if (fs_read(path, &there, NULL) == 0 && there.len == len &&
		memcmp(there.data, text, len) == 0)
		return 0;
	return fs_write_atomic(path, text, len, 0600, err);
}

int run_keep_workflow(const struct run_layout *layout, const struct workflow *workflow,
	const char *source, struct penstock_error *err)
{
	_cleanup_free_ char *path = path_join(layout->dir, run_file_name(RUN_FILE_SOURCE));
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	int r;

	if (!path)
		return error_memory(err);
	if (workflow_write_record(workflow, &text) < 0 || buf_failed(&text))
		return buf_error(&text, "the copy of the workflow", err);
	r = keep_file(layout->workflow, text.data, text.len, err);
	return r < 0 || !source ? r : keep_file(path, source, strlen(source), err);
}

static int write_record(
	const struct workflow *workflow, struct buf *out, struct penstock_error *err)
{
	if (workflow_write_record(workflow, out) < 0 || buf_failed(out))
		return buf_error(out, "the copy of the workflow", err);
	return 0;
}

int run_compare_workflow(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *taken = path_join(run->attempt.layout.state, TAKEN);
	_cleanup_(buf_release) struct buf now = BUF_INIT(2 * LIMIT_WORKFLOW_FILE),
					  before = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	int r;

	run->changes.first_step = SIZE_MAX;
	if (!taken)
		return error_memory(err);
	/* A run that an older version of penstock started has only `runs/ID/workflow`. */
	if (fs_read(taken, &before, NULL) < 0) {
		buf_clear(&before);
		if (fs_read(run->attempt.layout.workflow, &before, NULL) < 0)
			return 0;
	}
	r = write_record(run->attempt.workflow, &now, err);
	/* If the copy is damaged, any step may have changed: run all of them again. */
	if (r == 0 && workflow_compare(buf_str(&before), buf_str(&now), &run->changes, NULL) < 0)
		run->changes = (struct workflow_changes){.first_step = 0};
	if (r == 0 && run->attempt.steps_done > run->changes.first_step)
		run->attempt.steps_done = run->changes.first_step;
	return r;
}

bool run_is_newer_elsewhere(const struct run_options *options, const char *id, int attempt)
{
	const struct workflow_output *output = &options->workflow->output;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	_cleanup_free_ char *key = NULL;
	char prefix[RUN_STATE_PREFIX_SIZE];
	struct stores stores = {0};
	struct run_store *store;
	json_auto_t *root = NULL;

	if (output->kind != WORKFLOW_S3 ||
		stores_init(&stores, options->embedded, &(struct stores_patience){0}, NULL) < 0)
		return false;
	run_state_prefix(id, prefix);
	if (stores_open(&stores, options->workflow, &output->s3, &store, NULL) == 0)
		key = str_printf("%s%s/state.json", store->prefix, prefix);
	if (key && object_get(object_at(store->client, store->bucket, key), NULL, &text, NULL,
			   NULL) == 0)
		root = json_loadb(buf_str(&text), text.len, 0, NULL);
	stores_release(&stores);
	return json_integer_value(json_object_get(root, "attempt")) > attempt;
}

int run_check_same_file(
	const struct run_options *options, const char *id, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_free_ char *path = run_path(options->home, id, RUN_FILE_WORKFLOW);
	_cleanup_(buf_release) struct buf now = BUF_INIT(2 * LIMIT_WORKFLOW_FILE),
					  before = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	struct workflow_changes changes;
	int r;

	if (options->replace || options->id || !options->workflow_path ||
		records_find(options->records, id, &run, NULL) < 0 ||
		strcmp(run.workflow, options->workflow_path) == 0 ||
		(*run.workflow == '/' && access(run.workflow, F_OK) < 0) || !path ||
		fs_read(path, &before, NULL) < 0)
		return 0;
	r = write_record(options->workflow, &now, err);
	if (r < 0 || workflow_compare(buf_str(&before), buf_str(&now), &changes, NULL) < 0 ||
		!changes.n)
		return r;
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot run '%s': run '%s' of this name is from '%s', which differs in %s; --name "
		"NAME starts another run, --replace continues the existing run with this file",
		options->workflow_path, id, run.workflow, changes.names);
}

static void report(const struct run *run)
{
	const struct workflow_steps *steps = &run->attempt.workflow->steps;
	size_t first = run->changes.first_step;
	bool repeats = first < steps->n;

	if (run->changes.n)
		run_say(&run->attempt.voice, RUN_EVENT_MESSAGE,
			"the workflow has changed: %s%s%s%s", run->changes.names,
			repeats ? "; the run continues at '" : "",
			repeats ? steps->items[first].label : "",
			repeats ? "' or at an earlier step" : "");
}

int run_take_workflow(struct run *run, struct penstock_error *err)
{
	const struct run_layout *layout = &run->attempt.layout;
	_cleanup_free_ char *taken = path_join(layout->state, TAKEN);
	_cleanup_free_ char *steps = path_join(layout->state, "steps");
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);
	int r = 0;

	if (!taken || !steps)
		return error_memory(err);
	if (run->attempt.continuing) {
		report(run);
		/* First remove the records of the steps that must run again, then keep the
		 * workflow: if penstock is killed in between, the next attempt finds the same
		 * changes. */
		if (run->changes.first_step != SIZE_MAX)
			r = finished_cut(steps, run->changes.first_step, err);
	}
	if (r == 0)
		r = run_keep_workflow(layout, run->attempt.workflow, run->options->source, err);
	if (r < 0)
		return r;
	/* A hard link keeps these contents without another fsync, because `runs/ID/workflow` is
	 * always replaced, never written in place. */
	if (unlink(taken) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot replace '%s'", taken);
	if (link(layout->workflow, taken) == 0)
		return 0;
	r = write_record(run->attempt.workflow, &text, err);
	return r < 0 ? r : fs_write_atomic(taken, text.data, text.len, 0600, err);
}
