#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/show_util.h"
#include "records/claims.h"
#include "run/cgroups.h"
#include "run/user_limits.h"
#include "base/banned.h"

/* What is claimed of this machine, by all and by us. */
struct use {
	int cpus, gpus, runs, waiting;
	uint64_t memory;
	int own_cpus, own_gpus, own_runs;
	uint64_t own_memory;
};

static int add_holder(void *cookie, const struct claim_holder *h)
{
	struct use *use = cookie;

	if (h->waiting) {
		use->waiting++;
		return 0;
	}
	use->cpus += h->cpus;
	use->gpus += h->gpus;
	use->memory += h->memory;
	use->runs++;
	if (h->uid != geteuid())
		return 0;
	use->own_cpus += h->cpus;
	use->own_gpus += h->gpus;
	use->own_memory += h->memory;
	use->own_runs++;
	return 0;
}

/* "memory cpus" where the kernel holds these. */
static void find_held(bool *memory, bool *cpus)
{
	_cleanup_(buf_release) struct buf places = BUF_INIT(64 * KIB);

	cgroup_place(&places);
	*memory = strstr(buf_str(&places), " memory") != NULL;
	*cpus = strstr(buf_str(&places), " cpus") != NULL;
}

static json_t *limit_or_null(int64_t limit)
{
	return limit < 0 ? json_null() : json_integer(limit);
}

static int print_json(const char *host, const struct machine_capacity *m, const struct use *use,
	const struct claim_limits *limits)
{
	bool memory, cpus;
	json_t *array = json_array();

	find_held(&memory, &cpus);
	json_array_append_new(array,
		json_pack("{s:s, s:s, s:{s:i, s:I, s:i}, s:{s:i, s:I, s:i, s:i}, s:i, s:{s:o, s:o, "
			  "s:o, s:o}, s:{s:i, s:I, s:i, s:i}, s:{s:b, s:b}}",
			"name", host, "status", use->cpus >= m->cpus ? "busy" : "idle", "capacity",
			"cpus", m->cpus, "memory", (json_int_t)m->memory, "gpus", m->gpus, "used",
			"cpus", use->cpus, "memory", (json_int_t)use->memory, "gpus", use->gpus,
			"runs", use->runs, "waiting", use->waiting, "limits", "cpus",
			limit_or_null(limits->cpus), "memory", limit_or_null(limits->memory),
			"gpus", limit_or_null(limits->gpus), "runs", limit_or_null(limits->runs),
			"own", "cpus", use->own_cpus, "memory", (json_int_t)use->own_memory, "gpus",
			use->own_gpus, "runs", use->own_runs, "enforced", "memory", memory, "cpus",
			cpus));
	return show_json(array);
}

static void add_row(struct grid *grid, const char *what, const char *used, const char *there,
	const char *own, const char *limit, const char *held)
{
	grid_add(grid, what);
	grid_add(grid, used);
	grid_add(grid, there);
	grid_add(grid, own);
	grid_add(grid, limit);
	grid_add(grid, held);
}

static void add_count(struct grid *grid, const char *what, int used, int there, int own,
	int64_t limit, const char *held)
{
	char texts[4][24];

	snprintf(texts[0], sizeof(texts[0]), "%d", used);
	snprintf(texts[1], sizeof(texts[1]), "%d", there);
	snprintf(texts[2], sizeof(texts[2]), "%d", own);
	snprintf(texts[3], sizeof(texts[3]), "%" PRId64, limit);
	add_row(grid, what, texts[0], there < 0 ? NULL : texts[1], texts[2],
		limit < 0 ? NULL : texts[3], held);
}

static void print_table(const char *host, const struct machine_capacity *m, const struct use *use,
	const struct claim_limits *limits)
{
	struct grid grid = GRID_INIT(6);
	char used[STR_SIZE_SIZE], there[STR_SIZE_SIZE], own[STR_SIZE_SIZE], limit[STR_SIZE_SIZE];
	bool memory, cpus;

	find_held(&memory, &cpus);
	str_format_size(use->memory, used);
	str_format_size(m->memory, there);
	str_format_size(use->own_memory, own);
	str_format_size(limits->memory < 0 ? 0 : (uint64_t)limits->memory, limit);
	printf("%s: %d run%s, %d waiting\n", host, use->runs, use->runs == 1 ? "" : "s",
		use->waiting);
	add_row(&grid, "WHAT", "CLAIMED", "THERE", "YOURS", "YOUR LIMIT", "HELD BY");
	add_count(&grid, "CPUs", use->cpus, m->cpus, use->own_cpus, limits->cpus,
		cpus ? "control group" : "affinity");
	add_row(&grid, "memory", used, there, own, limits->memory < 0 ? NULL : limit,
		memory ? "control group" : "looking at it");
	add_count(&grid, "GPUs", use->gpus, m->gpus, use->own_gpus, limits->gpus,
		"CUDA_VISIBLE_DEVICES");
	add_count(&grid, "runs", use->runs, -1, use->own_runs, limits->runs, "waiting");
	grid_print(&grid);
	grid_release(&grid);
}

static int run_runners(const struct cli *cli)
{
	struct machine_capacity *machine = calloc(1, sizeof(*machine));
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claim_limits limits;
	struct use use = {0};
	char host[256] = "";
	int r = machine ? user_limits_read(&limits, &err) : error_memory(&err);

	if (r == 0)
		r = claims_list(add_holder, &use, &err);
	if (r == 0) {
		machine_capacity(machine);
		gethostname(host, sizeof(host) - 1);
		if (cli_has(cli, "json"))
			r = print_json(host, machine, &use, &limits);
		else
			print_table(host, machine, &use, &limits);
	}
	free(machine);
	if (r == -(int)PENSTOCK_E_INVALID) {
		cli_fail(cli, &err);
		return CLI_EXIT_CONFIG;
	}
	return r < 0 ? cli_fail(cli, &err) : r;
}

static const struct option_spec options[] = {
	{0, "json", NULL, "A list of objects, for programs"},
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock runners", "What this machine has, what is claimed of it, and your limits"},
	{"penstock ps --claims", "Who has claimed it"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"78", "A configuration file is wrong"},
	{NULL, NULL},
};

const struct command command_runners = {
	.name = "runners",
	.summary = "show what this machine can run, and what of it is in use",
	.description =
		"Shows the CPUs, memory and GPUs of this machine, how much of them the runs of all "
		"users have claimed, how much yours have, and your limits.\n\n"
		"Limits stand in /etc/penstock/config.yaml, where the administrator sets them, and "
		"in "
		"~/.config/penstock/config.yaml, where you may set lower ones: 'limits: {ann: "
		"{cpus: 8, "
		"memory: 32GiB, gpus: 1, runs: 2}}', with '*' for whoever is not named. A run that "
		"would "
		"exceed them waits until others of yours have ended; one that never fits is "
		"refused.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_runners,
};
