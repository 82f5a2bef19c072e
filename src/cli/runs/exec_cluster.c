/* `penstock exec` for a step on the nodes of a cluster: the srun side and the node side. */
#include "cli/runs/exec.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/runs/enter.h"
#include "records/records.h"
#include "records/layout.h"
#include "run/process/live.h"
#include "run/cluster/slurm.h"
#include "base/banned.h"

enum { GRACE_MS = 5000 };

/* ---- where the command is entered ---- */

/* The new step shares the resources of the running one: it neither waits for them nor takes
 * them. */
static int add_options(struct strlist *argv, const char *job, const char *node)
{
	static const char *const fixed[] = {"--overlap", "--nodes=1", "--ntasks=1", "--mem=0",
		"--cpu-bind=none", "--mpi=none", "--job-name=exec", "--chdir=/", "--export=ALL",
		"--quiet"};
	const char *cluster = strchr(job, ';');

	if (strlist_add(argv, "srun") < 0 ||
		strlist_addf(argv, "--jobid=%.*s", (int)strcspn(job, ";"), job) < 0 ||
		(cluster && strlist_addf(argv, "--clusters=%s", cluster + 1) < 0) ||
		strlist_addf(argv, "--nodelist=%s", node) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++) {
		if (strlist_add(argv, fixed[i]) < 0)
			return -1;
	}
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) ? strlist_add(argv, "--pty")
							     : strlist_add(argv, "--unbuffered");
}

int exec_on_cluster(const struct strlist *words, const char *home, const struct records_run *run,
	const struct live_step *step, int64_t rank, struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(strlist_release) struct strlist argv = {0};
	_cleanup_free_ char *dir = NULL, *node = NULL;
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	_cleanup_(slurm_job_release) struct slurm_job record = {0};
	int r = slurm_job_read(&record, home, run->id, err);

	if (r < 0)
		return error_prefix(err, "cannot read the Slurm job of run %s", run->id);
	if (!*record.job)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"run %s is not a Slurm job yet; see 'penstock ps'", run->id);
	r = run_layout_init(&layout, home, run->id, run->last.attempt, err);
	if (r < 0)
		return r;
	dir = str_printf("%s/step-%lu", layout.tmp, step->serial);
	if (!dir)
		return error_memory(err);
	node = live_node(dir, (unsigned long)rank);
	if (!node)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"task %" PRId64 " of '%s' has not started or has ended", rank, step->name);
	if (!program || add_options(&argv, record.job, node) < 0 ||
		strlist_add(&argv, program) < 0 || strlist_add(&argv, EXEC_NODE_WORD) < 0 ||
		strlist_add(&argv, dir) < 0 || strlist_addf(&argv, "%" PRId64, rank) < 0)
		return error_memory(err);
	for (size_t i = 0; i < words->n; i++) {
		if (strlist_add(&argv, words->items[i]) < 0)
			return error_memory(err);
	}
	exec_reset_signals();
	return slurm_become((const char *const *)argv.items, err);
}

/* ---- on the node ---- */

struct found {
	unsigned long rank;
	struct live_step step;
	bool memory;
};

static int take(void *cookie, const struct live_step *step)
{
	struct found *f = cookie;

	if (step->serial != f->rank || step->n != 1)
		return 0;
	f->step.cwd = strdup(step->cwd);
	f->step.pids = calloc(1, sizeof(*f->step.pids));
	f->memory = !f->step.cwd || !f->step.pids;
	for (size_t i = 0; i < step->enter.n && !f->memory; i++)
		f->memory = strlist_add(&f->step.enter, step->enter.items[i]) < 0;
	if (!f->memory) {
		f->step.n = 1;
		f->step.pids[0] = step->pids[0];
	}
	return 1;
}

/* Ends the command when the task ends. Slurm ends the rest of its step. */
static int wait_for_end(pid_t command, int task_fd)
{
	_cleanup_close_ int own_fd = (int)syscall(SYS_pidfd_open, command, 0);
	struct pollfd fds[] = {{own_fd, POLLIN, 0}, {task_fd, POLLIN, 0}};
	int status = 0;

	while (own_fd >= 0 && poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno == EINTR)
		;
	if (own_fd >= 0 && !fds[0].revents) {
		kill(command, SIGTERM);
		kill(command, SIGHUP); /* for an interactive shell */
		if (poll(fds, 1, GRACE_MS) <= 0)
			kill(command, SIGKILL);
	}
	while (waitpid(command, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_next_to(
	const struct live_step *step, char **words, int *code, struct penstock_error *err)
{
	pid_t task = step->n ? step->pids[0] : 0;
	_cleanup_close_ int task_fd = task ? (int)syscall(SYS_pidfd_open, task, 0) : -1;
	pid_t command;

	if (task_fd < 0)
		return error_set(err, PENSTOCK_E_NOT_FOUND, "the task has ended");
	command = fork();
	if (command < 0)
		return error_errno(err, errno, "cannot fork");
	if (command == 0)
		return exec_become(words, step, task, err);
	/* Signals reach the command directly: Slurm signals every process of the step. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	*code = wait_for_end(command, task_fd);
	return 0;
}

int exec_node_main(char **argv)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct found found = {0};
	uint64_t rank;
	int code = 0;
	int r = 0;

	if (!str_to_u64(argv[1], 0, INT32_MAX, &rank))
		return CLI_EXIT_USAGE;
	found.rank = (unsigned long)rank;
	live_each(argv[0], take, &found);
	if (found.memory)
		r = error_memory(&err);
	if (r == 0 && found.step.enter.n)
		r = enter_prepare(&err);
	if (r == 0)
		r = run_next_to(&found.step, argv + 2, &code, &err);
	live_step_release(&found.step);
	if (r == 0)
		return code;
	log_error("%s", err.message);
	return exit_code_of_error(err.code);
}
