#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/cluster/cluster.h"
#include "cli/commands.h"
#include "cli/print/util.h"
#include "records/claims.h"
#include "run/process/cgroups.h"
#include "run/config/user_limits.h"

struct amounts {
	int cpus, gpus, runs;
	uint64_t memory;
};

/* Claims of one user. */
struct user_use {
	uid_t uid;
	struct amounts used, waiting;
	struct claim_limits limits;
};

/* Resources on this machine: claimed by all users, claimed by this user, and requested by waiting
 * runs. */
struct use {
	struct amounts all, own, waiting;
	struct user_use *users; /* users with claims; owned */
	size_t n_users;
};

static void add_amounts(struct amounts *sum, const struct claim_holder *h)
{
	sum->cpus += h->cpus;
	sum->gpus += h->gpus;
	sum->memory += h->memory;
	sum->runs++;
}

/* Returns the entry of the user, which is added if it is missing; NULL if out of memory. */
static struct user_use *find_user(struct use *use, uid_t uid)
{
	struct user_use *grown;

	for (size_t i = 0; i < use->n_users; i++) {
		if (use->users[i].uid == uid)
			return &use->users[i];
	}
	grown = array_grow(use->users, use->n_users, sizeof(*grown));
	if (!grown)
		return NULL;
	use->users = grown;
	grown[use->n_users] = (struct user_use){.uid = uid, .limits = CLAIM_NO_LIMITS};
	return &grown[use->n_users++];
}

static int add_holder(void *cookie, const struct claim_holder *h)
{
	struct use *use = cookie;
	struct user_use *user = find_user(use, h->uid);

	if (user)
		add_amounts(h->waiting ? &user->waiting : &user->used, h);

	add_amounts(h->waiting ? &use->waiting : &use->all, h);
	if (!h->waiting && h->uid == geteuid())
		add_amounts(&use->own, h);
	return 0;
}

/* Resources whose limits the kernel enforces. */
struct held {
	bool memory, cpus, processes, gpus;
};

static void find_held(struct held *held)
{
	_cleanup_(buf_release) struct buf places = BUF_INIT(64 * KIB);

	cgroup_place(&places);
	held->memory = strstr(buf_str(&places), " memory") != NULL;
	held->cpus = strstr(buf_str(&places), " cpus") != NULL;
	held->processes = strstr(buf_str(&places), " pids") != NULL;
	held->gpus = cgroup_can_hold_devices();
}

static json_t *json_amounts(const struct amounts *amounts)
{
	return json_pack("{s:i, s:I, s:i, s:i}", "cpus", amounts->cpus, "memory",
		(json_int_t)amounts->memory, "gpus", amounts->gpus, "runs", amounts->runs);
}

static json_t *limit_or_null(int64_t limit)
{
	return limit < 0 ? json_null() : json_integer(limit);
}

static json_t *json_limits(const struct claim_limits *limits)
{
	return json_pack("{s:o, s:o, s:o, s:o}", "cpus", limit_or_null(limits->cpus), "memory",
		limit_or_null(limits->memory), "gpus", limit_or_null(limits->gpus), "runs",
		limit_or_null(limits->runs));
}

static json_t *json_users(const struct use *use)
{
	json_t *array = json_array();

	for (size_t i = 0; i < use->n_users; i++) {
		const struct user_use *user = &use->users[i];
		_cleanup_free_ char *name = claim_user_name(user->uid);

		json_array_append_new(array,
			json_pack("{s:o, s:o, s:o, s:o}", "user", json_text(name), "used",
				json_amounts(&user->used), "asked", json_amounts(&user->waiting),
				"limits", json_limits(&user->limits)));
	}
	return array;
}

static int print_json(const char *host, const struct machine_capacity *m, const struct use *use,
	const struct claim_limits *limits)
{
	json_t *array = json_array();
	struct held held;

	find_held(&held);
	json_array_append_new(
		array, json_pack("{s:s, s:s, s:{s:i, s:I, s:i}, s:o, s:i, s:o, s:o, s:o, s:o, "
				 "s:{s:b, s:b, s:b, s:b}}",
			       "name", host, "status", use->all.runs ? "busy" : "idle", "capacity",
			       "cpus", m->cpus, "memory", (json_int_t)m->memory, "gpus", m->gpus,
			       "used", json_amounts(&use->all), "waiting", use->waiting.runs,
			       "asked", json_amounts(&use->waiting), "limits", json_limits(limits),
			       "own", json_amounts(&use->own), "users", json_users(use), "enforced",
			       "memory", held.memory, "cpus", held.cpus, "processes",
			       held.processes, "gpus", held.gpus));
	return show_json(array);
}

/* A row of the table; a number is -1 if there is no value or no limit. */
struct row {
	const char *what;
	int64_t claimed, waiting, there, own, limit;
	const char *held_by;
	bool bytes;
};

static void add_cell(struct grid *grid, int64_t n, bool bytes)
{
	char text[24];

	if (bytes && n >= 0)
		str_format_size((uint64_t)n, text);
	else
		snprintf(text, sizeof(text), "%" PRId64, n);
	grid_add(grid, n < 0 ? NULL : text);
}

