/*
 * Steps on the nodes of an allocation: one srun for all tasks of an execution. docs/slurm.md lists
 * the options of srun.
 */
#include "run/task/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "run/cluster/node_inputs.h"
#include "run/cluster/node_usage.h"
#include "run/cluster/remote.h"
#include "run/cluster/slurm.h"

enum { KILL_WAIT_MS = 15000, SWEEP_MS = 60000 };

struct slurm_task {
	struct task task; /* must be the first member */
	struct process process;
	int orders; /* a pipe that the tasks read */
	size_t n, n_nodes; /* number of tasks, and of nodes on which they run */
	char *dir; /* directory with the results of the tasks */
	int status;
};

static void free_task(struct task *task)
{
	struct slurm_task *t = (struct slurm_task *)task;

	if (!t)
		return;
	process_release(&t->process);
	if (t->orders >= 0)
		close(t->orders);
	if (t->dir)
		fs_remove_tree(t->dir, NULL);
	free(t->dir);
	free(t);
}

/* ---- the command line ---- */

/* Replaces "pmix_v4", for example, with "pmix" if this Slurm has another version of PMIx. Returns
 * all other types unchanged. */
static const char *mpi_type(const char *wanted)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);

	if (!str_starts(wanted, "pmix_") ||
		slurm_command((const char *const[]){"sh", "-c", "srun --mpi=list 2>&1", NULL},
			&text, NULL) < 0 ||
		strstr(buf_str(&text), wanted))
		return wanted;
	return "pmix";
}

static int add_options(struct strlist *words, const struct task_cluster *c)
{
	size_t nodes = c->n < c->n_nodes ? c->n : c->n_nodes;

	/* A step must have its CPUs exclusively, which is the default in Slurm 20.11; later
	 * versions need the option. */
	if (strlist_add_all(words, (const char *const[]){"--exclusive", "--export=ALL", "--chdir=/",
					   "--input=all", "--kill-on-bad-exit=1", NULL}) < 0 ||
		strlist_addf(words, "--nodes=%zu", nodes) < 0 ||
		strlist_addf(words, "--ntasks=%zu", c->n) < 0 ||
		strlist_addf(words, "--cpus-per-task=%" PRId64, c->cpus) < 0 ||
		strlist_addf(words, "--job-name=%s", c->name) < 0 ||
		(c->mem_per_cpu ? strlist_addf(words, "--mem-per-cpu=%" PRId64 "M", c->mem_per_cpu)
				: strlist_add(words, "--mem=0")) < 0 ||
		(c->gpus && strlist_addf(words, "--gpus-per-task=%" PRId64, c->gpus) < 0) ||
		(c->no_binding && strlist_add(words, "--cpu-bind=none") < 0) ||
		(c->n > 1 && strlist_add(words, "--label") < 0))
		return -1;
	return c->mpi ? strlist_addf(words, "--mpi=%s", mpi_type(c->mpi)) : 0;
}

/* Returns true for variables that tasks must not inherit. Settings of sbatch for the whole job
 * would become options of the step; secrets are passed to each task separately. */
static bool stays_here(const char *pair)
{
	static const char *const names[] = {"SLURM_MEM_PER_",
		"SLURM_CPUS_PER_TASK=", "SLURM_NTASKS=", "SLURM_NPROCS=", "SLURM_NTASKS_PER_",
		"SLURM_GPUS", "SLURM_TRES_PER_TASK=", "SLURM_CPU_BIND", "SLURM_MEM_BIND",
		"SLURM_JOB_NAME=", "SLURM_LABELIO=", "SLURM_STDINMODE=", "SLURM_STDOUTMODE=",
		"SLURM_STDERRMODE=", "SLURM_NNODES=", "SLURM_JOB_NUM_NODES=", "SLURM_EXPORT_ENV=",
		"SLURM_KILL_BAD_EXIT=", "SLURM_EXACT=", "SLURM_OVERLAP=", "SLURM_WORKING_DIR=",
		"SRUN_"};

	return str_starts_any(pair, names, ARRAY_SIZE(names)) || process_is_own_secret(pair);
}

/* Adds the words before the options of srun, and the environment of srun. */
static int begin_srun(struct strlist *words, struct strlist *env)
{
	static const char *const shell[] = {"/bin/sh", "-c", "exec srun \"$@\"", "srun", NULL};

	for (char **pair = environ; *pair; pair++) {
		if (!stays_here(*pair) && strlist_add(env, *pair) < 0)
			return -1;
	}
	return strlist_add_all(words, shell);
}

void slurm_allocation_sweep(const struct slurm_allocation *allocation)
{
	_cleanup_(strlist_release) struct strlist words = {0}, env = {0};
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	int status;

	if (!allocation->job.node_dir || !program || begin_srun(&words, &env) < 0 ||
		strlist_addf(&words, "--nodes=%d", allocation->n_nodes) < 0 ||
		strlist_addf(&words, "--ntasks=%d", allocation->n_nodes) < 0 ||
		strlist_add_all(&words, (const char *const[]){"--ntasks-per-node=1", "--mem=0",
						"--chdir=/", program, NODE_INPUTS_SWEEP_WORD,
						allocation->job.node_dir, allocation->id, NULL}) <
			0)
		return;
	process_run(
		&(struct process_spec){
			.argv = (const char *const *)words.items,
			.envp = (const char *const *)env.items,
			.stdin_fd = -1,
			.stdout_fd = -1,
			.stderr_fd = STDERR_FILENO,
			.new_session = true,
			.die_with_parent = true,
		},
		&(struct process_run_options){.name = "srun", .timeout_ms = SWEEP_MS}, &status,
		NULL);
}

