#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/enter.h"
#include "cli/exec.h"
#include "cli/show_util.h"
#include "run/layout.h"
#include "run/live.h"
#include "base/banned.h"

enum {
	START_PATIENCE_MS = 10000, /* after it the supervisor of a step that starts was killed */
	START_LOOK_MS = 2,
};

/* The step that is meant, and what else there is. */
struct choice {
	const char *wanted; /* its name; NULL: the only one */
	struct live_step step;
	bool found;
	bool several;
	bool starting; /* there is one whose tasks are not on record yet */
	struct buf names;
};

static int copy_list(const struct strlist *from, struct strlist *to)
{
	for (size_t i = 0; i < from->n; i++) {
		if (strlist_add(to, from->items[i]) < 0)
			return -1;
	}
	return 0;
}

/* Without a name the last one that began, if it is the only one. */
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
	/* What a step prints first can be seen before its tasks are on record: it is waited for. */
	for (int64_t until = clock_monotonic_ms() + START_PATIENCE_MS;;) {
		c->starting = false;
		live_each(layout.dir, choose, c);
		if (live)
			live_each_of_cluster(layout.dir, choose, c);
		if (c->found || !live || !c->starting || clock_monotonic_ms() >= until)
			break;
		buf_clear(&c->names);
		poll(NULL, 0, START_LOOK_MS);
	}
	if (c->found && !c->several)
		return 0;
	if (c->names.len && !c->found)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"run %s runs no step '%s' now; it runs %s", run->id, c->wanted,
			buf_str(&c->names));
	if (c->several)
		return error_set(err, PENSTOCK_E_INVALID,
			"run %s runs several steps now: %s; name one with --step", run->id,
			buf_str(&c->names));
	return error_set(
		err, PENSTOCK_E_NOT_FOUND, "run %s runs no step now; see 'penstock ps'", run->id);
}

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

/* As the task was started with; what it has set since is its own. */
static int read_environment(pid_t pid, struct strlist *env, struct penstock_error *err)
{
	struct copying copying = {.env = env};
	int r = process_environment(pid, add_pair, &copying, err);

	if (r < 0)
		return error_prefix(err, "the environment of the task");
	return copying.no_memory ? error_memory(err) : 0;
}

/* The terminal's own variables are of whoever sits there. */
static int add_terminal(struct strlist *env)
{
	const char *term = getenv("TERM");

	return term && isatty(STDIN_FILENO) ? strlist_set(env, "TERM", term) : 0;
}

/* What it then uses counts as the step's, and ends with it. */
static int join_groups(const struct live_step *step, struct penstock_error *err)
{
	for (size_t i = 0; i < step->cgroups.n; i++) {
		_cleanup_free_ char *path = path_join(step->cgroups.items[i], "cgroup.procs");
		_cleanup_close_ int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;

		if (fd < 0 || write(fd, "0", 1) != 1)
			return error_errno(err, errno, "cannot join the step's control group %s",
				step->cgroups.items[i]);
	}
	return 0;
}

static void take_cpus_of(pid_t pid)
{
	cpu_set_t set;

	if (sched_getaffinity(pid, sizeof(set), &set) == 0)
		sched_setaffinity(0, sizeof(set), &set);
}

void exec_reset_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
}

static int go_there(const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	char path[32];
	int r = join_groups(step, err);

	if (r < 0)
		return r;
	take_cpus_of(pid);
	snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	if (step->enter.n == 0 && chdir(path) < 0 && chdir(step->cwd) < 0)
		return error_errno(err, errno, "cannot enter %s", step->cwd);
	return 0;
}

static int refuse_command(const char *name, int errnum, struct penstock_error *err)
{
	bool plain = !strchr(name, '\''); /* else it cannot be told so easily how to quote it */
	int r = error_errno(err, errnum, "cannot run %s", name);

	if ((errnum == ENOENT || errnum == ENOTDIR) && strpbrk(name, " \t\n$|&;<>*"))
		error_suffix(err, "; for the line of a shell: sh -c '%s'", plain ? name : "LINE");
	return r;
}

int exec_become(char **words, const struct live_step *step, pid_t pid, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist env = {0};
	const char *name = words ? words[0] : NULL;
	int r = read_environment(pid, &env, err);

	if (r == 0 && add_terminal(&env) < 0)
		r = error_memory(err);
	if (r == 0)
		r = go_there(step, pid, err);
	if (r == 0 && step->enter.n)
		r = enter_container(pid, &step->enter, err);
	if (r < 0 || !name)
		return r;
	exec_reset_signals();
	environ = env.items; /* execvp() looks on the PATH of the step */
	execvp(name, words);
	return refuse_command(name, errno, err);
}

/* Of a step of this machine. */
static int run_here(struct strlist *words, const struct live_step *step, int64_t rank,
	struct penstock_error *err)
{
	int r = 0;

	if (!step->pids[rank])
		return error_set(err, PENSTOCK_E_NOT_FOUND, "task %" PRId64 " of '%s' has ended",
			rank, step->name);
	if (step->enter.n)
		r = enter_prepare(err);
	return r < 0 ? r : exec_become(words->items, step, step->pids[rank], err);
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
	r = show_open(&records, &home, &err);
	if (r == 0)
		r = show_find(cli, records, &run, &err);
	if (r == 0)
		r = find_step(home, &run, &choice, &err);
	if (r == 0 && (size_t)rank >= choice.step.n)
		r = error_set(&err, PENSTOCK_E_INVALID,
			"'%s' has %zu task%s, so the rank is from 0 to %zu", choice.step.name,
			choice.step.n, choice.step.n == 1 ? "" : "s", choice.step.n - 1);
	for (size_t i = 1; r == 0 && i < cli_n_operands(cli); i++) {
		if (strlist_add(&words, cli_operand(cli, i)) < 0)
			r = error_memory(&err);
	}
	records_freep(&records);
	if (r == 0)
		r = choice.step.cluster
			    ? exec_on_cluster(&words, home, &run, &choice.step, rank, &err)
			    : run_here(&words, &choice.step, rank, &err);
	live_step_release(&choice.step);
	buf_release(&choice.names);
	return cli_fail(cli, &err);
}

static const struct option_spec options[] = {
	{0, "rank", "N", "The task, of a step that has several; default 0"},
	{0, "step", "NAME", "The step, where several run at a time"},
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock exec cifar10 nvidia-smi", "Looks at the GPUs as the step sees them"},
	{"penstock exec cifar10 --rank 1 bash", "A shell beside the second task"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"66", "There is no such run, or it runs no such step now"},
	{"69", "The step is on a cluster, and there is no srun here"},
	{"N", "Else the command's own"},
	{NULL, NULL},
};

const struct command command_exec = {
	.name = "exec",
	.summary = "run a command beside a step that runs",
	.operands = "RUN COMMAND [ARGUMENT...]",
	.min_operands = 2,
	.max_operands = UINT32_MAX,
	.own_operands = 1,
	.description = "Runs a command where a step of the run runs now: in its directory, with "
		       "the environment "
		       "that it was started with, on its CPUs and within its limits (what the "
		       "command uses counts "
		       "as the step's). When the step ends, so does the command. Standard input "
		       "and output are "
		       "those of this terminal.\n\n"
		       "Beside a step on the nodes of a cluster it is a step of the same job, on "
		       "the node of that task, "
		       "and may be run wherever srun is.\n\n"
		       "RUN is an id, the beginning of one, or a name.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_exec,
};
