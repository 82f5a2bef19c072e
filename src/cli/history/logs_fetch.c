#include "cli/history/logs_fetch.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/objects/remote.h"
#include "cli/workflow/load.h"
#include "records/records.h"
#include "run/stage/stores.h"
#include "transfer/objects.h"
#include "workflow/workflow.h"
#include "records/layout.h"
#include "base/banned.h"

static int fetch(const struct workflow *workflow, const char *home, const char *id, int attempt,
	const char *path, struct penstock_error *err)
{
	struct stores_embedded_ops ops = remote_embedded_ops(home);
	_cleanup_free_ char *key = NULL;
	struct run_store *store = NULL;
	struct stores stores = {0};
	int r;

	if (asprintf(&key, "%s" RUN_STATE_ROOT "%s/log/%d", workflow->output.s3.prefix, id,
		    attempt) < 0) {
		key = NULL;
		return error_memory(err);
	}
	r = stores_init(&stores, &ops, NULL, err);
	if (r == 0)
		r = stores_open(&stores, workflow, &workflow->output.s3, &store, err);
	if (r == 0)
		r = object_get_file(object_at(store->client, store->bucket, key), path,
			&(struct object_get_options){.relaxed = true}, NULL, err);
	stores_release(&stores);
	return r;
}

int logs_fetch(const char *home, const struct records_run *run, int attempt, const char *path,
	struct penstock_error *err)
{
	_cleanup_(workflow_freep) struct workflow *workflow = NULL;
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r;

	if (access(path, F_OK) == 0)
		return 0;
	r = load_run_workflow(
		&workflow, home, run, &(struct load_run_given){.places_only = true}, err);
	if (r < 0)
		return r;
	if (workflow->output.kind != WORKFLOW_S3 || !workflow->enable_logging.value)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the log of attempt %d is not on this machine; `enableLogging: true` in "
			"the workflow, with an output in object storage, makes it available to "
			"other machines",
			attempt);
	r = fetch(workflow, home, run->id, attempt, path, &e);
	if (r == -(int)PENSTOCK_E_NOT_FOUND)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"the log of attempt %d is neither on this machine nor next to the "
			"output: it ended before it had one",
			attempt);
	return r < 0 ? error_move(err, &e) : 0;
}