/* ---- start ---- */

static int spawn(
	struct slurm_task *t, const struct task_spec *spec, int ends[2], struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist words = {0}, env = {0};
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_SLURM_TASK);
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	int r;

	if (!program || begin_srun(&words, &env) < 0 || add_options(&words, spec->cluster) < 0 ||
		strlist_add(&words, program) < 0 || strlist_add(&words, REMOTE_TASK_WORD) < 0)
		return error_memory(err);
	r = remote_describe(spec, &line, err);
	if (r < 0)
		return r;
	/* The description must fit into the pipe, because the caller must not wait until the nodes
	 * read it. */
	int room = fcntl(ends[1], F_SETPIPE_SZ, (int)MIB);

	if (line.len >= (room > 0 ? (size_t)room : 64 * KIB))
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot send the task to the nodes: the environment of the step is too large "
			"(%zu bytes)",
			line.len);
	if (fs_write_all(ends[1], line.data, line.len) < 0)
		return error_errno(err, errno, "cannot send the task's description to the nodes");
	fcntl(ends[1], F_SETFL, O_NONBLOCK);
	return process_spawn(&t->process,
		&(struct process_spec){
			.argv = (const char *const *)words.items,
			.envp = (const char *const *)env.items,
			.stdin_fd = ends[0],
			.stdout_fd = spec->stdout_fd,
			.stderr_fd = spec->stderr_fd,
			.new_session = true,
			.die_with_parent = true,
		},
		err);
}

static int start(struct task **out, const struct task_spec *spec, struct penstock_error *err)
{
	struct slurm_task *t = calloc(1, sizeof(*t));
	int ends[2];
	int r;

	if (!t)
		return error_memory(err);
	t->process = (struct process)PROCESS_INIT;
	t->orders = -1;
	t->n = spec->cluster->n;
	t->n_nodes = t->n < spec->cluster->n_nodes ? t->n : spec->cluster->n_nodes;
	t->dir = strdup(spec->cluster->dir);
	if (!t->dir) {
		free_task(&t->task);
		return error_memory(err);
	}
	fs_remove_tree(t->dir, NULL);
	r = fs_mkdirs(t->dir, 0700, err);
	if (r == 0 && pipe2(ends, O_CLOEXEC) < 0)
		r = error_errno(err, errno, "cannot create a pipe");
	if (r == 0) {
		t->orders = ends[1];
		r = spawn(t, spec, ends, err);
		close(ends[0]);
	}
	if (r < 0) {
		free_task(&t->task);
		return r;
	}
	t->task.pid = t->process.pid;
	t->task.event_fd = t->process.pidfd;
	*out = &t->task;
	return 0;
}

/* ---- end and signals ---- */

/* Finds the task that failed first, by the clocks of the nodes. */
static bool find_failed(const struct slurm_task *t, struct task_end *end)
{
	int64_t first = INT64_MAX;
	bool found = false;

	for (size_t rank = 0; rank < t->n; rank++) {
		struct task_end one;
		int64_t when;

		if (!remote_read_end(t->dir, rank, &one, &when) || (!one.code && !one.signal) ||
			when >= first)
			continue;
		first = when;
		*end = one;
		found = true;
	}
	return found;
}

static bool ended(struct task *task, struct task_end *end)
{
	struct slurm_task *t = (struct slurm_task *)task;
	int code;

	if (!process_wait(&t->process, 0, &t->status))
		return false;
	*end = (struct task_end){0};
	if (find_failed(t, end))
		return true;
	/* If no task has reported a failure, srun's status counts: 0 after a success, else the node
	 * failed or the step was not started. */
	code = WIFSIGNALED(t->status) ? 128 + WTERMSIG(t->status) : WEXITSTATUS(t->status);
	if (code > 128 && code < 128 + 65)
		end->signal = code - 128;
	else
		end->code = code;
	return true;
}

static void order(const struct slurm_task *t, const char *text)
{
	/* Ignore a failure: the reader is gone, or the pipe is full of commands. */
	if (fs_write_all(t->orders, text, strlen(text)) < 0)
		return;
}

static void signal_task(struct task *task, int signal)
{
	char text[24];

	snprintf(text, sizeof(text), "signal %d\n", signal);
	order((struct slurm_task *)task, text);
}

/* Sends a notice: each task signals its own leader once the leader has a handler for the signal. */
static unsigned notify(struct task *task, int signal)
{
	char text[24];

	snprintf(text, sizeof(text), "notify %d\n", signal);
	order((struct slurm_task *)task, text);
	return 1;
}

/* Asks the tasks to end, then kills srun, so that a node that does not reply cannot delay the end.
 * When srun is gone, the tasks get an end of file on their input, and end. */
static void kill_task(struct task *task)
{
	struct slurm_task *t = (struct slurm_task *)task;

	order(t, "kill\n");
	if (!process_wait(&t->process, KILL_WAIT_MS, &t->status))
		process_signal(&t->process, SIGKILL);
}

static bool use(const struct task *task, struct usage_sample *sum)
{
	const struct slurm_task *t = (const struct slurm_task *)task;

	return node_usage_sum(t->dir, t->n_nodes, sum);
}

const struct executor executor_slurm = {
	.name = "slurm",
	.start = start,
	.ended = ended,
	.signal = signal_task,
	.notify = notify,
	.kill = kill_task,
	.use = use,
	.free = free_task,
};
