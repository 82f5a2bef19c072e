/*
 * The start of a run: its identity, the checks that may refuse the run, and the decision to
 * continue an earlier attempt.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "records/supervisor.h"
#include "run/cluster/slurm.h"
#include "run/config/user_limits.h"
#include "run/internal.h"
#include "run/run.h"
#include "s3/sum/checksum.h"
#include "workflow/document/secrets.h"
#include "workflow/workflow.h"

int run_take_lock(struct run *run, struct penstock_error *err)
{
	return supervisor_begin(run->attempt.layout.lock, run->attempt.id, &run->lock_fd, err);
}

int run_leave_alone(const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_LEFT_ALONE);

	return path ? fs_write_atomic(path, "", 0, 0600, err) : error_memory(err);
}

bool run_is_left_alone(const char *home, const char *id)
{
	_cleanup_free_ char *path = run_path(home, id, RUN_FILE_LEFT_ALONE);

	return path && access(path, F_OK) == 0;
}

/* Checks again, under the lock, that an automatic restart is still due: the run may have finished
 * or been stopped meanwhile. */
static int check_due(const struct run *run, enum run_state last, struct penstock_error *err)
{
	const struct run_options *o = run->options;
	bool over = run_state_is_over(last);

	if (o->due && !o->retrying && (over || run_is_left_alone(o->home, run->attempt.id)))
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s': it is not due for a restart (%s)", run->attempt.id,
			over ? run_state_name(last) : "it was stopped");
	return 0;
}

/* Removes the file that prevents automatic restarts of a stopped run. */
static void clear_stop(const struct run *run)
{
	_cleanup_free_ char *path = run_path(
		run->options->home, run->attempt.id, RUN_FILE_LEFT_ALONE);

	if (path)
		unlink(path);
}

/* Returns true if the attempt continues an earlier attempt. */
static bool is_continuing(const struct run *run, const struct records_attempt *last)
{
	if (run->options->fresh || run->attempt.workflow->resume == WORKFLOW_RESUME_NEVER)
		return false;
	if (run->options->resume)
		return true;
	/* The file exists if the last attempt was to continue an earlier one but ended before its
	 * steps, or if the last attempt failed and a retry is pending. */
	if (access(run->attempt.layout.goes_on, F_OK) == 0)
		return true;
	/* Do not continue a failed attempt whose output is not completely uploaded: `penstock
	 * flush` uploads the output, and may record another end. */
	if (last->state == RUN_FAILED)
		return !last->unflushed;
	/* The lock was free, so a run that is recorded as live is lost. */
	return last->state != RUN_SUCCEEDED && last->state != RUN_STOPPED;
}

static int load_last_attempt(struct run *run, struct penstock_error *err)
{
	struct records_attempt last = {0};
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r = records_last_attempt(run->attempt.records, run->attempt.id, &last, &e);

	if (r == -PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	/* This process holds the lock, so the supervisor of a run that is recorded as live is
	 * gone. */
	run->strays = run_state_is_live(last.state) || last.state == RUN_LOST;
	/* A preempted attempt has not sent its HTTP output, which is sent only after the steps have
	 * finished. */
	run->only_copy = run->strays || last.unflushed || records_was_fenced(&last) ||
			 run->attempt.workflow->output.kind == WORKFLOW_NO_TRANSPORT ||
			 (run->attempt.workflow->output.kind == WORKFLOW_HTTP &&
				 last.state == RUN_PREEMPTED);
	run->attempt.continuing = is_continuing(run, &last);
	r = check_due(run, last.state, err);
	if (r < 0) {
		records_attempt_release(&last);
		return r;
	}
	if (run->attempt.continuing && access(run->attempt.layout.storage, F_OK) == 0)
		run->attempt.steps_done = (size_t)last.steps_done;
	run->after_failure = run->attempt.continuing && last.state == RUN_FAILED;
	if (!run->attempt.continuing && last.unflushed && !run->options->fresh)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"cannot start run '%s' again: its output was not uploaded; 'penstock flush "
			"%s' uploads the output, --fresh starts over and leaves the output in '%s'",
			run->attempt.id, run->attempt.id, run->attempt.layout.dir);
	else
		r = run->attempt.continuing ? run_compare_workflow(run, err) : 0;
	records_attempt_release(&last);
	return r;
}

