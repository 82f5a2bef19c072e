/* Steps as processes of this machine. */
#include "run/executor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/banned.h"

enum { KILL_WAIT_MS = 10000, LOOK_AGAIN_MS = 2, MAX_BEFORE = 16 };

struct process_task {
	struct task task; /* first: the interface's view */
	struct process process;
	int status;
	/* Children that we had before (the owner of an embedded store, say) are not the step's. */
	struct process_info before[MAX_BEFORE];
	size_t n_before;
};

static bool remember(void *cookie, const struct process_info *info)
{
	struct process_task *t = cookie;

	if (t->n_before < MAX_BEFORE)
		t->before[t->n_before++] = *info;
	return false;
}

static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct process_task *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return error_memory(err);
	if (has_children())
		process_descendants(getpid(), remember, t);
	r = process_spawn(&t->process,
		&(struct process_spec){
			.argv = spec->argv,
			.envp = spec->envp,
			.cwd = spec->cwd,
			.stdin_fd = -1,
			.stdout_fd = spec->stdout_fd,
			.stderr_fd = spec->stderr_fd,
			.new_session = true,
			.die_with_parent = true,
			.cpus = spec->cpus,
			.n_cpus = spec->n_cpus,
			.cgroups = spec->cgroups,
			.n_cgroups = spec->n_cgroups,
		},
		err);
	if (r < 0) {
		free(t);
		return r;
	}
	t->task.pid = t->process.pid;
	t->task.event_fd = t->process.pidfd;
	*out = &t->task;
	return 0;
}

static bool ended(struct task *task, struct task_end *end)
{
	struct process_task *t = (struct process_task *)task;

	if (!process_wait(&t->process, 0, &t->status))
		return false;
	*end = (struct task_end){0};
	if (WIFSIGNALED(t->status))
		end->signal = WTERMSIG(t->status);
	else
		end->code = WEXITSTATUS(t->status);
	return true;
}

/* ---- signals ---- */

struct signalling {
	int signal;
	int told;
};

static void tell(struct signalling *s, pid_t pid)
{
	if (kill(pid, s->signal) == 0)
		s->told++;
}

/* Tells the topmost processes that handle the signal; theirs are not told. */
static bool tell_if_caught(void *cookie, const struct process_info *info)
{
	struct signalling *s = cookie;

	if (!process_catches(info->pid, s->signal))
		return true;
	tell(s, info->pid);
	return false;
}

/*
 * A shell between us and the program that saves does not pass a signal on, and workers of the
 * program (data loaders) must not die of it before the save. So the leader gets it if it has a
 * handler, else the first of its descendants that have one; where nobody has, the whole session is
 * ended by it, as it would be by a terminal.
 */
static void signal_task(struct task *task, int signal)
{
	struct signalling s = {.signal = signal};

	if (process_catches(task->pid, signal)) {
		tell(&s, task->pid);
		return;
	}
	process_descendants(task->pid, tell_if_caught, &s);
	if (!s.told)
		kill(-task->pid, signal);
}

/* ---- the end ---- */

struct killing {
	const struct process_task *task;
	size_t found;
};

static bool kill_one(void *cookie, const struct process_info *info)
{
	struct killing *k = cookie;

	for (size_t i = 0; i < k->task->n_before; i++) {
		if (k->task->before[i].pid == info->pid &&
			k->task->before[i].start_ticks == info->start_ticks)
			return false;
	}
	k->found++;
	kill(info->pid, SIGKILL);
	return true;
}

/* Zombies that became ours when their parents ended; the leader is left to ended(). */
static void reap_adopted(const struct process_task *t)
{
	siginfo_t info;

	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
			return;
		if (!t->process.reaped && info.si_pid == t->process.pid)
			return;
		waitpid(info.si_pid, NULL, WNOHANG);
	}
}

/*
 * The supervisor is a subreaper and runs one step at a time: whoever descends from it belongs to the
 * step, also what was detached (setsid, double fork). A process may fork while it is being killed,
 * so this repeats until nobody is left.
 */
static void kill_task(struct task *task)
{
	struct process_task *t = (struct process_task *)task;
	int64_t until = clock_monotonic_ms() + KILL_WAIT_MS;

	process_signal(&t->process, SIGKILL);
	for (;;) {
		struct killing k = {.task = t};

		reap_adopted(t);
		if (!has_children())
			return;
		process_descendants(getpid(), kill_one, &k);
		if (!k.found || clock_monotonic_ms() > until)
			break;
		clock_sleep_ms(LOOK_AGAIN_MS);
	}
	reap_adopted(t);
}

static void free_task(struct task *task)
{
	struct process_task *t = (struct process_task *)task;

	if (!t)
		return;
	process_release(&t->process);
	free(t);
}

const struct executor executor_process = {
	.name = "process",
	.start = start,
	.ended = ended,
	.signal = signal_task,
	.kill = kill_task,
	.free = free_task,
};
