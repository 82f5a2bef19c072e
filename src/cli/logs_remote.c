#include "cli/logs_remote.h"

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
#include "cli/remote.h"
#include "base/banned.h"

enum { LOOK_MS = 1000 };

struct remote_log {
	struct remote remote;
	struct location at;
	char *prefix; /* "a/b/.penstock/runs/" */
	char *run;    /* its id */
	bool several;
};

static void remote_log_release(struct remote_log *log)
{
	remote_release(&log->remote);
	location_release(&log->at);
	free(log->prefix);
	free(log->run);
}

/* Of ".penstock/runs/ID/log/N": the run that logs there, or that was asked for. */
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

/* With `wait` one that has logged nothing yet is waited for. */
static int find_run(
	struct remote_log *log, const char *asked, bool wait, struct penstock_error *err)
{
	int r;

	if (asked) {
		log->run = strdup(asked);
		return log->run ? 0 : error_memory(err);
	}
	for (;;) {
		r = object_list(log->remote.client, log->at.bucket, log->prefix, NULL, note_run,
			log, log->remote.cancel, err);
		if (r < 0)
			return r;
		if (log->run || !wait)
			break;
		poll(NULL, 0, LOOK_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
	if (log->several)
		return error_set(err, PENSTOCK_E_INVALID,
			"several runs log there; give the id of one as well");
	if (!log->run)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"no run keeps its log there; `enableLogging: true` in its workflow does");
	return 0;
}

/* The state and attempt as the run's owner says; "" and 0 where there is no such object. */
static int look(
	struct remote_log *log, char state[static 16], int64_t *attempt, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STATE_OBJECT);
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *key = NULL;
	json_t *json;
	int r;

	*state = '\0';
	*attempt = 0;
	if (asprintf(&key, "%s%s/state.json", log->prefix, log->run) < 0)
		return error_memory(err);
	r = object_get(log->remote.client, log->at.bucket, key,
		&(struct object_get_options){.cancel = log->remote.cancel}, &text, NULL, &e);
	if (r == -PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	json = json_loads(buf_str(&text), 0, NULL);
	snprintf(state, 16, "%s",
		json_is_string(json_object_get(json, "state"))
			? json_string_value(json_object_get(json, "state"))
			: "");
	*attempt = json_integer_value(json_object_get(json, "attempt"));
	json_decref(json);
	return 0;
}

/* Prints what the attempt's log has beyond `*shown` bytes. A missing one has none yet. */
static int print_more(
	struct remote_log *log, int64_t attempt, uint64_t *shown, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_free_ char *key = NULL;
	struct object_get_options options = {.offset = *shown, .cancel = log->remote.cancel};
	int r;

	if (asprintf(&key, "%s%s/log/%lld", log->prefix, log->run, (long long)attempt) < 0)
		return error_memory(err);
	r = object_head(log->remote.client, log->at.bucket, key, &info, &e);
	if (r == -PENSTOCK_E_NOT_FOUND || (r == 0 && info.size <= *shown))
		return 0;
	if (r == 0) {
		/* The object is replaced as it grows: this one's bytes, or none. */
		options.if_match = info.etag;
		options.length = info.size - *shown;
		r = object_get_stream(log->remote.client, log->at.bucket, key, &options,
			remote_to_stdout, NULL, NULL, &e);
	}
	if (r == -PENSTOCK_E_CHANGED || r == -PENSTOCK_E_PRECONDITION)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	fflush(stdout);
	*shown = info.size;
	return 0;
}

static bool has_ended(const char *state)
{
	return strcmp(state, "succeeded") == 0 || strcmp(state, "failed") == 0 ||
	       strcmp(state, "stopped") == 0;
}

/* Until the run has ended; a preempted or lost one is continued by somebody, whose log follows. */
static int follow(struct remote_log *log, int64_t attempt, struct penstock_error *err)
{
	uint64_t shown = 0;

	for (;;) {
		char state[16];
		int64_t last;
		/* In this order: what was logged before the end is there once the end is told. */
		int r = look(log, state, &last, err);

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
		if (has_ended(state))
			return 0;
		poll(NULL, 0, LOOK_MS);
		if (atomic_load(log->remote.cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "interrupted");
	}
}

/* Every attempt that logged anything. */
static int show_all(struct remote_log *log, struct penstock_error *err)
{
	uint64_t any = 0;
	char state[16];
	int64_t last;
	int r = look(log, state, &last, err);

	for (int64_t attempt = 1; r == 0 && attempt <= last; attempt++) {
		uint64_t shown = 0;

		r = print_more(log, attempt, &shown, err);
		any += shown;
	}
	if (r == 0 && !any)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "run %s has no log there", log->run);
	return r;
}

static int show(struct remote_log *log, int64_t attempt, struct penstock_error *err)
{
	uint64_t shown = 0;
	char state[16];
	int64_t last;
	int r = attempt ? 0 : look(log, state, &last, err);

	if (r == 0 && !attempt)
		attempt = last;
	if (r == 0)
		r = print_more(log, attempt, &shown, err);
	if (r == 0 && !shown)
		r = error_set(err, PENSTOCK_E_NOT_FOUND, "run %s has no log there", log->run);
	return r;
}

int logs_remote(const struct cli *cli, int64_t attempt)
{
	_cleanup_(remote_log_release) struct remote_log log = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = remote_open(&log.remote, cli, &err);

	if (r == 0)
		r = remote_location(cli_operand(cli, 0), false, &log.at, &err);
	if (r == 0)
		r = remote_fits(&log.remote, &log.at, &err);
	if (r == 0) {
		const char *key = log.at.key ? log.at.key : "";
		size_t len = strlen(key);

		if (asprintf(&log.prefix, "%s%s.penstock/runs/", key,
			    len && key[len - 1] != '/' ? "/" : "") < 0)
			r = error_memory(&err);
	}
	if (r == 0)
		r = find_run(&log, cli_operand(cli, 1), cli_has(cli, "follow"), &err);
	if (r == 0 && cli_has(cli, "all"))
		r = show_all(&log, &err);
	else if (r == 0)
		r = cli_has(cli, "follow") ? follow(&log, attempt, &err)
					   : show(&log, attempt, &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}
