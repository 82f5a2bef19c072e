#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/runs/enter.h"
#include "cli/runs/exec.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "run/process/live.h"
#include "base/banned.h"

enum {
	/* if a step starts for longer than this, its supervisor was killed */
	START_PATIENCE_MS = 10000,
	START_POLL_MS = 2,
};

/* The requested step, and the other steps that are live. */
struct choice {
	const char *wanted; /* its name; NULL for the only one */
	struct live_step step;
	bool found;
	bool several;
	bool starting; /* a matching step has no recorded tasks yet */
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

/* Without a name, chooses the step that started last, if it is the only one. */
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
	/* The output of a step may be visible before its tasks are recorded: wait for them. */
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
			"run %s has no live step '%s'; it is running %s", run->id, c->wanted,
			buf_str(&c->names));
	if (c->several)
		return error_set(err, PENSTOCK_E_INVALID,
			"run %s has several live steps: %s; choose one with --step", run->id,
			buf_str(&c->names));
	return error_set(
		err, PENSTOCK_E_NOT_FOUND, "run %s has no live step; see 'penstock ps'", run->id);
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
			"'%s' has %zu task%s; the rank must be from 0 to %zu", choice.step.name,
			choice.step.n, choice.step.n == 1 ? "" : "s", choice.step.n - 1);
	for (size_t i = 1; r == 0 && i < cli_n_operands(cli); i++) {
		if (strlist_add(&words, cli_operand(cli, i)) < 0)
			r = error_memory(&err);
	}
	records_freep(&records);
	if (r == 0 && choice.step.cluster)
		r = exec_on_cluster(&words, home, &run, &choice.step, rank, &err);
	else if (r == 0 && !choice.step.pids[rank])
		r = error_set(&err, PENSTOCK_E_NOT_FOUND, "task %" PRId64 " of '%s' has ended",
			rank, choice.step.name);
	else if (r == 0 && (!choice.step.enter.n || enter_prepare(&err) == 0))
		exec_become(words.items, &choice.step, choice.step.pids[rank], &err);
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
