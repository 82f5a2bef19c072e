/* The beginning of a run: who it is, whether it may begin, and what of earlier attempts it goes on with. */
#include "run/run_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "records/claims.h"
#include "records/supervisor.h"
#include "run/executors/network.h"
#include "run/step_network.h"
#include "run/user_limits.h"
#include "workflow/workflow.h"
#include "base/banned.h"

int run_take_lock(struct run *run, struct penstock_error *err)
{
	return supervisor_begin(run->layout.lock, run->id, &run->lock_fd, err);
}

/* As above; only `penstock run` could as well begin another run. */
static int take_lock_to_begin(struct run *run, struct penstock_error *err)
{
	int r = run_take_lock(run, err);

	if (r == -PENSTOCK_E_EXISTS && !run->options->resume)
		error_suffix(err, ", or begin another with --name");
	return r;
}

/* free() it; NULL: no memory. */
static char *left_alone_path(const char *home, const char *id)
{
	char *path;

	return asprintf(&path, "%s/runs/%s/left-alone", home, id) < 0 ? NULL : path;
}

int run_leave_alone(const char *home, const char *id, struct penstock_error *err)
{
	_cleanup_free_ char *path = left_alone_path(home, id);

	return path ? fs_write_atomic(path, "", 0, 0600, err) : error_memory(err);
}

bool run_is_left_alone(const char *home, const char *id)
{
	_cleanup_free_ char *path = left_alone_path(home, id);

	return path && access(path, F_OK) == 0;
}

/*
 * What is begun by itself is asked for once more under the lock: since somebody looked, another may have carried the run to its
 * end, or a user has said that it is to end. Whoever begins it by hand takes that back.
 */
static int check_due(const struct run *run, enum run_state last, struct penstock_error *err)
{
	const struct run_options *o = run->options;
	_cleanup_free_ char *path = left_alone_path(o->home, run->id);
	bool over = last == RUN_SUCCEEDED || last == RUN_FAILED || last == RUN_STOPPED;

	if (!path)
		return error_memory(err);
	if (o->due && !o->retrying && (over || access(path, F_OK) == 0))
		return error_set(err, PENSTOCK_E_EXISTS, "run %s is not due: %s", run->id,
			over ? run_state_name(last) : "it was stopped");
	unlink(path);
	return 0;
}

/* Whether what an earlier attempt left is to be continued. */
static bool shall_continue(const struct run *run, const struct records_attempt *last)
{
	if (run->options->fresh || run->workflow->resume == WORKFLOW_RESUME_NEVER)
		return false;
	if (run->options->resume)
		return true;
	/* An attempt that continued and ended before its steps has changed nothing of what there was. */
	if (access(run->layout.goes_on, F_OK) == 0)
		return true;
	/* Live-looking states whose lock was free are those of a lost run. */
	return last->state != RUN_SUCCEEDED && last->state != RUN_FAILED &&
	       last->state != RUN_STOPPED;
}

static int look_back(struct run *run, struct penstock_error *err)
{
	struct records_attempt last = {0};
	_cleanup_error_ struct penstock_error e = PENSTOCK_ERROR_INIT;
	int r = records_last_attempt(run->options->records, run->id, &last, &e);

	if (r == -PENSTOCK_E_NOT_FOUND)
		return 0;
	if (r < 0)
		return error_move(err, &e);
	/* We hold its lock: what looks live is that of a supervisor that is gone. */
	run->strays = run_state_is_live(last.state) || last.state == RUN_LOST;
	/* What goes out through HTTP is not sent before the steps are through. */
	run->only_copy = run->strays || last.unflushed || records_was_fenced(&last) ||
			 run->workflow->output.kind == WORKFLOW_NO_TRANSPORT ||
			 (run->workflow->output.kind == WORKFLOW_HTTP &&
				 last.state == RUN_PREEMPTED);
	run->continuing = shall_continue(run, &last);
	r = check_due(run, last.state, err);
	if (r < 0) {
		records_attempt_release(&last);
		return r;
	}
	if (run->continuing && access(run->layout.storage, F_OK) == 0)
		run->steps_done = (size_t)last.steps_done;
	if (!run->continuing && last.unflushed && !run->options->fresh)
		r = error_set(err, PENSTOCK_E_EXISTS,
			"run %s has output that was not uploaded; 'penstock flush %s' uploads it, "
			"--fresh leaves it behind in %s",
			run->id, run->id, run->layout.dir);
	else
		r = 0;
	records_attempt_release(&last);
	return r;
}

