#include "run/step/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "run/process/leaders.h"
#include "run/process/live.h"
#include "run/step/ranks.h"
#include "run/report/output.h"
#include "run/step/execution.h"
#include "run/step/launcher.h"
#include "run/task/box.h"

enum { REAP_WAIT_MS = 10000 };

/* Records the processes of an execution. Called twice for each execution, see
 * run/process/live.h. */
static void record_life(struct step_run *step,
	void (*record)(struct step_life *life, struct run_life *run, const struct live_step *step))
{
	_cleanup_(live_step_release) struct live_step live = {.serial = step->serial};
	_cleanup_(buf_release) struct buf dirs = BUF_INIT(64 * KIB);
	const char *cwd = step_cwd(step);
	char *rest;
	char *dir;

	live.name = strdup(step->name);
	live.path = step->path ? strdup(step->path) : NULL;
	live.cwd = strdup(cwd);
	live.cluster = step->clustered;
	live.pids = calloc(step->n, sizeof(*live.pids));
	if (!live.name || !live.cwd || !live.pids || cgroup_record(step->group.cgroup, &dirs) < 0)
		return;
	for (size_t i = 0; i < step->n_started; i++)
		live.pids[live.n++] = step->tasks[i].task->pid;
	if (live.cluster && live.n)
		live.n = (size_t)step->what->resources.tasks.value;
	rest = dirs.len ? (char *)(uintptr_t)buf_str(&dirs) : NULL;
	while (rest && (dir = strsep(&rest, "\n"))) {
		if (*dir && strlist_add(&live.cgroups, dir) < 0)
			return;
	}
	if (step->tasks[0].task && step->executor->enter &&
		step->executor->enter(step->tasks[0].task, &live.enter) < 0)
		return;
	record(&step->life, &step->host->life, &live);
}

/* Lists the GPUs of this machine that are not the step's. Returns their number. */
static size_t other_gpus(const struct step_run *step, dev_t out[static CLAIMS_MAX_GPUS])
{
	const struct machine_capacity *machine = &step->host->machine;
	size_t n = 0;

	for (int i = 0; i < machine->gpus; i++) {
		bool own = false;
		char path[32];
		struct stat st;

		for (size_t k = 0; k < step->share.n_gpus; k++)
			own = own || step->share.gpus[k] == machine->gpu_list[i];
		snprintf(path, sizeof(path), "/dev/nvidia%d", machine->gpu_list[i]);
		if (!own && stat(path, &st) == 0 && S_ISCHR(st.st_mode))
			out[n++] = st.st_rdev;
	}
	return n;
}

static int make_group(struct step_run *step, struct penstock_error *err)
{
	dev_t closed[CLAIMS_MAX_GPUS];
	struct cgroup_wanted wanted = {
		.cpus = step->share.cpus,
		.n_cpus = step->share.n_cpus,
		.closed = closed,
		.n_closed = other_gpus(step, closed),
	};

	if (step->what->disable_cpu_binding.value)
		wanted.cpus = claim_cpus(step->host->claim, &wanted.n_cpus);
	return step_group_make(&step->group, &step->host->group, step->what, wanted, err);
}

static int start_all(
	struct step_run *step, const struct step_run_spec *spec, struct penstock_error *err)
{
	struct ranks ranks;
	int r;

	r = step_share_take(
		&step->share, &step->host->shares, step->host->claim, &step->what->resources, err);
	if (r == 0 && !step->clustered) /* on a cluster Slurm enforces the limits */
		r = make_group(step, err);
	if (r == 0) {
		step->serial = ++step->host->serial;
		record_life(step, step_life_begin);
	}
	if (r == 0)
		r = step_fill_ranks(step, &ranks, err);
	if (r == 0) {
		step->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		step->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (step->epoll_fd < 0 || step->timer_fd < 0)
			r = error_errno(err, errno, "cannot watch a step");
	}
	if (r == 0)
		r = step_watch_fd(step, step->timer_fd, UINT64_MAX, err);
	for (size_t rank = 0; r == 0 && rank < step->n; rank++)
		r = step_start_task(step, spec, &ranks, rank, err);
	return r;
}

static const struct executor *executor_of(const struct step_run *step)
{
	if (step->clustered)
		return &executor_slurm;
	if (step->what->container.given && !launcher_wanted(step->what))
		return &executor_container;
	return step->what->network == WORKFLOW_NETWORK_HOST ? &executor_process
							    : &executor_isolated;
}

int step_run_start(struct step_run **out, struct step_host *host, const struct step_run_spec *spec,
	struct penstock_error *err)
{
	struct step_run *step = calloc(1, sizeof(*step));
	int r;

	if (!step)
		return error_memory(err);
	step->host = host;
	step->what = spec->step;
	step->clustered = host->slurm && !spec->here;
	step->executor = executor_of(step);
	step->epoll_fd = step->timer_fd = -1;
	step->end.rank = -1;
	step->n = step->clustered || launcher_wanted(spec->step)
			  ? 1
			  : (size_t)spec->step->resources.tasks.value;
	step->tasks = calloc(step->n, sizeof(*step->tasks));
	step->name = strdup(spec->name);
	step->path = spec->path ? strdup(spec->path) : NULL;
	r = step->tasks && step->name ? start_all(step, spec, err) : error_memory(err);
	if (r < 0) {
		step_run_kill(step);
		step_run_free(step);
		return r;
	}
	step_set_times(step);
	step_set_timer(step);
	record_life(step, step_life_started);
	*out = step;
	return 0;
}

