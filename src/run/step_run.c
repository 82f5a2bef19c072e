#include "run/step_run.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "records/claims.h"
#include "run/cgroups.h"
#include "run/containers.h"
#include "run/environment.h"
#include "run/executors/litter.h"
#include "run/free_ports.h"
#include "run/live.h"
#include "run/output.h"
#include "run/ranks.h"
#include "run/reaction.h"
#include "run/run_internal.h"
#include "run/step_cluster.h"
#include "run/step_command.h"
#include "run/step_group.h"
#include "run/step_launcher.h"
#include "run/step_life.h"
#include "run/step_mpi.h"
#include "run/step_network.h"
#include "run/usage.h"
#include "sync/sync.h"
#include "base/banned.h"

enum {
	GRACE_MS = 30000, /* as for a stop */
	HANG_LOOKS = 8,	  /* samples within the time of a hang */
	HANG_LOOK_MIN_MS = 20,
	HANG_LOOK_MAX_MS = 5000,
	HANG_CPU_PERCENT = 1, /* less than this of one CPU is no use of it */
	REAP_WAIT_MS = 10000,
};

struct step_task {
	struct task *task;
	struct output_task *output;
	bool ended;
	bool told; /* of a notice */
};

struct step_run {
	struct run *run;
	const struct workflow_run *what;
	char *name; /* owned */
	const struct executor *executor;
	bool clustered; /* on the nodes of a cluster, where all tasks are one to us */
	struct step_task *tasks;
	size_t n; /* processes that we start: one for an MPI launcher */
	size_t n_started;
	size_t n_ended;
	int epoll_fd;
	int timer_fd;
	struct step_group group;
	char *mpi_box; /* a directory of ranks in containers */
	unsigned long serial;
	struct step_life life;

	/* Its share of what the run claimed. */
	int *cpus;
	size_t n_cpus;
	int *gpus;
	size_t n_gpus;

	/* The first failure, and what we did. */
	struct step_end end;
	bool failed;
	bool noticed;	    /* a notice was told: what ends then was told to */
	bool asked;	    /* by step_run_signal(): what fails then was told to end */
	int64_t kill_at_ms; /* 0: nothing was asked to end by us */
	bool killed;

	/* Its times; monotonic, 0: none. */
	int64_t timeout_at_ms;
	enum step_stop timeout_kind;
	int64_t timeout_ms;
	int64_t hang_ms;
	int64_t active_at_ms; /* when it was last seen to do something */
	int64_t look_at_ms;   /* when to look again */
	int64_t look_every_ms;
	uint64_t cpu_ms; /* at the last look */
	uint64_t printed;
	int64_t memory_look_ms;
};

/* ---- shares ---- */

static int take_share(struct step_run *step, struct penstock_error *err)
{
	const struct workflow_step_resources *res = &step->what->resources;
	struct run *run = step->run;
	size_t n_cpus;
	size_t n_gpus;
	const int *cpus = claim_cpus(run->claim, &n_cpus);
	const int *gpus = claim_gpus(run->claim, &n_gpus);

	step->cpus = calloc(n_cpus + 1, sizeof(int));
	step->gpus = calloc(n_gpus + 1, sizeof(int));
	if (!step->cpus || !step->gpus)
		return error_memory(err);
	step->n_cpus = shares_take(run->shares.cpus, cpus, n_cpus,
		(size_t)(res->tasks.value * res->cpus_per_task.value), step->cpus);
	step->n_gpus = shares_take(run->shares.gpus, gpus, n_gpus,
		(size_t)(res->tasks.value * res->gpus_per_task.value), step->gpus);
	return 0;
}

static void give_share(struct step_run *step)
{
	struct run *run = step->run;
	size_t n_cpus;
	size_t n_gpus;
	const int *cpus = claim_cpus(run->claim, &n_cpus);
	const int *gpus = claim_gpus(run->claim, &n_gpus);

	if (step->cpus)
		shares_give(run->shares.cpus, cpus, n_cpus, step->cpus, step->n_cpus);
	if (step->gpus)
		shares_give(run->shares.gpus, gpus, n_gpus, step->gpus, step->n_gpus);
	free(step->cpus);
	free(step->gpus);
}

