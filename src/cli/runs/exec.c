/* `penstock exec`, and its part on the nodes of a cluster. */
#include "cli/runs/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "cli/runs/enter.h"
#include "records/layout.h"
#include "records/records.h"
#include "run/cluster/slurm.h"
#include "run/process/live.h"

static int copy_list(const struct strlist *from, struct strlist *to)
{
	for (size_t i = 0; i < from->n; i++) {
		if (strlist_add(to, from->items[i]) < 0)
			return -1;
	}
	return 0;
}

/* ---- next to a process of the step ---- */

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

/* Joins the step's control groups, so that the command counts as part of the step and ends with the
 * step. Takes over the CPU affinity of process `pid` and, if the step has no container, the
 * directory of that process. */
static int go_there(const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	char path[32];
	cpu_set_t set;

	for (size_t i = 0; i < step->cgroups.n; i++) {
		_cleanup_free_ char *procs = path_join(step->cgroups.items[i], "cgroup.procs");
		_cleanup_close_ int fd = procs ? open(procs, O_WRONLY | O_CLOEXEC) : -1;

		if (fd < 0 || write(fd, "0", 1) != 1)
			return error_errno(err, errno, "cannot join the step's control group '%s'",
				step->cgroups.items[i]);
	}
	if (sched_getaffinity(pid, sizeof(set), &set) == 0)
		sched_setaffinity(0, sizeof(set), &set);
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	if (step->enter.n == 0 && chdir(path) < 0 && chdir(step->cwd) < 0)
		return error_errno(err, errno, "cannot enter '%s'", step->cwd);
	return 0;
}

/* Restores the signal handling that the command expects. */
static void reset_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
}

/* Replaces this process with the command, which gets the environment, directory and namespaces of
 * process `pid` of the step. Returns only on failure. */
static int become(char **words, const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist env = {0};
	struct copying copying = {.env = &env};
	const char *name = words ? words[0] : NULL, *term = getenv("TERM");
	/* The environment that the task was started with: later changes by the task are not
	 * visible. */
	int r = process_environment(pid, add_pair, &copying, err);
	char **before;
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
	reset_signals();
	before = environ;
	environ = env.items; /* execvp() searches the PATH of the step */
	execvp(name, words);
	errnum = errno;
	environ = before; /* libraries read `environ` when the process ends */
	r = error_errno(err, errnum, "cannot run '%s'", name);
	/* Do not print a name that contains a quote: the hint would need more quoting. */
	if ((errnum == ENOENT || errnum == ENOTDIR) && strpbrk(name, " \t\n$|&;<>*"))
		error_suffix(err, "; to run a shell line: sh -c '%s'",
			strchr(name, '\'') ? "LINE" : name);
	return r;
}

enum { GRACE_MS = 5000 };

/* ---- starting the command on another node ---- */

/* Adds the command line of an srun whose step shares the resources of the running step: the new
 * step neither waits for resources nor takes any. */
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

/* Replaces this process with an srun that starts another Slurm step in the job of the run, on the
 * node of task `rank`. The Slurm step runs penstock: `EXEC_NODE_WORD DIR RANK WORD...`, where DIR
 * is the directory of `step` in the run's tmp/. */
static int run_on_cluster(const struct strlist *words, const char *home,
	const struct records_run *run, const struct live_step *step, int64_t rank,
	struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	_cleanup_(strlist_release) struct strlist argv = {0};
	_cleanup_free_ char *dir = NULL, *node = NULL;
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	_cleanup_(slurm_job_release) struct slurm_job record = {0};
	int r = slurm_job_read(&record, home, run->id, err);

	if (r < 0)
		return error_prefix(err, "cannot read the Slurm job of run '%s'", run->id);
	if (!*record.job)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot enter run '%s': it is not a Slurm job yet; see 'penstock ps'",
			run->id);
	r = run_layout_init(&layout, home, run->id, run->last.attempt, err);
	if (r < 0)
		return r;
	dir = str_printf("%s/step-%lu", layout.tmp, step->serial);
	if (!dir)
		return error_memory(err);
	node = live_node(dir, (unsigned long)rank);
	if (!node)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot enter task %" PRId64 " of '%s': it has not started or has ended",
			rank, step->name);
	if (!program || add_options(&argv, record.job, node) < 0 ||
		strlist_add(&argv, program) < 0 || strlist_add(&argv, EXEC_NODE_WORD) < 0 ||
		strlist_add(&argv, dir) < 0 || strlist_addf(&argv, "%" PRId64, rank) < 0 ||
		copy_list(words, &argv) < 0)
		return error_memory(err);
	reset_signals();
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
	f->memory = !f->step.cwd || !f->step.pids || copy_list(&step->enter, &f->step.enter) < 0;
	if (!f->memory) {
		f->step.n = 1;
		f->step.pids[0] = step->pids[0];
	}
	return 1;
}

/* Waits for the command, and ends it if the task ends first. Slurm ends other processes that the
 * command has started. */
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
		return error_set(err, PENSTOCK_E_NOT_FOUND, "cannot enter the task: it has ended");
	command = fork();
	if (command < 0)
		return error_errno(err, errno, "cannot fork");
	if (command == 0)
		return become(words, step, task, err);
	/* Ignore signals here: Slurm sends them to every process of its step, and so to the
	 * command. */
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

/* ---- the step and the verb ---- */

enum {
	/* timeout for a step that starts: after this time, its supervisor was probably killed */
	START_PATIENCE_MS = 10000,
	START_POLL_MS = 2,
};