int step_run_fd(const struct step_run *step)
{
	return step->epoll_fd;
}

pid_t step_run_pid(const struct step_run *step)
{
	return step->tasks[0].task->pid;
}

bool step_run_left(const struct step_run *step)
{
	for (size_t i = 0; i < step->n_started; i++) {
		if (step->executor->left && step->executor->left(step->tasks[i].task))
			return true;
	}
	return false;
}

unsigned long step_run_serial(const struct step_run *step)
{
	return step->serial;
}

/* ---- the end of an execution ---- */

/* The first task that fails ends the other tasks, unless the execution was asked to end or got a
 * notice. */
static void take_end(struct step_run *step, size_t rank, const struct task_end *end)
{
	step->tasks[rank].ended = true;
	step->n_ended++;
	step->end.oom |= end->oom;
	if (step->failed || (!end->code && !end->signal))
		return;
	step->failed = true;
	step->end.code = end->code;
	step->end.signal = end->signal;
	if (step->end.stop != STEP_NOT_STOPPED)
		return;
	if (step->clustered && step->what->resources.tasks.value > 1)
		step->end.rank = end->rank;
	if (step->n == 1)
		return;
	step->end.rank = (int)rank;
	if (step->asked || step->noticed || step->n_ended == step->n)
		return;
	run_say(&step->host->attempt->voice, RUN_EVENT_MESSAGE,
		"task %zu of '%s' failed (%s %d): ending the others", rank, step->name,
		end->signal ? "signal" : "exit code", end->signal ? end->signal : end->code);
	step_stop(step, STEP_PEER_FAILED, 0);
	step_set_timer(step);
}

static void check_tasks(struct step_run *step)
{
	for (size_t i = 0; i < step->n_started; i++) {
		struct step_task *t = &step->tasks[i];
		struct task_end end;

		if (t->ended)
			continue;
		if (!step->executor->ended(t->task, &end))
			continue;
		epoll_ctl(step->epoll_fd, EPOLL_CTL_DEL, t->task->event_fd, NULL);
		take_end(step, i, &end);
	}
}

bool step_run_ended(struct step_run *step, struct step_end *out)
{
	check_tasks(step);
	if (step->n_ended < step->n) {
		step_check_times(step);
		check_tasks(step); /* again, for tasks that were just killed */
	}
	if (step->n_ended < step->n)
		return false;
	step_group_explain(&step->group, &step->host->group, step->name, step->failed, &step->end);
	if (step->clustered && step->failed && !step->end.killed) {
		output_drain(step->host->attempt->voice.output);
		output_task_parse(step->tasks[0].output, NULL, NULL);
		step_cluster_explain(&step->memory, step->what, &step->end);
	}
	*out = step->end;
	return true;
}

void step_run_signal(struct step_run *step, int signal)
{
	step->asked = true;
	step_signal_all(step, signal);
}

void step_run_notice(struct step_run *step, int signal)
{
	step->noticed = true;
	for (size_t i = 0; i < step->n_started; i++) {
		struct step_task *t = &step->tasks[i];

		if (!t->ended && !t->signalled && signal)
			t->signalled = step->executor->notify
					       ? step->executor->notify(t->task, signal)
					       : leaders_signal(t->task->pid, signal);
	}
}

bool step_run_signalled(const struct step_run *step)
{
	for (size_t i = 0; i < step->n_started; i++) {
		if (step->tasks[i].signalled)
			return true;
	}
	return false;
}

void step_run_forget_notice(struct step_run *step)
{
	step->noticed = false;
	for (size_t i = 0; i < step->n_started; i++)
		step->tasks[i].signalled = false;
}

void step_run_kill(struct step_run *step)
{
	step->asked |= step->n_ended < step->n;
	cgroup_kill(step->group.cgroup);
	for (size_t i = 0; i < step->n_started; i++)
		step->executor->kill(step->tasks[i].task);
}

/* Frees a task. Reaps a task that was killed before its end was read, to leave no zombie. */
static void reap_and_free(const struct step_run *step, struct step_task *t)
{
	struct pollfd fd = {t->task->event_fd, POLLIN, 0};
	struct task_end end;

	if (!t->ended && poll(&fd, 1, REAP_WAIT_MS) > 0)
		t->ended = step->executor->ended(t->task, &end);
	step->executor->free(t->task);
}

void step_run_free(struct step_run *step)
{
	if (!step)
		return;
	for (size_t i = 0; step->tasks && i < step->n; i++) {
		if (step->tasks[i].task)
			reap_and_free(step, &step->tasks[i]);
		if (step->tasks[i].output) {
			output_task_parse(step->tasks[i].output, NULL, NULL);
			output_remove(step->host->attempt->voice.output, step->tasks[i].output);
		}
	}
	cgroup_end(step->group.cgroup);
	step_life_end(&step->life, &step->host->life);
	step_share_release(&step->share, &step->host->shares, step->host->claim);
	litter_remove(step->mpi_box);
	if (step->epoll_fd >= 0)
		close(step->epoll_fd);
	if (step->timer_fd >= 0)
		close(step->timer_fd);
	free(step->tasks);
	free(step->name);
	free(step->path);
	free(step);
}