int run_clear_storage(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *aside = NULL;
	int r;

	if (run->attempt.continuing)
		return 0;
	if (run->only_copy && attempt_has_output(&run->attempt)) {
		aside = str_printf(
			"%s/" RUN_ASIDE_PREFIX "%d", run->attempt.layout.dir, run->attempt.number);
		if (!aside)
			return error_memory(err);
		if (rename(run->attempt.layout.output, aside) < 0)
			return error_errno(
				err, errno, "cannot move '%s' aside", run->attempt.layout.output);
		run_say(&run->attempt.voice, RUN_EVENT_MESSAGE,
			"the output of the last attempt is now in '%s'", aside);
	}
	r = run_layout_wipe(&run->attempt.layout, err);
	if (r == 0)
		run->only_copy = false;
	return r;
}

char *run_describe_output(const struct workflow_output *output)
{
	if (output->kind == WORKFLOW_S3)
		return str_printf("%s://%s/%s", output->s3.google ? "gs" : "s3", output->s3.bucket,
			output->s3.prefix);
	if (output->kind == WORKFLOW_HTTP) {
		_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

		log_redact_into(&shown, workflow_shown(&output->http_url));
		return buf_take(&shown);
	}
	return NULL;
}

static int record_begin(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *output = run_describe_output(&run->attempt.workflow->output);
	int attempt = run->attempt.number;
	int r = records_begin(run->attempt.records,
		&(struct records_begin){
			.id = run->attempt.id,
			.name = run->attempt.workflow->name.value,
			.workflow = run->options->workflow_path,
			.output = output,
			.pid = getpid(),
			.steps_done = (int)run->attempt.steps_done,
			.provenance = run->options->provenance,
		},
		&attempt, err);
	run->attempt.number = attempt;
	return r;
}

int run_record_elsewhere(
	const struct run_options *options, const char *id, int *attempt, struct penstock_error *err)
{
	const struct workflow *workflow = options->workflow;
	_cleanup_free_ char *output = run_describe_output(&workflow->output);
	struct run_layout layout;
	int r = run_layout_init(&layout, options->home, id, 1, err);

	if (r == 0)
		r = run_keep_workflow(&layout, workflow, options->source, err);
	run_layout_release(&layout);
	if (r == 0)
		r = slurm_job_leave(options->home, id, false, err);
	if (r < 0)
		return r;
	return records_begin(options->records,
		&(struct records_begin){
			.id = id,
			.name = workflow->name.value,
			.workflow = options->workflow_path,
			.output = output,
			.provenance = options->provenance,
		},
		attempt, err);
}

int run_begin(struct run *run, struct penstock_error *err)
{
	struct attempt *attempt = &run->attempt;
	struct claim_limits limits;
	int r = 0;

	if (run->options->id)
		snprintf(attempt->id, sizeof(attempt->id), "%s", run->options->id);
	else
		r = run_identity(attempt->workflow, attempt->id, err);
	if (r == 0)
		r = run_check_same_file(run->options, attempt->id, err);
	if (r < 0)
		return r;
	machine_capacity(&run->host.machine);
	r = user_limits_read(&limits, err); /* only to refuse an invalid configuration */
	if (r < 0)
		return r;
	r = run->options->slurm ? run_check_elsewhere(attempt->workflow, err)
				: run_check_on(&run->host.machine, attempt->workflow, err);
	if (r < 0)
		return r;
	r = run_layout_init(&attempt->layout, attempt->home, attempt->id, 1, err);
	if (r == 0)
		r = fs_mkdirs(attempt->layout.dir, 0700, err);
	if (r == 0) {
		/* `penstock run`, unlike `penstock resume`, can also start another run. */
		r = run_take_lock(run, err);
		if (r == -PENSTOCK_E_EXISTS && !run->options->resume)
			error_suffix(err, ", or start another run with --name");
	}
	if (r == 0)
		r = load_last_attempt(run, err);
	if (r == 0)
		r = slurm_job_leave(attempt->home, attempt->id, !run->options->slurm, err);
	/* Once the run is recorded, other processes find the run and read its workflow. */
	if (r == 0 && access(attempt->layout.workflow, F_OK) < 0)
		r = run_keep_workflow(
			&attempt->layout, attempt->workflow, run->options->source, err);
	if (r == 0)
		r = record_begin(run, err);
	if (r == 0)
		clear_stop(run);
	return r;
}