void run_reserve_room(struct run *run)
{
	_cleanup_free_ char *path = path_join(run->layout.dir, "room-XXXXXX");
	int fd = open(run->layout.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && path) { /* not every file system has unnamed files */
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	if (fd >= 0 && posix_fallocate(fd, 0, LIMIT_RUN_RESERVE) != 0) {
		close(fd);
		fd = -1;
	}
	run->reserve_fd = fd;
}

bool run_give_room(struct run *run)
{
	int fd = run->reserve_fd;

	if (fd < 0)
		return false;
	run->reserve_fd = -1;
	close(fd);
	return true;
}

static bool is_empty(const char *path)
{
	_cleanup_closedir_ DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			return false;
	}
	return true;
}

bool run_has_output(const struct run *run)
{
	return run->layout.output && !is_empty(run->layout.output);
}

/* What earlier attempts put out and nobody verified in a bucket is moved aside, never removed. */
int run_clear_storage(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *aside = NULL;

	if (run->continuing)
		return 0;
	if (run->only_copy && run_has_output(run)) {
		if (asprintf(&aside, "%s/" RUN_ASIDE_PREFIX "%d", run->layout.dir, run->attempt) <
			0)
			return error_memory(err);
		if (rename(run->layout.output, aside) < 0)
			return error_errno(err, errno, "cannot move %s aside", run->layout.output);
		run_say(run, RUN_EVENT_MESSAGE, "the output of the last attempt is now in %s",
			aside);
	}
	return run_layout_wipe(&run->layout, err);
}

char *run_describe_output(const struct workflow_output *output)
{
	char *text = NULL;

	if (output->kind == WORKFLOW_S3 &&
		asprintf(&text, "%s://%s/%s", output->s3.google ? "gs" : "s3", output->s3.bucket,
			output->s3.prefix) >= 0)
		return text;
	if (output->kind == WORKFLOW_HTTP) {
		_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);

		log_redact_into(&shown, workflow_shown(&output->http_url));
		return buf_take(&shown);
	}
	return NULL;
}

static int record_begin(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *output = run_describe_output(&run->workflow->output);
	int attempt = run->attempt, r;

	r = records_begin(run->options->records,
		&(struct records_begin){
			.id = run->id,
			.name = run->workflow->name.value,
			.workflow = run->options->workflow_path,
			.output = output,
			.pid = getpid(),
			.steps_done = (int)run->steps_done,
			.provenance = run->options->provenance,
		},
		&attempt, err);
	run->attempt = attempt;
	return r;
}

/* The workflow as it is run, overrides applied and secrets left out: `resume` and `flush` read it. */
int run_keep_workflow(struct run *run, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_WORKFLOW_FILE),
					  there = BUF_INIT(2 * LIMIT_WORKFLOW_FILE);

	if (workflow_write_record(run->workflow, &text) < 0 || buf_failed(&text))
		return buf_error(&text, "the copy of the workflow", err);
	/* It was synced when it was written, which takes as long as all the rest of a short run. */
	if (fs_read(run->layout.workflow, &there, NULL) == 0 && there.len == text.len &&
		memcmp(there.data, text.data, text.len) == 0)
		return 0;
	return fs_write_atomic(run->layout.workflow, text.data, text.len, 0600, err);
}

int run_record_elsewhere(const struct workflow *workflow, const char *home, struct records *records,
	const char *id, const char *shown, const char *provenance, int *attempt,
	struct penstock_error *err)
{
	_cleanup_free_ char *output = run_describe_output(&workflow->output);
	struct run run = {.workflow = workflow};
	int r = run_layout_init(&run.layout, home, id, 1, err);

	if (r == 0)
		r = run_keep_workflow(&run, err);
	run_layout_release(&run.layout);
	if (r < 0)
		return r;
	return records_begin(records,
		&(struct records_begin){
			.id = id,
			.name = workflow->name.value,
			.workflow = shown,
			.output = output,
			.provenance = provenance,
		},
		attempt, err);
}

static void request_of(const struct workflow *workflow, const char *run_id,
	const struct claim_limits *limits, struct claim_request *request)
{
	const struct workflow_resources *r = &workflow->resources;

	*request = (struct claim_request){
		.run_id = run_id,
		.name = workflow->name.value,
		.tasks = r->tasks.value,
		.cpus_per_task = r->cpus_per_task.value,
		.mem_per_cpu = r->mem_per_cpu.value,
		.gpus = r->gpus.value,
		.limits = limits,
		.gpus_key = r->gpus_per_task.given ? "gpusPerTask" : "gpus",
	};
}

void run_claim_request(const struct run *run, struct claim_request *request)
{
	request_of(run->workflow, run->id, &run->limits, request);
}

struct refusal {
	const struct workflow *workflow;
	struct penstock_error *err;
	bool here; /* it will run on this machine */
};

static int refuse(const struct refusal *refusal, const struct workflow_place *at,
	const struct workflow_step *step, const char *what, const char *field)
{
	_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);

	workflow_place_format(refusal->workflow, at, &place);
	return error_set(refusal->err, PENSTOCK_E_INVALID,
		"%s: %s not supported by this version; run with --set %s%s", buf_str(&place), what,
		step->path, field);
}

