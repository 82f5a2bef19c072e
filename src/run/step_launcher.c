#include "run/step_launcher.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/process_run.h"
#include "run/ranks.h"
#include "run/step_command.h"
#include "base/banned.h"

enum { PATIENCE_MS = 20000 };

enum flavour { OPEN_MPI_4, OPEN_MPI_5, HYDRA, OTHER };

bool launcher_wanted(const struct workflow_run *step)
{
	return step->mpi.value && strcmp(step->mpi.value, "none") != 0 &&
	       step->resources.tasks.value > 1;
}

/* What it prints for --version says whose it is. */
static enum flavour flavour_of(const char *program)
{
	const char *const argv[] = {program, "--version", NULL};
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	const char *open_mpi;
	int status;

	/* Whatever became of it, what it has printed counts. */
	process_run(&(struct process_spec){.argv = argv, .stdin_fd = -1, .new_session = true},
		&(struct process_run_options){.name = program,
			.patience_ms = PATIENCE_MS,
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

static int add_words(struct strlist *argv, const char *const *words)
{
	for (; *words; words++) {
		if (strlist_add(argv, *words) < 0)
			return -1;
	}
	return 0;
}

/* Bound to CPUs are all of them together, by their control group and affinity. */
static int add_options(struct strlist *argv, enum flavour flavour, bool root)
{
	static const char *const open_mpi_4[] = {
		"--oversubscribe", "--bind-to", "none", "--tag-output", NULL};
	static const char *const open_mpi_5[] = {
		"--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--output", "tag", NULL};
	static const char *const hydra[] = {
		"-launcher", "fork", "-bind-to", "none", "-prepend-pattern", "[%r] ", NULL};
	static const char *const other[] = {NULL};

	if (flavour <= OPEN_MPI_5 && root && strlist_add(argv, "--allow-run-as-root") < 0)
		return -1;
	return add_words(argv, flavour == OPEN_MPI_4   ? open_mpi_4
			       : flavour == OPEN_MPI_5 ? open_mpi_5
			       : flavour == HYDRA      ? hydra
						       : other);
}

/* As the launcher sees itself. */
static bool is_root(const struct workflow_run *step)
{
	return step->map_uid.given ? step->map_uid.value == 0 : geteuid() == 0;
}

int launcher_words(const struct workflow_run *step, const char *path, struct strlist *argv,
	struct penstock_error *err)
{
	struct host_command mapping;
	_cleanup_free_ char *mpirun = fs_find_program(path, "mpirun");
	_cleanup_free_ char *mpiexec = mpirun ? NULL : fs_find_program(path, "mpiexec");
	const char *program = mpirun ? mpirun : mpiexec;

	if (!program)
		return error_set(err, PENSTOCK_E_NOT_FOUND,
			"`mpi: %s` needs the machine's MPI launcher, and neither mpirun nor "
			"mpiexec "
			"is on PATH; install one (such as openmpi-bin), or give `mpi: none`",
			step->mpi.value);
	/* Its server takes ranks only from who it is itself, so in containers it sees itself as they do. */
	host_command_mapping(&mapping, step);
	if (add_words(argv, mapping.argv) < 0 || strlist_add(argv, program) < 0 ||
		add_options(argv, flavour_of(program), is_root(step)) < 0 ||
		strlist_add(argv, "-n") < 0 ||
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
	if (add_words(argv, (const char *const[]){"/bin/sh", "-c", ranks_mpi_wrapper,
				    step->shell.value, step->command.value, NULL}) < 0)
		return error_memory(err);
	return 0;
}
