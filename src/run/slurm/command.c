/* Running the commands of Slurm. */
#include "run/slurm/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/banned.h"

enum { PATIENCE_MS = 120000, END_MS = 5000 };

/* free() it. NULL: none. */
static char *find_program(const char *name)
{
	const char *path = str_env("PATH");

	return fs_find_program(path ? path : "/usr/local/bin:/usr/bin:/bin", name);
}

/* Both pipes until they are closed; false: it takes too long. What does not fit is dropped. */
static bool read_both(const int fds[2], struct buf *const texts[2])
{
	struct pollfd polled[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
	int64_t until = clock_monotonic_ms() + PATIENCE_MS;

	while (polled[0].fd >= 0 || polled[1].fd >= 0) {
		int64_t left = until - clock_monotonic_ms();

		if (left <= 0)
			return false;
		if (poll(polled, 2, (int)left) < 0 && errno != EINTR)
			return false;
		for (int i = 0; i < 2; i++) {
			char block[4096];
			ssize_t n;

			if (polled[i].fd < 0 || !polled[i].revents)
				continue;
			n = read(polled[i].fd, block, sizeof(block));
			if (n > 0)
				buf_add(texts[i], block, (size_t)n);
			else if (n == 0 || errno != EINTR)
				polled[i].fd = -1;
		}
	}
	return true;
}

/* The line that says what is wrong: the first with "error:" in it, else the last that is not empty. */
static void pick_line(const char *text, char line[static 512])
{
	const char *error = strstr(text, "error: ");
	const char *at = text;

	*line = '\0';
	if (error) {
		error += strlen("error: ");
		snprintf(line, 512, "%.*s", (int)strcspn(error, "\n"), error);
		return;
	}
	while (*at) {
		size_t len = strcspn(at, "\n");

		if (len)
			snprintf(line, 512, "%.*s", (int)(len < 500 ? len : 500), at);
		at += len + (at[len] == '\n');
	}
}

static int missing(const char *program, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_UNAVAILABLE,
		"%s is not on PATH, so there is no Slurm here: log in to a machine of the cluster "
		"that may "
		"submit jobs, load its module, or leave out --on slurm",
		program);
}

int slurm_need(const char *program, struct penstock_error *err)
{
	_cleanup_free_ char *path = find_program(program);

	return path ? 0 : missing(program, err);
}

/* free() the array, not what is in it. */
static const char **environment_for(const char *program)
{
	static const char *const kept[] = {"SLURM_CONF", "SLURM_CLUSTERS=", "SLURM_JWT="};
	static const char *const dropped[] = {"SQUEUE_", "SCANCEL_", "SINFO_", "SCONTROL_",
		"SLURM_TIME_FORMAT=", "SLURM_BITSTR_LEN="};
	bool srun = strcmp(program, "srun") == 0;
	bool submits = strcmp(program, "sbatch") == 0;
	bool begins = submits || srun;
	const char **env;
	size_t n = 0;

	while (environ[n])
		n++;
	env = calloc(n + 1, sizeof(*env));
	n = 0;
	for (char **pair = environ; env && *pair; pair++) {
		bool drop = begins && str_starts(*pair, "SLURM_");

		for (size_t i = 0; drop && i < ARRAY_SIZE(kept); i++)
			drop = !str_starts(*pair, kept[i]);
		drop |= srun && str_starts(*pair, "SRUN_");
		/* A batch job is a penstock that needs its secrets; nobody else does. */
		drop |= !submits && process_is_own_secret(*pair);
		for (size_t i = 0; !drop && i < ARRAY_SIZE(dropped); i++)
			drop = str_starts(*pair, dropped[i]);
		if (!drop)
			env[n++] = *pair;
	}
	return env;
}

static int judge(const char *program, bool in_time, int status, const struct buf *said,
	struct penstock_error *err)
{
	char line[512];

	if (!in_time)
		return error_set(err, PENSTOCK_E_TIMEOUT,
			"%s did not end within %d s; does Slurm's controller answer?", program,
			PATIENCE_MS / 1000);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return error_set(err, PENSTOCK_E_CANCELLED, "%s was killed by signal %d", program,
			WTERMSIG(status));
	pick_line(buf_str(said), line);
	if (*line)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "%s: %s", program, line);
	return error_set(err, PENSTOCK_E_UNAVAILABLE, "%s ended with exit code %d", program,
		WEXITSTATUS(status));
}

int slurm_command(const char *const *argv, struct buf *out, struct penstock_error *err)
{
	_cleanup_free_ char *program = find_program(argv[0]);
	_cleanup_free_ const char **env = environment_for(argv[0]);
	_cleanup_(buf_release) struct buf said = BUF_INIT(64 * KIB);
	_cleanup_close_ int out_read = -1, said_read = -1;
	struct process p = PROCESS_INIT;
	const char *words[64] = {program};
	int outs[2], saids[2];
	bool in_time;
	int status = 0;
	int r;

	if (!program)
		return missing(argv[0], err);
	if (!env)
		return error_memory(err);
	for (size_t i = 1; argv[i]; i++) {
		if (i >= ARRAY_SIZE(words) - 1)
			return error_set(err, PENSTOCK_E_LIMIT, "%s: more than %zu options",
				argv[0], ARRAY_SIZE(words) - 2);
		words[i] = argv[i];
	}
	if (pipe2(outs, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	out_read = outs[0];
	if (pipe2(saids, O_CLOEXEC) < 0) {
		close(outs[1]);
		return error_errno(err, errno, "cannot make a pipe");
	}
	said_read = saids[0];
	r = process_spawn(&p,
		&(struct process_spec){.argv = words,
			.envp = env,
			.stdin_fd = -1,
			.stdout_fd = outs[1],
			.stderr_fd = saids[1],
			.new_session = true},
		err);
	close(outs[1]);
	close(saids[1]);
	if (r < 0)
		return r;
	in_time = read_both(
		(const int[2]){out_read, said_read}, (struct buf *const[2]){out, &said});
	if (!in_time)
		kill(-p.pid, SIGKILL);
	process_wait(&p, in_time ? PATIENCE_MS : END_MS, &status);
	process_release(&p);
	r = judge(argv[0], in_time, status, &said, err);
	if (r == 0 && buf_failed(out))
		r = buf_error(out, "what Slurm has printed", err);
	return r;
}

int slurm_become(const char *const *argv, struct penstock_error *err)
{
	_cleanup_free_ char *program = find_program(argv[0]);
	_cleanup_free_ const char **env = environment_for(argv[0]);

	if (!program)
		return missing(argv[0], err);
	if (!env)
		return error_memory(err);
	execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
	return error_errno(err, errno, "cannot run %s", program);
}