/* The requested step, and the names of all live steps. */
struct choice {
	const char *wanted; /* name of the step; NULL for the only live step */
	struct live_step step;
	bool found;
	bool several;
	bool starting; /* a matching step has no recorded tasks yet */
	struct buf names;
};

/* Copies the first step that matches, and notes whether several match. */
static int choose(void *cookie, const struct live_step *step)
{
	struct choice *c = cookie;

	if (step->n == 0) {
		c->starting |= !c->wanted || strcmp(step->name, c->wanted) == 0;
		return 0;
	}
	buf_printf(&c->names, "%s'%s'", c->names.len ? ", " : "", step->name);
	if (c->wanted && strcmp(step->name, c->wanted) != 0)
		return 0;
	c->several |= c->found;
	if (c->found)
		return 0;
	c->found = true;
	c->step.serial = step->serial;
	c->step.n = step->n;
	c->step.cluster = step->cluster;
	c->step.name = strdup(step->name);
	c->step.cwd = strdup(step->cwd);
	c->step.pids = calloc(step->n + 1, sizeof(*c->step.pids));
	if (!c->step.name || !c->step.cwd || !c->step.pids ||
		copy_list(&step->cgroups, &c->step.cgroups) < 0 ||
		copy_list(&step->enter, &c->step.enter) < 0)
		return -1;
	memcpy(c->step.pids, step->pids, step->n * sizeof(*step->pids));
	return 0;
}

static int find_step(const char *home, const struct records_run *run, struct choice *c,
	struct penstock_error *err)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	int r = run_layout_init(&layout, home, run->id, run->last.attempt, err);
	bool live = run_state_is_live(run->last.state);

	if (r < 0)
		return r;
	/* Wait until the tasks are recorded, because a user may see output of a step earlier. */
	for (int64_t until = clock_monotonic_ms() + START_PATIENCE_MS;;) {
		c->starting = false;
		live_each(layout.dir, choose, c);
		if (live)
			live_each_of_cluster(layout.dir, choose, c);
		if (c->found || !live || !c->starting || clock_monotonic_ms() >= until)
			break;
		buf_clear(&c->names);
		poll(NULL, 0, START_POLL_MS);
	}
	if (c->found && !c->several)
		return 0;
	if (c->names.len && !c->found)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot enter run '%s': it has no live step '%s'; it is running %s",
			run->id, c->wanted, buf_str(&c->names));
	if (c->several)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot enter run '%s': it has several live steps (%s); choose one "
			"with --step",
			run->id, buf_str(&c->names));
	return error_set(err, PENSTOCK_E_NOT_FOUND,
		"cannot enter run '%s': it has no live step; see 'penstock ps'", run->id);
}

static int run_exec(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_(records_run_release) struct records_run run = {0};
	_cleanup_(strlist_release) struct strlist words = {0};
	_cleanup_free_ char *home = NULL;
	struct choice choice = {.wanted = cli_value(cli, "step"), .names = BUF_INIT(4096)};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t rank;
	int r;

	if (!cli_number(cli, "rank", 0, 1000000, 0, &rank))
		return CLI_EXIT_USAGE;
	r = show_run(cli, 0, &records, &home, &run, &err);
	if (r == 0)
		r = find_step(home, &run, &choice, &err);
	if (r == 0 && (size_t)rank >= choice.step.n)
		r = error_set(&err, PENSTOCK_E_INVALID,
			"cannot enter task %" PRId64 " of '%s': the rank must be from 0 to %zu",
			rank, choice.step.name, choice.step.n - 1);
	for (size_t i = 1; r == 0 && i < cli_n_operands(cli); i++) {
		if (strlist_add(&words, cli_operand(cli, i)) < 0)
			r = error_memory(&err);
	}
	records_freep(&records);
	if (r == 0 && choice.step.cluster)
		r = run_on_cluster(&words, home, &run, &choice.step, rank, &err);
	else if (r == 0 && !choice.step.pids[rank])
		r = error_set(&err, PENSTOCK_E_NOT_FOUND,
			"cannot enter task %" PRId64 " of '%s': it has ended", rank,
			choice.step.name);
	else if (r == 0 && (!choice.step.enter.n || enter_prepare(&err) == 0))
		become(words.items, &choice.step, choice.step.pids[rank], &err);
	live_step_release(&choice.step);
	buf_release(&choice.names);
	return cli_fail(cli, &err);
}

const struct command command_exec = {
	.name = "exec",
	.summary = "run a command inside a running step",
	.operands = "RUN COMMAND [ARGUMENT...]",
	.min_operands = 2,
	.max_operands = UINT32_MAX,
	.own_operands = 1,
	.description =
		"Runs a command inside a running step of the run: in its directory, with the "
		"environment that it was started with, on its CPUs and within its limits (the "
		"usage of the command counts as the step's). The command ends when the step "
		"ends. Standard input and output are those of this terminal.\n"
		"\n"
		"For a step on a cluster the command becomes a step of the same job, on the "
		"node of that task; it can be started wherever srun is available.\n"
		"\n"
		"RUN is an id, the beginning of one, or a name.",
	.options = OPTIONS({0, "rank", "N", "Task of a step that has several; default 0"},
		{0, "step", "NAME", "Step to use if several are running"}),
	.examples = EXAMPLES(
		{"penstock exec cifar10 nvidia-smi", "Show the GPUs that the step sees"},
		{"penstock exec cifar10 --rank 1 bash", "A shell next to the second task"}),
	.exits = EXITS({"66", "There is no such run, or it has no live step"},
		{"69", "The step runs on a cluster, and srun is not available here"},
		{"N", "Otherwise the exit code of the command"}),
	.run = run_exec,
};
