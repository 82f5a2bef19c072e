/* Running the commands of Slurm. */
#include "run/cluster/slurm.h"

#include <errno.h>
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

enum { TIMEOUT_MS = 120000 };

/* Returns the path of the program, which the caller frees; NULL if the program is missing. */
static char *find_program(const char *name)
{
	const char *path = str_env("PATH");

	return fs_find_program(path ? path : "/usr/local/bin:/usr/bin:/bin", name);
}

/* Gets the error: the rest of the line after the first "error: ", else the last non-empty line. */
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
		"cannot use Slurm: '%s' is not on PATH; log in to a machine of the cluster that "
		"may submit jobs, load Slurm's module, or omit --on slurm",
		program);
}

int slurm_need(const char *program, struct penstock_error *err)
{
	_cleanup_free_ char *path = find_program(program);

	return path ? 0 : missing(program, err);
}

/* Returns the environment of the program; the caller frees the array, but not the strings. */
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
		bool drop = begins && str_starts(*pair, "SLURM_") &&
			    !str_starts_any(*pair, kept, ARRAY_SIZE(kept));

		drop |= srun && str_starts(*pair, "SRUN_");
		/* Only sbatch gets penstock's secrets, because the batch job executes the run. */
		drop |= !submits && process_is_own_secret(*pair);
		if (!drop && !str_starts_any(*pair, dropped, ARRAY_SIZE(dropped)))
			env[n++] = *pair;
	}
	return env;
}

int slurm_command(const char *const *argv, struct buf *out, struct penstock_error *err)
{
	_cleanup_free_ char *program = find_program(argv[0]);
	_cleanup_free_ const char **env = environment_for(argv[0]);
	_cleanup_(buf_release) struct buf said = BUF_INIT(64 * KIB);
	const char *words[64] = {program};
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
	r = process_run(
		&(struct process_spec){
			.argv = words, .envp = env, .stdin_fd = -1, .new_session = true},
		&(struct process_run_options){.name = argv[0],
			.timeout_ms = TIMEOUT_MS,
			.out.text = out,
			.err.text = &said},
		&status, err);
	if (r == -(int)PENSTOCK_E_TIMEOUT)
		error_suffix(err, "; check that Slurm's controller replies");
	if (r < 0)
		return r;
	char line[512];

	if (status == 0)
		return 0;
	if (WIFSIGNALED(status))
		return error_set(err, PENSTOCK_E_CANCELLED, "%s was killed by signal %d", argv[0],
			WTERMSIG(status));
	pick_line(buf_str(&said), line);
	if (*line)
		return error_set(err, PENSTOCK_E_UNAVAILABLE, "%s: %s", argv[0], line);
	return error_set(err, PENSTOCK_E_UNAVAILABLE, "%s failed with exit code %d", argv[0],
		WEXITSTATUS(status));
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
	return error_errno(err, errno, "cannot run '%s'", program);
}

int slurm_gpus_of(const char *gres)
{
	int sum = 0;

	for (const char *at = gres; (at = strstr(at, "gpu:")); at++) {
		const char *number = at + 4;
		size_t len = strcspn(number, ":,(");

		if (number[len] == ':')
			number += len + 1;
		sum += (int)strtoul(number, NULL, 10);
	}
	return sum;
}

int slurm_node_size(int *cpus, int *gpus, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SLURM_REPLY);
	_cleanup_free_ char *lines = NULL;
	bool chosen = false;
	char *rest, *line;
	int r = slurm_command(
		(const char *const[]){"sinfo", "--noheader", "--Node", "--format=%P|%c|%G", NULL},
		&text, err);

	*cpus = *gpus = 0;
	if (r < 0)
		return r;
	rest = lines = text.len ? buf_take(&text) : NULL;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *partition = strsep(&line, "|"), *count = strsep(&line, "|");
		bool preset = partition && str_ends(partition, "*");
		int n = count ? (int)strtol(count, NULL, 10) : 0,
		    g = line ? slurm_gpus_of(line) : 0;

		/* Consider the nodes of all partitions until a node of the default partition is
		 * found, and from then on only the nodes of that partition. */
		if (n < 1 || (chosen && !preset))
			continue;
		if (!*cpus || (preset && !chosen)) {
			*cpus = n;
			*gpus = g;
		}
		chosen = preset;
		*cpus = n < *cpus ? n : *cpus;
		*gpus = g < *gpus ? g : *gpus;
	}
	return 0;
}
