#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "cli/runs/enter.h"
#include "cli/runs/exec.h"
#include "run/process/live.h"
#include "base/banned.h"

struct copying {
	struct strlist *env;
	bool no_memory;
};

static bool add_pair(void *cookie, const char *pair)
{
	struct copying *copying = cookie;

	copying->no_memory = strlist_add(copying->env, pair) < 0;
	return !copying->no_memory;
}

/* Joins the step: its control groups, so that the command counts as part of it and ends with it,
 * its CPUs and its directory. */
static int go_there(const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	char path[32];
	cpu_set_t set;

	for (size_t i = 0; i < step->cgroups.n; i++) {
		_cleanup_free_ char *procs = path_join(step->cgroups.items[i], "cgroup.procs");
		_cleanup_close_ int fd = procs ? open(procs, O_WRONLY | O_CLOEXEC) : -1;

		if (fd < 0 || write(fd, "0", 1) != 1)
			return error_errno(err, errno, "cannot join the step's control group %s",
				step->cgroups.items[i]);
	}
	if (sched_getaffinity(pid, sizeof(set), &set) == 0)
		sched_setaffinity(0, sizeof(set), &set);
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	if (step->enter.n == 0 && chdir(path) < 0 && chdir(step->cwd) < 0)
		return error_errno(err, errno, "cannot enter %s", step->cwd);
	return 0;
}

void exec_reset_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
}

int exec_become(char **words, const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist env = {0};
	struct copying copying = {.env = &env};
	const char *name = words ? words[0] : NULL, *term = getenv("TERM");
	/* The environment that the task was started with: later changes by the task are not
	 * visible. */
	int r = process_environment(pid, add_pair, &copying, err);
	int errnum;

	if (r < 0)
		return error_prefix(err, "cannot read the task's environment");
	if (copying.no_memory ||
		(term && isatty(STDIN_FILENO) && strlist_set(&env, "TERM", term) < 0))
		return error_memory(err);
	r = go_there(step, pid, err);
	if (r == 0 && step->enter.n)
		r = enter_container(pid, &step->enter, err);
	if (r < 0 || !name)
		return r;
	exec_reset_signals();
	environ = env.items; /* execvp() searches the PATH of the step */
	execvp(name, words);
	errnum = errno;
	r = error_errno(err, errnum, "cannot run '%s'", name);
	/* A name with quotes is not easy to quote. */
	if ((errnum == ENOENT || errnum == ENOTDIR) && strpbrk(name, " \t\n$|&;<>*"))
		error_suffix(err, "; to run a shell line: sh -c '%s'",
			strchr(name, '\'') ? "LINE" : name);
	return r;
}
