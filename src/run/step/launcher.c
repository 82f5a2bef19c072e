#include "run/step/launcher.h"

#include <inttypes.h>
#include <penstock/error.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "run/cluster/remote.h"
#include "run/step/ranks.h"

/* ---- command lines without a launcher ---- */

/* Writes the words that set the identity; returns their number. */
static size_t put_mapping(struct host_command *out, const struct workflow_run *what)
{
	/* Only root can create a network namespace. So, unless penstock is root, a step with its
	 * own network runs in a user namespace in which the caller is root: map the caller back to
	 * its own ids. */
	bool own_network = what->network != WORKFLOW_NETWORK_HOST;
	bool mapped = what->map_uid.given || what->map_gid.given || (own_network && geteuid() != 0);
	const char **argv = out->argv;

	if (mapped) {
		snprintf(out->uid, sizeof(out->uid), "--map-user=%lld",
			what->map_uid.given ? (long long)what->map_uid.value
					    : (long long)geteuid());
		snprintf(out->gid, sizeof(out->gid), "--map-group=%lld",
			what->map_gid.given ? (long long)what->map_gid.value
					    : (long long)getegid());
		*argv++ = "/usr/bin/unshare";
		*argv++ = "--user";
		*argv++ = out->uid;
		*argv++ = out->gid;
		/* A step that may mount, as root or in its own network, gets its own mounts. */
		if (own_network || (what->map_uid.given && what->map_uid.value == 0))
			*argv++ = "--mount";
		*argv++ = "--";
	}
	*argv = NULL;
	return (size_t)(argv - out->argv);
}

/* The words of put_mapping() make a user namespace, in which the step sees itself as another user;
 * outside of the namespace the step still runs as the caller. */
void host_command(struct host_command *out, const struct workflow_run *what)
{
	const char **argv = out->argv + put_mapping(out, what);

	*argv++ = what->shell.value;
	*argv++ = "-c";
	*argv++ = what->command.value;
	*argv = NULL;
}

void host_command_mapping(struct host_command *out, const struct workflow_run *what)
{
	put_mapping(out, what);
}

/* ---- the launcher ---- */

enum { TIMEOUT_MS = 20000 };

enum flavour { OPEN_MPI_4, OPEN_MPI_5, HYDRA, OTHER };

bool launcher_wanted(const struct workflow_run *step)
{
	return step->mpi.value && strcmp(step->mpi.value, "none") != 0 &&
	       step->resources.tasks.value > 1;
}

/* Returns the implementation of MPI, which the output of --version names. */
static enum flavour flavour_of(const char *program)
{
	const char *const argv[] = {program, "--version", NULL};
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *open_mpi;
	int status;

	/* The exit status does not matter, only the output. */
	process_run(&(struct process_spec){.argv = argv, .stdin_fd = -1, .new_session = true},
		&(struct process_run_options){.name = program,
			.timeout_ms = TIMEOUT_MS,
			.out.text = &text,
			.err.text = &text},
		&status, NULL);
	open_mpi = strstr(buf_str(&text), "(Open MPI) ");
	if (open_mpi)
		return open_mpi[strlen("(Open MPI) ")] < '5' ? OPEN_MPI_4 : OPEN_MPI_5;
	if (strstr(buf_str(&text), "HYDRA") || strstr(buf_str(&text), "Intel(R) MPI"))
		return HYDRA;
	return OTHER;
}

/* Adds the options that label the output of each rank, and disable the launcher's CPU binding: the
 * control group and the affinity of the step apply to all tasks together. */
static int add_options(struct strlist *argv, enum flavour flavour, bool root)
{
	static const char *const open_mpi_4[] = {
		"--oversubscribe", "--bind-to", "none", "--tag-output", NULL};
	static const char *const open_mpi_5[] = {
		"--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--output", "tag", NULL};
	static const char *const hydra[] = {
		"-launcher", "fork", "-bind-to", "none", "-prepend-pattern", "[%r] ", NULL};
	static const char *const *const all[] = {open_mpi_4, open_mpi_5, hydra, NULL};

	if (flavour <= OPEN_MPI_5 && root && strlist_add(argv, "--allow-run-as-root") < 0)
		return -1;
	return strlist_add_all(argv, all[flavour]);
}

int launcher_words(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err)
{
	struct host_command mapping;
	bool root = step->map_uid.given ? step->map_uid.value == 0 : geteuid() == 0;
	_cleanup_free_ char *mpirun = fs_find_program(path, "mpirun");
	_cleanup_free_ char *mpiexec = mpirun ? NULL : fs_find_program(path, "mpiexec");
	const char *program = mpirun ? mpirun : mpiexec;

	if (!program)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"cannot start the ranks with `mpi: %s`: neither mpirun nor mpiexec is on "
			"PATH; install one (such as openmpi-bin), or give `mpi: none`",
			step->mpi.value);
	/* The launcher's server accepts ranks only of its own user, so a launcher of containers
	 * runs with the identity of the containers. */
	host_command_mapping(&mapping, step);
	if (strlist_add_all(argv, mapping.argv) < 0 || strlist_add(argv, program) < 0 ||
		add_options(argv, flavour_of(program), root) < 0 || strlist_add(argv, "-n") < 0 ||
		strlist_addf(argv, "%" PRId64, step->resources.tasks.value) < 0)
		return error_memory(err);
	return 0;
}

int launcher_command(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err)
{
	int r = launcher_words(step, path, argv, err);

	if (r < 0)
		return r;
	if (strlist_add_all(argv, (const char *const[]){"/bin/sh", "-c", ranks_mpi_wrapper,
					  step->shell.value, step->command.value, NULL}) < 0)
		return error_memory(err);
	return 0;
}

/* ---- containers started by a launcher ---- */

int step_mpi_wrap(struct task_spec *task, const struct workflow_run *what, const int *gpus,
	size_t n_gpus, struct strlist *argv, struct strlist *env, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_MPI_TASK);
	_cleanup_free_ char *program = realpath("/proc/self/exe", NULL);
	struct task_container container = *task->container;
	struct task_spec rank = *task;
	int r;

	/* A user who is not root may be root in the container, but not to the launcher's server. */
	if (!what->map_uid.given)
		container.uid = geteuid();
	if (!what->map_gid.given)
		container.gid = getegid();
	rank.container = &container;
	rank.network = (struct task_network){0}; /* the ranks have the launcher's network */
	r = remote_describe_rank(&rank, gpus, n_gpus, &text, err);
	if (r == 0)
		r = launcher_words(what, strlist_get(env, "PATH"), argv, err);
	if (r < 0)
		return r;
	if (!program || strlist_add(argv, program) < 0 || strlist_add(argv, REMOTE_RANK_WORD) < 0 ||
		strlist_set(env, REMOTE_RANK_VARIABLE, buf_str(&text)) < 0)
		return error_memory(err);
	task->argv = (const char *const *)argv->items;
	task->container = NULL;
	return 0;
}
