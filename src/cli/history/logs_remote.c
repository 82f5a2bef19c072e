#include "cli/history/logs_remote.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/objects/remote.h"
#include "copy/copy.h"
#include "records/layout.h"
#include "base/banned.h"

enum { POLL_MS = 1000 };

struct remote_log {
	struct remote remote;
	struct location at;
	char *prefix; /* "a/b/.penstock/runs/" */
	char *run; /* its id */
	bool several;
};

static void remote_log_release(struct remote_log *log)
{
	remote_release(&log->remote);
	location_release(&log->at);
	free(log->prefix);
	free(log->run);
}

/* Notes the run of ".penstock/runs/ID/log/N" if it is the requested one, or if none was
 * requested. */
static int note_run(void *cookie, const struct object_info *info)
{
	struct remote_log *log = cookie;
	const char *id = info->key + strlen(log->prefix);
	size_t len = strcspn(id, "/");

	if (!str_starts(id + len, "/log/"))
		return 0;
	if (log->run && (strlen(log->run) != len || strncmp(log->run, id, len) != 0))
		log->several = true;
	else if (!log->run)
		log->run = strndup(id, len);
	return log->several;
}

/* With `wait`, waits for a run that has not logged anything yet. */
static int find_run(
	struct remote_log *log, const char *asked, bool wait, struct penstock_error *err)
{
	int r;

	if (asked) {
		log->run = strdup(asked);
		return log->run ? 0 : error_memory(err);
	}
	for (;;) {
		r = object_list(object_at(log->remote.client, log->at.bucket, log->prefix), NULL,
			note_run, log, log->remote.cancel, err);
		if (r < 0)
			return r;
		if (log->run || !wait)
			break;
		poll(NULL, 0, POLL_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
	if (log->several)
		return error_set(
			err, PENSTOCK_E_INVALID, "several runs log there; add the id of one");
	if (!log->run)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"no log of a run there; `enableLogging: true` in the workflow keeps it "
			"there");
	return 0;
}

/* Reads the state and attempt that the run's owner has published; "" and 0 if there is no such
 * object. */
static int read_state(
	struct remote_log *log, char state[static 16], int64_t *attempt, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *key = str_printf("%s%s/state.json", log->prefix, log->run);
	json_auto_t *json = NULL;
	const char *found;
	int r;

	*state = '\0';
	*attempt = 0;
	if (!key)
		return error_memory(err);
	r = object_get(object_at(log->remote.client, log->at.bucket, key),
		&(struct object_get_options){.cancel = log->remote.cancel}, &text, NULL, &e);
	if (r == -PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	json = json_loads(buf_str(&text), 0, NULL);
	found = json_string_value(json_object_get(json, "state"));
	snprintf(state, 16, "%s", found ? found : "");
	*attempt = json_integer_value(json_object_get(json, "attempt"));
	return 0;
}

/* Prints the attempt's log from byte `*shown` on. A missing log counts as empty. */
static int print_more(
	struct remote_log *log, int64_t attempt, uint64_t *shown, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_free_ char *key = str_printf(
		"%s%s/log/%lld", log->prefix, log->run, (long long)attempt);
	struct object_get_options options = {.offset = *shown, .cancel = log->remote.cancel};
	int r;

	if (!key)
		return error_memory(err);
	r = object_head(object_at(log->remote.client, log->at.bucket, key), &info, &e);
	if (r == -PENSTOCK_E_NOT_FOUND || (r == 0 && info.size <= *shown))
		return 0;
	if (r == 0) {
		/* The object is replaced as it grows: read only this version. */
		options.if_match = info.etag;
		options.length = info.size - *shown;
		r = object_get_stream(object_at(log->remote.client, log->at.bucket, key), &options,
			copy_to_stdout, &log->remote.cancel, NULL, &e);
	}
	if (r == -PENSTOCK_E_CHANGED || r == -PENSTOCK_E_PRECONDITION)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	fflush(stdout);
	*shown = info.size;
	return 0;
}

/* Follows the run to its end. A preempted or lost run may be resumed, and its next log is followed,
 * too. */
static int follow(struct remote_log *log, int64_t attempt, struct penstock_error *err)
{
	uint64_t shown = 0;

	for (;;) {
		char state[16];
		int64_t last;
		/* Read the state before the log: then the log of an ended run is complete. */
		int r = read_state(log, state, &last, err);

		if (r == 0 && attempt == 0)
			attempt = last;
		if (r == 0 && attempt > 0)
			r = print_more(log, attempt, &shown, err);
		if (r < 0)
			return r;
		if (attempt > 0 && last > attempt) {
			attempt++;
			shown = 0;
			continue;
		}
		if (strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 ||
			strcmp(state, "stopped") == 0)
			return 0;
		poll(NULL, 0, POLL_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
}

/* Prints the log of an attempt (0 for the last one), or of all. */
static int show(struct remote_log *log, int64_t attempt, bool all, struct penstock_error *err)
{
	uint64_t any = 0;
	char state[16];
	int64_t last = attempt;
	int r = attempt ? 0 : read_state(log, state, &last, err);

	for (attempt = all ? 1 : last; r == 0 && attempt <= last; attempt++) {
		uint64_t shown = 0;

		r = print_more(log, attempt, &shown, err);
		any += shown;
	}
	if (r == 0 && !any)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "run %s has no log there", log->run);
	return r;
}

int logs_remote(const struct cli *cli, int64_t attempt)
{
	_cleanup_(remote_log_release) struct remote_log log = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = remote_open_at(&log.remote, cli, 0, false, &log.at, &err);

	if (r == 0) {
		log.prefix = str_printf("%s%s" RUN_STATE_ROOT, log.at.key,
			*log.at.key && !str_ends(log.at.key, "/") ? "/" : "");
		r = log.prefix ? 0 : error_memory(&err);
	}
	if (r == 0)
		r = find_run(&log, cli_operand(cli, 1), cli_has(cli, "follow"), &err);
	if (r == 0)
		r = cli_has(cli, "follow") ? follow(&log, attempt, &err)
					   : show(&log, attempt, cli_has(cli, "all"), &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}