/* The CPUs of one task: an equal part, or all of the run where binding is off. */
static const int *cpus_of(const struct step_run *step, size_t rank, size_t *n)
{
	size_t each = step->n_cpus / step->n;

	if (step->what->disable_cpu_binding.value)
		return claim_cpus(step->run->claim, n);
	if (!each) {
		*n = step->n_cpus;
		return step->n_cpus ? step->cpus : NULL;
	}
	*n = each;
	return step->cpus + rank * each;
}

/* ---- the environment ---- */

static int build_environment(const struct run *run, const struct step_run_spec *spec,
	const struct strlist *defaults, const struct environment_container *container,
	struct strlist *env, struct penstock_error *err)
{
	_cleanup_(credentials_release) struct credentials keys = {0};
	struct environment_store store = {0};
	char deadline[REACTION_DEADLINE_SIZE];

	reaction_deadline(run, spec->step, deadline);
	run_store_describe(run->out ? run->out : run->stores.opened, &keys, &store);
	return environment_build(
		&(struct environment_spec){
			.workflow = run->workflow,
			.step = spec->step,
			.defaults = (const char *const *)defaults->items,
			.extra = spec->env,
			.env_file = spec->env_file,
			.layout = &run->layout,
			.store = &store,
			.run_id = run->id,
			.attempt = run->attempt,
			.serial = run->serial,
			.deadline = deadline,
			.checkpoint_dir = run->workflow->checkpoints.path.value,
			.checkpoint = run->checkpoint,
			.venv = container ? NULL : run->venv,
			.inherited = (const char *const *)environ,
			.container = container,
		},
		env, err);
}

static int fill_ranks(struct step_run *step, struct ranks *ranks, struct penstock_error *err)
{
	struct run *run = step->run;

	*ranks = (struct ranks){
		.n = (size_t)step->what->resources.tasks.value,
		/* A container has no others than its own, and counts them from 0. */
		.gpus = run->machine.gpus && !step->what->container.given ? step->gpus : NULL,
		.n_gpus = step->n_gpus,
		.ports = run->ports,
		.n_ports = (size_t)run->workflow->ports.value,
	};
	return ranks->n > 1 ? free_ports(&ranks->master_port, 1, err) : 0;
}

/* ---- starting ---- */