/* Prints the claims of each user if any other user has claims. */
static void print_users(const struct use *use)
{
	struct grid grid;

	if (!use->n_users || (use->n_users == 1 && use->users[0].uid == geteuid()))
		return;
	grid = grid_new(
		"USER", "CPUS", "LIMIT", "MEMORY", "LIMIT", "GPUS", "LIMIT", "RUNS", "LIMIT");
	for (size_t i = 0; i < use->n_users; i++) {
		const struct user_use *user = &use->users[i];
		_cleanup_free_ char *name = claim_user_name(user->uid);

		grid_add(&grid, name);
		add_cell(&grid, user->used.cpus, false);
		add_cell(&grid, user->limits.cpus, false);
		add_cell(&grid, (int64_t)user->used.memory, true);
		add_cell(&grid, user->limits.memory, true);
		add_cell(&grid, user->used.gpus, false);
		add_cell(&grid, user->limits.gpus, false);
		add_cell(&grid, user->used.runs, false);
		add_cell(&grid, user->limits.runs, false);
	}
	putchar('\n');
	grid_print(&grid);
}

static void print_table(const char *host, const struct machine_capacity *m, const struct use *use,
	const struct claim_limits *limits)
{
	struct grid grid = grid_new(
		"WHAT", "CLAIMED", "WAITED FOR", "CAPACITY", "YOURS", "YOUR LIMIT", "HELD BY");
	struct held held;

	find_held(&held);
	const struct row rows[] = {
		{"CPUs", use->all.cpus, use->waiting.cpus, m->cpus, use->own.cpus, limits->cpus,
			held.cpus ? "control group" : "affinity", false},
		{"memory", (int64_t)use->all.memory, (int64_t)use->waiting.memory,
			(int64_t)m->memory, (int64_t)use->own.memory, limits->memory,
			held.memory ? "control group" : "polling", true},
		{"GPUs", use->all.gpus, use->waiting.gpus, m->gpus, use->own.gpus, limits->gpus,
			held.gpus ? "control group" : "CUDA_VISIBLE_DEVICES", false},
		{"runs", use->all.runs, use->waiting.runs, -1, use->own.runs, limits->runs, NULL,
			false},
	};

	printf("%s: %d run%s, %d waiting\n", host, use->all.runs, use->all.runs == 1 ? "" : "s",
		use->waiting.runs);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];

		grid_add(&grid, row->what);
		add_cell(&grid, row->claimed, row->bytes);
		add_cell(&grid, row->waiting, row->bytes);
		add_cell(&grid, row->there, row->bytes);
		add_cell(&grid, row->own, row->bytes);
		add_cell(&grid, row->limit, row->bytes);
		grid_add(&grid, row->held_by);
	}
	grid_print(&grid);
	print_users(use);
}

static int show_machine(const struct cli *cli)
{
	_cleanup_free_ struct machine_capacity *machine = calloc(1, sizeof(*machine));
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct claim_limits limits;
	struct use use = {0};
	char host[256] = "";
	int r = machine ? user_limits_read(&limits, &err) : error_memory(&err);

	if (r == 0)
		r = claims_list(add_holder, &use, &err);
	for (size_t i = 0; r == 0 && i < use.n_users; i++)
		r = user_limits_of(use.users[i].uid, &use.users[i].limits, &err);
	if (r == 0) {
		machine_capacity(machine);
		gethostname(host, sizeof(host) - 1);
		if (cli_has(cli, "json"))
			r = print_json(host, machine, &use, &limits);
		else
			print_table(host, machine, &use, &limits);
	}
	free(use.users);
	return r < 0 ? cli_fail_as(cli, &err, CLI_EXIT_CONFIG) : r;
}

static int run_runners(const struct cli *cli)
{
	_cleanup_(cluster_release) struct cluster cluster = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r = cluster_where(&cluster, cli, &err);

	if (r < 0)
		return cli_fail_as(cli, &err, CLI_EXIT_CONFIG);
	if (!cluster.slurm)
		return show_machine(cli);
	r = cluster_show_nodes(cli_has(cli, "json"), &err);
	return r < 0 ? cli_fail(cli, &err) : r;
}

const struct command command_runners = {
	.name = "runners",
	.summary = "show the resources of this machine and their users",
	.description =
		"Shows the CPUs, memory and GPUs of this machine, the amounts that the runs of all "
		"users have claimed and that waiting runs request, your own claims and limits, and "
		"how steps are kept within their claims.\n\n"
		"Limits are set by the administrator in /etc/penstock/config.yaml; you may set "
		"lower ones in ~/.config/penstock/config.yaml: 'limits: {ann: {cpus: 8, memory: "
		"32GiB, gpus: 1, runs: 2}}', with '*' for all other users. A run that would exceed "
		"a limit waits, in order, until other runs of yours have ended; a run that can "
		"never fit is refused.",
	.options = OPTIONS({0, "json", NULL, "Print a list of JSON objects"}, CLUSTER_WHERE),
	.examples = EXAMPLES(
		{"penstock runners",
			"The resources of this machine, the claims on them, and your limits"},
		{"penstock ps --claims", "The runs that hold the claims"},
		{"penstock runners --on slurm", "The nodes of the cluster"}),
	.exits = EXITS({"78", "A configuration file is invalid"}),
	.run = run_runners,
};