/* Adds a field with its length, so that different lists of fields never give the same text. */
static void add_field(struct buf *b, const char *field)
{
	if (field)
		buf_printf(b, "%zu:%s,", strlen(field), field);
	else
		buf_add_str(b, "-,");
}

int run_identity(const struct workflow *workflow, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING),
					  masked = BUF_INIT(LIMIT_STRING);
	uint8_t digest[CHECKSUM_MAX_SIZE];
	int r;

	add_field(&text, workflow->name.value ? "name" : "digest");
	add_field(&text, workflow->name.value ? workflow->name.value : workflow->digest);
	switch (workflow->output.kind) {
	case WORKFLOW_S3:
		add_field(&text, workflow->output.s3.google ? "gs" : "s3");
		add_field(&text, workflow->output.s3.embedded
					 ? "embedded"
					 : workflow->output.s3.endpoint_url.value);
		add_field(&text, workflow->output.s3.bucket);
		add_field(&text, workflow->output.s3.prefix);
		break;
	case WORKFLOW_HTTP:
		add_field(&text, "http");
		/* Ignore the password and the signature of the URL: a newly signed URL names the
		 * same place. */
		add_field(&text, secret_mask_url(workflow->output.http_url.value, &masked)
					 ? buf_str(&masked)
					 : workflow->output.http_url.value);
		break;
	default:
		add_field(&text, NULL);
		break;
	}
	if (buf_failed(&text))
		return buf_error(&text, "the run's identity", err);
	r = checksum_of(CHECKSUM_SHA256, text.data, text.len, digest, err);
	if (r == 0)
		str_hex(digest, RECORDS_ID_SIZE / 2, id);
	return r;
}

/* State of the search for the newest run of a workflow file that has no `name`, with the same
 * output. */
struct edited {
	const char *file, *output, *home;
	char *id; /* ID of that run; "" if `penstock run` does not continue the run */
};

static int see_run(void *cookie, const struct records_run *run)
{
	struct edited *e = cookie;
	enum run_state state = run->last.state;

	if (run->name || strcmp(run->workflow, e->file) != 0 ||
		strcmp(run->output ? run->output : "", e->output ? e->output : "") != 0)
		return 0;
	if (run_state_is_live(state)
			? !supervisor_lives(e->home, run->id)
			: state == RUN_FAILED || state == RUN_PREEMPTED || state == RUN_LOST)
		snprintf(e->id, RECORDS_ID_SIZE, "%s", run->id);
	return 1;
}

int run_find_edited(const struct run_options *options, char id[static RECORDS_ID_SIZE],
	struct penstock_error *err)
{
	const struct workflow *workflow = options->workflow;
	_cleanup_(records_run_release) struct records_run own = {0};
	_cleanup_free_ char *output = run_describe_output(&workflow->output);
	struct edited e = {options->workflow_path, output, options->home, id};
	int r;

	*id = '\0';
	if (workflow->name.value || options->fresh || *options->workflow_path != '/')
		return 0;
	r = run_identity(workflow, id, err);
	if (r < 0 || records_find(options->records, id, &own, NULL) == 0)
		return r;
	*id = '\0';
	return records_list(options->records, see_run, &e, err);
}
