#include "run/step_launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
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

static void read_all(int fd, int64_t until, struct buf *out)
{
	for (;;) {
		struct pollfd p = {fd, POLLIN, 0};
		int64_t left = until - clock_monotonic_ms();
		char *room = buf_reserve(out, 4096);
		ssize_t n;

		if (!room || left <= 0 || poll(&p, 1, (int)left) <= 0)
			return;
		n = read(fd, room, 4096);
		if (n <= 0)
			return;
		buf_grown(out, (size_t)n);
	}
}

/* What it prints for --version says whose it is. */
static enum flavour flavour_of(const char *program)
{
	const char *const argv[] = {program, "--version", NULL};
	_cleanup_(buf_release) struct buf text = BUF_INIT(64 * KIB);
	int64_t until = clock_monotonic_ms() + PATIENCE_MS;
	struct process p = PROCESS_INIT;
	const char *open_mpi;
	int ends[2];
	int status;
	int r;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return OTHER;
	r = process_spawn(&p,
		&(struct process_spec){.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = ends[1],
			.stderr_fd = ends[1],
			.new_session = true},
		NULL);
	close(ends[1]);
	if (r == 0) {
		read_all(ends[0], until, &text);
		if (!process_wait(&p, 1000, &status)) {
			kill(-p.pid, SIGKILL);
			process_wait(&p, -1, &status);
		}
		process_release(&p);
	}
	close(ends[0]);
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