static int watch_fd(const struct step_run *step, int fd, uint64_t which, struct penstock_error *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = which};

	if (epoll_ctl(step->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return error_errno(err, errno, "cannot watch a step's task");
	return 0;
}

static const char *cwd_of(const struct step_run *step)
{
	const struct run *run = step->run;

	if (step->what->work_dir.value)
		return step->what->work_dir.value;
	return run->workflow->has_work_dir ? run->layout.work : run->layout.storage;
}

/* The words and the environment of one task; what it owns lives until the task was started. */
struct starting {
	struct strlist env;
	struct strlist launch;
	struct strlist launch_env; /* of a launcher whose ranks are in containers */
	struct container_setup setup;
	struct step_network network;
};

static void starting_release(struct starting *s)
{
	strlist_release(&s->env);
	strlist_release(&s->launch);
	strlist_release(&s->launch_env);
	container_setup_release(&s->setup);
	step_network_release(&s->network);
}

/* The launcher is a task of the machine, and has the environment of one. */
static int prepare_ranks(struct step_run *step, const struct step_run_spec *spec,
	const struct strlist *defaults, struct starting *s, struct task_spec *task,
	struct penstock_error *err)
{
	int r = build_environment(step->run, spec, defaults, NULL, &s->launch_env, err);

	if (r == 0)
		r = step_mpi_box(&step->mpi_box, step->run->layout.tmp, err);
	if (r < 0)
		return r;
	s->setup.container.tmp = step->mpi_box;
	r = step_mpi_wrap(
		task, step->what, step->gpus, step->n_gpus, &s->launch, &s->launch_env, err);
	task->envp = (const char *const *)s->launch_env.items;
	task->cwd = cwd_of(step);
	return r;
}

static int prepare_task(struct step_run *step, const struct step_run_spec *spec,
	const struct ranks *ranks, size_t rank, struct starting *s, struct task_spec *task,
	struct penstock_error *err)
{
	const struct workflow_run *what = step->what;
	bool launcher = !step->clustered && launcher_wanted(what);
	bool contained = what->container.given;
	_cleanup_(strlist_release) struct strlist defaults = {0};
	size_t each = step->n_gpus / step->n;
	int r = 0;

	if ((step->clustered   ? ranks_cluster_environment(ranks, &defaults)
		    : launcher ? ranks_launcher_environment(ranks, &defaults)
			       : ranks_environment(ranks, rank, &defaults)) < 0)
		return error_memory(err);
	if (contained)
		r = containers_task(&s->setup, step->run, what, step->gpus + rank * each,
			launcher ? 0 : each, err);
	if (r == 0)
		r = step_network_describe(&s->network, what, err);
	if (r == 0)
		r = build_environment(step->run, spec, &defaults,
			contained ? &s->setup.environment : NULL, &s->env, err);
	if (r == 0 && launcher && !contained)
		r = launcher_command(what, strlist_get(&s->env, "PATH"), &s->launch, err);
	if (r < 0)
		return r;
	if (contained)
		containers_fill(&s->setup, task);
	if (launcher && !contained)
		task->argv = (const char *const *)s->launch.items;
	task->envp = (const char *const *)s->env.items;
	task->network = s->network.network;
	task->tmp = step->run->layout.tmp;
	if (launcher && contained)
		return prepare_ranks(step, spec, &defaults, s, task, err);
	return 0;
}

static int start_task(struct step_run *step, const struct step_run_spec *spec,
	const struct ranks *ranks, size_t rank, struct penstock_error *err)
{
	const struct workflow_run *what = step->what;
	_cleanup_(starting_release) struct starting starting = {0};
	struct host_command plain;
	struct step_task *t = &step->tasks[rank];
	_cleanup_free_ char *dir = NULL;
	struct task_cluster cluster;
	struct task_spec task = {
		.argv = plain.argv,
		.cwd = cwd_of(step),
	};
	char label[32];
	int r;

	host_command(&plain, what);
	r = prepare_task(step, spec, ranks, rank, &starting, &task, err);
	snprintf(label, sizeof(label), "[%zu] ", rank);
	if (r == 0 && step->clustered) {
		r = step_cluster(&cluster, step->run, what, step->name, step->serial, &dir, err);
		task.cluster = &cluster;
	}
	if (r == 0) /* srun labels the lines of several tasks itself, as launchers of MPI do */
		r = output_add(step->run->output,
			step->n > 1 ? label
			: launcher_wanted(what) ||
					(step->clustered && what->resources.tasks.value > 1)
				? ""
				: NULL,
			&t->output, err);
	if (r < 0)
		return r;
	if (step->clustered)
		output_task_read_memory(t->output);
	task.stdout_fd = output_task_fd(t->output, 1);
	task.stderr_fd = output_task_fd(t->output, 2);
	task.cpus = cpus_of(step, rank, &task.n_cpus);
	task.cgroups = cgroup_fds(step->group.cgroup, &task.n_cgroups);
	task.born_in = cgroup_born_fd(step->group.cgroup);
	r = step->executor->start(&t->task, &task, err);
	if (r < 0)
		return r;
	output_task_started(t->output);
	step->n_started++;
	return watch_fd(step, t->task->event_fd, rank, err);
}

static void set_times(struct step_run *step)
{
	const struct workflow_timeouts *own = &step->what->timeouts;
	const struct workflow_timeouts *job = &step->run->workflow->timeouts;
	struct run *run = step->run;
	int64_t now = clock_monotonic_ms();

	if (job->timeout.given && !run->deadline_ms)
		run->deadline_ms = now + job->timeout.value;
	if (own->timeout.given) {
		step->timeout_at_ms = now + own->timeout.value;
		step->timeout_ms = own->timeout.value;
		step->timeout_kind = STEP_TIMEOUT;
	}
	if (run->deadline_ms) {
		/* The first that begins after it is ended at once; what cleans up after that has the grace. */
		int64_t at = run->overdue_until_ms ? run->overdue_until_ms : run->deadline_ms;

		if (!step->timeout_at_ms || at < step->timeout_at_ms) {
			step->timeout_at_ms = at;
			step->timeout_ms = job->timeout.value;
			step->timeout_kind = STEP_RUN_TIMEOUT;
		}
	}
	step->hang_ms = own->hang.given ? own->hang.value : job->hang.given ? job->hang.value : 0;
	step->active_at_ms = now;
	step->look_every_ms = step->hang_ms / HANG_LOOKS;
	if (step->look_every_ms < HANG_LOOK_MIN_MS)
		step->look_every_ms = HANG_LOOK_MIN_MS;
	if (step->look_every_ms > HANG_LOOK_MAX_MS)
		step->look_every_ms = HANG_LOOK_MAX_MS;
	step->look_at_ms = step->hang_ms ? now + step->look_every_ms : 0;
	step->memory_look_ms = step->group.watch_memory ? now + STEP_MEMORY_LOOK_MS : 0;
}

static void nearer(int64_t *due, int64_t at)
{
	if (at && (!*due || at < *due))
		*due = at;
}

static void set_timer(const struct step_run *step)
{
	struct itimerspec spec = {0};
	int64_t due = 0;

	nearer(&due, step->timeout_at_ms);
	nearer(&due, step->look_at_ms);
	nearer(&due, step->memory_look_ms);
	nearer(&due, step->killed ? 0 : step->kill_at_ms);
	spec.it_value.tv_sec = due / 1000;
	spec.it_value.tv_nsec = due % 1000 * NS_PER_MS;
	timerfd_settime(step->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* Twice, see run/live.h. */
static void record_life(struct step_run *step,
	void (*record)(struct step_life *life, struct run *run, const struct live_step *step))
{
	_cleanup_(live_step_release) struct live_step live = {.serial = step->serial};
	_cleanup_(buf_release) struct buf dirs = BUF_INIT(64 * KIB);
	const char *cwd = cwd_of(step);
	char *rest;
	char *dir;

	live.name = strdup(step->name);
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
	record(&step->life, step->run, &live);
}

static int start_all(
	struct step_run *step, const struct step_run_spec *spec, struct penstock_error *err)
{
	struct ranks ranks;
	int r;

	r = take_share(step, err);
	if (r == 0 && !step->clustered) /* there the limits are Slurm's */
		r = step_group_make(
			&step->group, step->run, step->what, step->cpus, step->n_cpus, err);
	if (r == 0) {
		step->serial = ++step->run->serial;
		record_life(step, step_life_begin);
	}
	if (r == 0)
		r = fill_ranks(step, &ranks, err);
	if (r == 0) {
		step->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		step->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (step->epoll_fd < 0 || step->timer_fd < 0)
			r = error_errno(err, errno, "cannot watch a step");
	}
	if (r == 0)
		r = watch_fd(step, step->timer_fd, UINT64_MAX, err);
	for (size_t rank = 0; r == 0 && rank < step->n; rank++)
		r = start_task(step, spec, &ranks, rank, err);
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

int step_run_start(struct step_run **out, struct run *run, const struct step_run_spec *spec,
	struct penstock_error *err)
{
	struct step_run *step = calloc(1, sizeof(*step));
	int r;

	if (!step)
		return error_memory(err);
	step->run = run;
	step->what = spec->step;
	step->clustered = run->options->slurm && !spec->here;
	step->executor = executor_of(step);
	step->epoll_fd = step->timer_fd = -1;
	step->end.rank = -1;
	step->n = step->clustered || launcher_wanted(spec->step)
			  ? 1
			  : (size_t)spec->step->resources.tasks.value;
	step->tasks = calloc(step->n, sizeof(*step->tasks));
	step->name = strdup(spec->name);
	r = step->tasks && step->name ? start_all(step, spec, err) : error_memory(err);
	if (r < 0) {
		step_run_kill(step);
		step_run_free(step);
		return r;
	}
	set_times(step);
	set_timer(step);
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

int64_t step_run_grace_ms(void)
{
	int64_t given = stop_grace_given_ms();

	return given >= 0 ? given : GRACE_MS;
}

unsigned long step_run_serial(const struct step_run *step)
{
	return step->serial;
}

/* ---- ending it ourselves ---- */

static void signal_all(struct step_run *step, int signal)
{
	for (size_t i = 0; i < step->n_started; i++) {
		if (!step->tasks[i].ended)
			step->executor->signal(step->tasks[i].task, signal);
	}
}

static void kill_tasks(struct step_run *step)
{
	step->killed = true;
	step->end.killed |= step->n_ended < step->n;
	if (step->run->sync)
		sync_kill_coming(step->run->sync);
	cgroup_kill(step->group.cgroup);
	for (size_t i = 0; i < step->n_started; i++)
		step->executor->kill(step->tasks[i].task);
}

/* Asks what runs to end; after the grace it is killed. The first reason counts. */
static void stop(struct step_run *step, enum step_stop why, int64_t after_ms)
{
	if (step->end.stop != STEP_NOT_STOPPED)
		return;
	step->end.stop = why;
	step->end.stop_ms = after_ms;
	step->kill_at_ms = clock_monotonic_ms() + step_run_grace_ms();
	step->timeout_at_ms = step->look_at_ms = 0;
	if (why == STEP_RUN_TIMEOUT && !step->run->overdue_until_ms)
		step->run->overdue_until_ms = step->kill_at_ms + step_run_grace_ms();
	if (why != STEP_PEER_FAILED)
		run_say(step->run, RUN_EVENT_MESSAGE, "asking '%s' to end", step->name);
	signal_all(step, SIGTERM);
}

/* ---- what it uses ---- */

/* The leaders that live; returns how many. */
static size_t leaders_of(const struct step_run *step, pid_t *leaders)
{
	size_t n = 0;

	for (size_t i = 0; i < step->n_started; i++) {
		if (!step->tasks[i].ended)
			leaders[n++] = step->tasks[i].task->pid;
	}
	return n;
}

static uint64_t cpu_ms_of(const struct step_run *step, const pid_t *leaders, size_t n)
{
	struct cgroup_found found;
	struct usage usage;

	cgroup_read(step->group.cgroup, &found);
	if (found.cpu_us >= 0)
		return (uint64_t)found.cpu_us / 1000;
	usage_read(leaders, n, &usage);
	return usage.cpu_ms;
}

/* Whether it has done anything since the last look; less than a hundredth of a CPU is nothing. */
static void look_for_hang(struct step_run *step, int64_t now)
{
	_cleanup_free_ pid_t *leaders = calloc(step->n, sizeof(*leaders));
	uint64_t printed = 0;
	uint64_t least = (uint64_t)step->look_every_ms * HANG_CPU_PERCENT / 100;
	uint64_t cpu_ms;
	bool active;

	step->look_at_ms = now + step->look_every_ms;
	if (!leaders)
		return;
	for (size_t i = 0; i < step->n_started; i++)
		printed += output_task_bytes(step->tasks[i].output);
	cpu_ms = cpu_ms_of(step, leaders, leaders_of(step, leaders));
	/* Less than before: somebody has ended. */
	active = printed != step->printed || cpu_ms < step->cpu_ms || cpu_ms - step->cpu_ms > least;
	step->printed = printed;
	step->cpu_ms = cpu_ms;
	if (active)
		step->active_at_ms = now;
	else if (now - step->active_at_ms >= step->hang_ms)
		stop(step, STEP_HUNG, step->hang_ms);
}

/* Without a control group: the sum of all, exactly only where it may be too much. */
static void look_at_memory(struct step_run *step, int64_t now)
{
	_cleanup_free_ pid_t *leaders = calloc(step->n, sizeof(*leaders));
	struct usage usage;
	uint64_t pss;
	size_t n;

	step->memory_look_ms = now + STEP_MEMORY_LOOK_MS;
	if (!leaders)
		return;
	n = leaders_of(step, leaders);
	usage_read(leaders, n, &usage);
	if (usage.rss <= step->group.memory_limit)
		return;
	pss = usage_pss(leaders, n);
	if (pss > step->end.memory_peak)
		step->end.memory_peak = pss;
	if (pss <= step->group.memory_limit)
		return;
	if (step->end.stop == STEP_NOT_STOPPED)
		step->end.stop = STEP_OVER_MEMORY;
	step->end.oom = step->end.stop == STEP_OVER_MEMORY;
	kill_tasks(step);
}

static void look_at_times(struct step_run *step)
{
	int64_t now = clock_monotonic_ms();
	uint64_t ticks;

	if (read(step->timer_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
		return;
	if (step->timeout_at_ms && now >= step->timeout_at_ms)
		stop(step, step->timeout_kind, step->timeout_ms);
	if (step->look_at_ms && now >= step->look_at_ms)
		look_for_hang(step, now);
	if (step->memory_look_ms && now >= step->memory_look_ms)
		look_at_memory(step, now);
	if (step->kill_at_ms && !step->killed && now >= step->kill_at_ms) {
		run_say(step->run, RUN_EVENT_WARNING,
			"'%s' did not end within %" PRId64 " s and is killed", step->name,
			step_run_grace_ms() / 1000);
		kill_tasks(step);
	}
	set_timer(step);
}

/* ---- its end ---- */

/* The first task that fails ends the others; those that were told to end fail nothing. */
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
	run_say(step->run, RUN_EVENT_MESSAGE, "task %zu of '%s' failed (%s %d): ending the others",
		rank, step->name, end->signal ? "signal" : "exit code",
		end->signal ? end->signal : end->code);
	stop(step, STEP_PEER_FAILED, 0);
	set_timer(step);
}

static void look_at_tasks(struct step_run *step)
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
	look_at_tasks(step);
	if (step->n_ended < step->n) {
		look_at_times(step);
		look_at_tasks(step); /* those that were killed just now, if they are quick */
	}
	if (step->n_ended < step->n)
		return false;
	step_group_judge(&step->group, step->run, step->name, step->failed, &step->end);
	if (step->clustered && step->failed && !step->end.killed)
		step_cluster_judge(step->run, step->what, step->tasks[0].output, &step->end);
	*out = step->end;
	return true;
}

void step_run_signal(struct step_run *step, int signal)
{
	step->asked = true;
	signal_all(step, signal);
}

void step_run_tell(struct step_run *step, int signal)
{
	step->noticed = true;
	for (size_t i = 0; i < step->n_started; i++) {
		struct step_task *t = &step->tasks[i];

		if (!t->ended && !t->told && signal)
			t->told = step->executor->tell ? step->executor->tell(t->task, signal)
						       : leaders_tell(t->task->pid, signal);
	}
}

void step_run_forget(struct step_run *step)
{
	step->noticed = false;
	for (size_t i = 0; i < step->n_started; i++)
		step->tasks[i].told = false;
}

void step_run_kill(struct step_run *step)
{
	step->asked |= step->n_ended < step->n;
	cgroup_kill(step->group.cgroup);
	for (size_t i = 0; i < step->n_started; i++)
		step->executor->kill(step->tasks[i].task);
}

/* One that was killed before its end was taken leaves no zombie. */
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
		if (step->tasks[i].output)
			output_remove(step->run->output, step->tasks[i].output);
	}
	cgroup_end(step->group.cgroup);
	step_life_over(&step->life, step->run);
	give_share(step);
	litter_remove(step->mpi_box);
	if (step->epoll_fd >= 0)
		close(step->epoll_fd);
	if (step->timer_fd >= 0)
		close(step->timer_fd);
	free(step->tasks);
	free(step->name);
	free(step);
}
