/* Steps as processes of this machine. */
#include "run/task/executor.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/process/process.h"
#include "run/process/family.h"

struct process_task {
	struct task task; /* must be the first member */
	struct process process;
	struct family_member member;
	int status;
};

/* Returns a copy of the environment with the task's mark appended. Only the list is allocated. */
static const char **marked_environment(const char *const *envp, const char *mark)
{
	const char **copy;
	size_t n = 0;

	while (envp[n])
		n++;
	copy = calloc(n + 2, sizeof(*copy));
	if (!copy)
		return NULL;
	memcpy(copy, envp, n * sizeof(*copy));
	copy[n] = mark;
	return copy;
}

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct process_task *t = calloc(1, sizeof(*t));
	char mark[FAMILY_MARK_SIZE];
	_cleanup_free_ const char **envp = NULL;
	int r;

	family_mark(mark);
	envp = marked_environment(spec->envp, mark);
	if (!t || !envp) {
		free(t);
		return error_memory(err);
	}
	r = process_spawn(&t->process,
		&(struct process_spec){
			.argv = spec->argv,
			.envp = envp,
			.cwd = spec->cwd,
			.stdin_fd = -1,
			.stdout_fd = spec->stdout_fd,
			.stderr_fd = spec->stderr_fd,
			.handed_fd = spec->handed_fd,
			.new_session = true,
			.die_with_parent = true,
			.cpus = spec->cpus,
			.n_cpus = spec->n_cpus,
			.cgroups = spec->cgroups,
			.n_cgroups = spec->n_cgroups,
			.born_in = spec->born_in,
		},
		err);
	if (r < 0) {
		free(t);
		return r;
	}
	family_join(&t->member, t->process.pid, mark);
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
	t->member.reaped = true;
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
	int signalled;
};

static void signal_one(struct signalling *s, pid_t pid)
{
	if (kill(pid, s->signal) == 0)
		s->signalled++;
}

/* Signals the topmost processes that handle the signal, but not the processes below them. */
static bool signal_if_caught(void *cookie, const struct process_info *info)
{
	struct signalling *s = cookie;

	if (!process_catches(info->pid, s->signal))
		return true;
	signal_one(s, info->pid);
	return false;
}

/*
 * A shell between penstock and the program that saves does not pass a signal on, and workers of the
 * program (data loaders) must not die from it before the save. So the leader gets the signal if it
 * has a handler, else its topmost descendants that have one. If no process has a handler, the
 * leader's process group gets the signal, as from a terminal.
 */
static void signal_task(struct task *task, int signal)
{
	struct signalling s = {.signal = signal};

	if (process_catches(task->pid, signal)) {
		signal_one(&s, task->pid);
		return;
	}
	process_descendants(task->pid, signal_if_caught, &s);
	if (!s.signalled)
		kill(-task->pid, signal);
}

/* ---- end ---- */

static bool left(struct task *task)
{
	return family_left(&((struct process_task *)task)->member);
}

static void kill_task(struct task *task)
{
	struct process_task *t = (struct process_task *)task;

	process_signal(&t->process, SIGKILL);
	family_kill(&t->member);
}

static void free_task(struct task *task)
{
	struct process_task *t = (struct process_task *)task;

	if (!t)
		return;
	family_leave(&t->member);
	process_release(&t->process);
	free(t);
}

const struct executor executor_process = {
	.name = "process",
	.start = start,
	.ended = ended,
	.signal = signal_task,
	.left = left,
	.kill = kill_task,
	.free = free_task,
};
