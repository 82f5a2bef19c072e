#include "run/step_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "records/claims.h"
#include "run/containers.h"
#include "run/environment.h"
#include "run/output.h"
#include "run/run_internal.h"
#include "base/banned.h"

struct step_run {
	const struct executor *executor;
	struct task *task;
};

/* What the S3 store of the output, else of an input, tells the step's own clients. */
static void describe_store(
	const struct run *run, struct credentials *keys, struct environment_store *store)
{
	const struct run_store *from = run->out ? run->out : run->stores.opened;

	/* Of Google's only HMAC keys are of use to what speaks S3. */
	if (!from || (from->settings.google && from->settings.key))
		return;
	store->endpoint_url = from->settings.endpoint_url;
	store->region = from->settings.region;
	if (credentials_get(from->settings.credentials, keys, NULL) == 0) {
		store->access_key = keys->access_key_id;
		store->secret_key = keys->secret_access_key;
		store->session_token = keys->session_token;
	}
}

static int build_environment(const struct run *run, const struct step_run_spec *spec,
	const struct environment_container *container, struct strlist *env,
	struct penstock_error *err)
{
	_cleanup_(credentials_release) struct credentials keys = {0};
	struct environment_store store = {0};

	describe_store(run, &keys, &store);
	return environment_build(
		&(struct environment_spec){
			.workflow = run->workflow,
			.step = spec->step,
			.extra = spec->env,
			.env_file = spec->env_file,
			.layout = &run->layout,
			.store = &store,
			.run_id = run->id,
			.attempt = run->attempt,
			.venv = container ? NULL : run->venv,
			.inherited = (const char *const *)environ,
			.container = container,
		},
		env, err);
}

int step_run_start(struct step_run **out, struct run *run, const struct step_run_spec *spec,
	struct penstock_error *err)
{
	const struct workflow_run *what = spec->step;
	bool contained = what->container.given;
	_cleanup_(container_setup_release) struct container_setup setup = {0};
	_cleanup_(strlist_release) struct strlist env = {0};
	_cleanup_free_ struct step_run *step = calloc(1, sizeof(*step));
	const char *const plain[] = {what->shell.value, "-c", what->command.value, NULL};
	struct task_spec task = {
		.argv = plain,
		.cwd = what->work_dir.value	     ? what->work_dir.value
		       : run->workflow->has_work_dir ? run->layout.work
						     : run->layout.storage,
		.stdout_fd = output_write_fd(run->output, 1),
		.stderr_fd = output_write_fd(run->output, 2),
	};
	size_t n_gpus;
	const int *gpus = claim_gpus(run->claim, &n_gpus);
	int r = 0;

	if (!step)
		return error_memory(err);
	step->executor = contained ? &executor_container : &executor_process;
	task.cpus = claim_cpus(run->claim, &task.n_cpus);
	if (contained)
		r = containers_task(&setup, run, what, gpus, n_gpus, err);
	if (r == 0)
		r = build_environment(run, spec, contained ? &setup.environment : NULL, &env, err);
	if (r < 0)
		return r;
	if (contained)
		containers_fill(&setup, &task);
	task.envp = (const char *const *)env.items;
	r = step->executor->start(&step->task, &task, err);
	if (r < 0)
		return r;
	*out = take_pointer(step);
	return 0;
}

int step_run_fd(const struct step_run *step)
{
	return step->task->event_fd;
}

bool step_run_ended(struct step_run *step, struct step_end *out)
{
	struct task_end end;

	if (!step->executor->ended(step->task, &end))
		return false;
	*out = (struct step_end){.code = end.code, .signal = end.signal, .oom = end.oom};
	return true;
}

pid_t step_run_pid(const struct step_run *step)
{
	return step->task->pid;
}

bool step_run_left(const struct step_run *step)
{
	return step->executor->left && step->executor->left(step->task);
}

void step_run_signal(struct step_run *step, int signal)
{
	step->executor->signal(step->task, signal);
}

void step_run_kill(struct step_run *step)
{
	step->executor->kill(step->task);
}

void step_run_free(struct step_run *step)
{
	if (!step)
		return;
	step->executor->free(step->task);
	free(step);
}

/* A step's own 64 to 78 would read as penstock's, so 79 is shown for them. */
static int shown_code(int code)
{
	return code >= 64 && code <= 78 ? 79 : code;
}

bool step_end_explain(
	const struct step_end *end, const char *name, const char *run_id, struct step_failure *out)
{
	*out = (struct step_failure){.class = RUN_CLASS_USER};
	if (end->oom) {
		out->class = RUN_CLASS_OOM;
		out->exit_code = 137;
		snprintf(out->text, sizeof(out->text),
			"'%s' was killed for want of memory; ask for more with --set "
			"resources.memPerCpu=MB",
			name);
	} else if (end->signal) {
		out->exit_code = 128 + end->signal;
		snprintf(out->text, sizeof(out->text),
			"'%s' was killed by signal %d (%s); see 'penstock logs %s'", name,
			end->signal,
			sigdescr_np(end->signal) ? sigdescr_np(end->signal) : "unknown", run_id);
	} else if (end->code) {
		out->exit_code = shown_code(end->code);
		out->step_code = end->code;
		snprintf(out->text, sizeof(out->text),
			"'%s' exited with %d; see 'penstock logs %s'", name, end->code, run_id);
	}
	return out->exit_code != 0;
}
