/* `penstock prune`: removes old copies, caches and logs. */
#include "cli/prune/prune.h"

#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "transfer/location.h"

#define DAY_MS	 (24 * INT64_C(3600000))
#define OLDER_MS (30 * DAY_MS) /* default of --older-than */

static const struct {
	const char *name;
	int (*fn)(struct pruning *p, struct penstock_error *err);
} kinds[] = {
	{"replaced", prune_replaced},
	{"output", prune_output},
	{"logs", prune_logs},
	{"venvs", prune_venvs},
	{"images", prune_images},
	{"modules", prune_modules},
	{"models", prune_models},
	{"transfers", prune_transfers},
};

/* If there are no operands, prunes all kinds of things, or the kinds of --only. */
static int prune_home(struct pruning *p, struct penstock_error *err)
{
	const struct strlist *only = cli_values(p->cli, "only");
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(kinds); i++) {
		bool wanted = !only->n;

		for (size_t k = 0; k < only->n; k++)
			wanted |= strcmp(only->items[k], kinds[i].name) == 0;
		if (wanted)
			r = kinds[i].fn(p, err);
	}
	return r;
}

static int prune_address(struct pruning *p, size_t i, struct penstock_error *err)
{
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_(location_release) struct location at = {0};
	_cleanup_free_ char *prefix = NULL;
	int r = remote_open_at(&remote, p->cli, i, false, &at, err);

	if (r < 0)
		return r;
	prefix = location_prefix(at.key);
	if (!prefix)
		return error_memory(err);
	return prune_replaced_at(p,
		&(struct copies_place){.client = remote.client,
			.bucket = at.bucket,
			.prefix = prefix,
			.scheme = object_client_scheme(remote.client)},
		err);
}

static int prune_operand(struct pruning *p, size_t i, struct penstock_error *err)
{
	_cleanup_(records_run_release) struct records_run run = {0};
	int r;

	if (location_is_object(cli_operand(p->cli, i)))
		return prune_address(p, i, err);
	r = records_find(p->records, cli_operand(p->cli, i), &run, err);
	return r < 0 ? r : prune_replaced_of(p, run.id, err);
}

static int run_prune(const struct cli *cli)
{
	_cleanup_(records_freep) struct records *records = NULL;
	_cleanup_free_ char *home = NULL;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct pruning p = {.cli = cli,
		.dry_run = cli_has(cli, "dry-run"),
		.force = cli_has(cli, "force"),
		.has_age = cli_has(cli, "older-than")};
	int64_t older_ms;
	int r;

	if (!cli_duration_ms(cli, "older-than", OLDER_MS, &older_ms) ||
		!cli_number(cli, "keep", 0, INT32_MAX, -1, &p.keep))
		return CLI_EXIT_USAGE;
	if (cli_n_operands(cli) && cli_has(cli, "only"))
		return cli_misuse(cli, "--only is for this machine; of a RUN or a place in a "
				       "store only copies of replaced objects are removed");
	p.before_ns = clock_wall_ns() - older_ms * NS_PER_MS;
	r = show_open(&records, &home, &err);
	if (r < 0)
		return cli_fail(cli, &err);
	p.home = home;
	p.records = records;
	p.grid = grid_new("KIND", "SIZE", "USED", "STATE", "WHAT");
	p.grid.whole = true;
	p.items = cli_has(cli, "json") ? json_array() : NULL;
	if (!cli_n_operands(cli))
		r = prune_home(&p, &err);
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = prune_operand(&p, i, &err);
	if (r == 0)
		return prune_print(&p);
	/* Things that were removed before the failure are reported. */
	prune_print(&p);
	return remote_fail(cli, &err);
}

const struct command command_prune = {
	.name = "prune",
	.summary = "remove old copies, caches and logs",
	.operands = "[RUN|s3://PLACE...]",
	.min_operands = 0,
	.max_operands = (unsigned)-1,
	.description =
		"Removes things that runs and transfers have left and that none of them uses, and "
		"prints each thing with its size and a sum. The kinds of things are:\n\n"
		"replaced: copies of objects that runs kept before they overwrote them, beyond "
		"`replaced` of the workflow, in the stores of the outputs;\n\n"
		"output: output.before-N, files not uploaded when a run started over;\n\n"
		"logs: logs of attempts before the last one;\n\n"
		"venvs, images, modules: Python environments, container images and fetched "
		"modules, which the next run makes again;\n\n"
		"models: versions that 'penstock deploy' has fetched, except those in service;\n\n"
		"transfers: records of interrupted transfers, and files that a browser has sent in "
		"part.\n\n"
		"Things that were used within 30 days stay (--older-than), except copies, which "
		"have limits of their own. A thing that may be the only copy is listed as such, "
		"and stays without --force: output that was not uploaded, logs that are not in a "
		"store, copies of objects that no run published.\n\n"
		"With a RUN, or the place of an output (of a run of another machine), only its "
		"copies of replaced objects are removed. 'penstock restore' restores one; "
		"'penstock rm' removes whole runs.",
	.options = OPTIONS({'n', "dry-run", NULL, "Only print the things that would be removed"},
		{0, "only", "replaced|output|logs|venvs|images|modules|models|transfers",
			"Remove only things of this kind; may be repeated"},
		{0, "older-than", "AGE",
			"Remove things that were not used for this long, such as 7d, and copies "
			"that are this old"},
		{0, "keep", "N", "Keep the N newest copies of each replaced object"},
		{0, "force", NULL, "Remove things that may be the only copy, too"},
		{0, "json", NULL, "Print a JSON object with all things and the sums"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock prune --dry-run", "Print the things that can be removed"},
		{"penstock prune --older-than 7d --only venvs --only images",
			"Remove environments and images that no run has used for a week"},
		{"penstock prune --keep 0 cifar10",
			"Remove all copies that the run made of its own earlier output"}),
	.exits = EXITS({"66", "There is no such run or bucket"},
		{"69", "A store does not respond, or something could not be removed"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_prune,
};