/* What a network of the step's own needs. */
static int check_network(const struct refusal *refusal, const struct workflow_step *step)
{
	_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);
	_cleanup_(step_network_release) struct step_network network = {0};
	int r;

	for (size_t i = 0; i < step->run.n_interfaces; i++) {
		if (step->run.interfaces[i].kind == WORKFLOW_VNET)
			return refuse(refusal, &step->run.interfaces[i].at, step,
				"`vnet` joins steps of several machines, of which a run has one; "
				"on it, "
				"`network: host` does; it is",
				".run.customNetworkInterfaces=null");
	}
	r = step_network_describe(&network, &step->run, refusal->err);
	if (r == 0 && refusal->here)
		r = network_check(&network.network, refusal->err);
	if (r == 0)
		return 0;
	workflow_place_format(refusal->workflow, &step->run.network_at, &place);
	return error_prefix(refusal->err, "%s", buf_str(&place));
}

/* What is valid and cannot be run here. */
static int check_step(void *cookie, const struct workflow_step *step)
{
	const struct refusal *refusal = cookie;

	if (step->kind == WORKFLOW_STEP_USE && !step->use.resolved)
		return refuse(refusal, &step->at, step, "modules are", ".use=null");
	if (step->kind != WORKFLOW_STEP_RUN)
		return 0;
	return check_network(refusal, step);
}

static int check_steps(const struct workflow *workflow, bool here, struct penstock_error *err)
{
	struct refusal refusal = {workflow, err, here};

	return workflow_walk(&workflow->steps, check_step, &refusal);
}

/* The option that asks for more than there is, else the place of the resources. */
static const struct workflow_place *place_of_misfit(
	const struct machine_capacity *machine, const struct workflow *workflow)
{
	const struct workflow_resources *r = &workflow->resources;
	const struct {
		const struct workflow_place *at;
		bool too_much;
	} asked[] = {
		{&r->gpus.at, r->gpus.value > machine->gpus},
		{&r->gpus_per_task.at, r->gpus.value > machine->gpus},
		{&r->tasks.at, r->tasks.value * r->cpus_per_task.value > machine->cpus},
		{&r->cpus_per_task.at, r->tasks.value * r->cpus_per_task.value > machine->cpus},
		{&r->mem_per_cpu.at,
			r->tasks.value * r->cpus_per_task.value * r->mem_per_cpu.value >
				(int64_t)(machine->memory / MIB)},
	};

	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		if (asked[i].too_much && asked[i].at->option)
			return asked[i].at;
	}
	return &r->at;
}

static int check_on(const struct machine_capacity *machine, const struct workflow *workflow,
	struct penstock_error *err)
{
	struct claim_request request;
	struct claim_limits limits;
	int r = check_steps(workflow, true, err);

	if (r < 0)
		return r;
	r = user_limits_read(&limits, err);
	if (r < 0)
		return r;
	request_of(workflow, "", &limits, &request);
	r = claim_check_fits(machine, &request, err);
	if (r < 0) {
		_cleanup_(buf_release) struct buf place = BUF_INIT(LIMIT_STRING);

		workflow_place_format(workflow, place_of_misfit(machine, workflow), &place);
		return error_prefix(err, "%s", buf_str(&place));
	}
	return 0;
}

int run_check_elsewhere(const struct workflow *workflow, struct penstock_error *err)
{
	return check_steps(workflow, false, err);
}

int run_check(const struct workflow *workflow, struct penstock_error *err)
{
	struct machine_capacity machine;

	machine_capacity(&machine);
	return check_on(&machine, workflow, err);
}

/* Everything that is refused without leaving a trace. */
int run_begin(struct run *run, struct penstock_error *err)
{
	_cleanup_free_ char *dir = NULL;
	int r = 0;

	if (run->options->id)
		snprintf(run->id, sizeof(run->id), "%s", run->options->id);
	else
		r = run_identity(run->workflow, run->id, err);
	if (r < 0)
		return r;
	machine_capacity(&run->machine);
	r = user_limits_read(&run->limits, err);
	if (r < 0)
		return r;
	r = run->options->slurm ? check_steps(run->workflow, false, err)
				: check_on(&run->machine, run->workflow, err);
	if (r < 0)
		return r;
	if (asprintf(&dir, "%s/runs/%s", run->options->home, run->id) < 0)
		return error_memory(err);
	r = fs_mkdirs(dir, 0700, err);
	if (r < 0)
		return r;
	r = run_layout_init(&run->layout, run->options->home, run->id, 1, err);
	if (r == 0)
		r = take_lock_to_begin(run, err);
	if (r == 0)
		r = look_back(run, err);
	if (r == 0)
		r = record_begin(run, err);
	return r;
}
