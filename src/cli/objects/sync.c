/* `sync`: makes one tree equal to another. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/objects/copying.h"

static int run_sync(const struct cli *cli)
{
	static const char *const rules[] = {"size-only", "exact-timestamps", "checksum", NULL};
	_cleanup_(place_release) struct place source = {0}, target = {0};
	struct copying v = COPYING_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const struct copy_sync sync = {.source = &source,
		.target = &target,
		.remove = cli_has(cli, "delete"),
		.size_only = cli_has(cli, "size-only"),
		.exact_times = cli_has(cli, "exact-timestamps"),
		.checksum = cli_has(cli, "checksum")};
	int r = cli_refuse_together(cli, rules);

	if (r == 0)
		r = copying_options(&v, cli);
	if (r)
		return r;
	r = place_parse(&source, cli_operand(cli, 0), true, &err);
	if (r == 0)
		r = place_parse(&target, cli_operand(cli, 1), true, &err);
	if (r == 0)
		r = copy_sync_check(&sync, &err);
	if (r == 0)
		r = copying_open(&v, &source, &target, &err);
	if (r == 0)
		r = copy_sync_check_overlap(&v.copy, &sync, &err);
	if (r < 0)
		return copying_refuse(&v, &err);
	r = copy_sync_trees(&v.copy, &sync, &err);
	if (v.copy.undeleted)
		log_warn("nothing was deleted, because not everything was transferred; %llu %s at "
			 "the target only",
			(unsigned long long)v.copy.undeleted,
			v.copy.undeleted == 1 ? "name is" : "names are");
	copying_warn_spared(&v, "deletes");
	return copying_end(&v, r, &err);
}

const struct command command_sync = {
	.name = "sync",
	.summary = "make a directory or prefix like another",
	.operands = "SOURCE TARGET",
	.min_operands = 2,
	.max_operands = 2,
	.description =
		"Copies the items below SOURCE to TARGET, under the same names. Each is a local "
		"directory or s3://BUCKET[/PREFIX]; a '/' at the end makes no difference. An item "
		"is copied if the target lacks it, or has it with another size or an earlier "
		"time. An uploaded object has the time of its arrival in the store, and a "
		"downloaded file gets the time of its object, so the next sync finds nothing to "
		"do.\n"
		"\n"
		"With --delete items that only the target has are deleted at the end, if "
		"everything else succeeded. Items that --include and --exclude leave out stay, "
		"and without --force the state of runs below .penstock/.",
	.options = OPTIONS(
		{0, "delete", NULL, "Delete items that only the target has, if all else succeeded"},
		{0, "size-only", NULL, "Compare sizes only"},
		{0, "exact-timestamps", NULL,
			"Copy items whose time differs, even if they are older; meant for "
			"downloads, because an uploaded object never has the time of its file"},
		{0, "checksum", NULL,
			"Compare contents: read each file that has the size of its object"},
		COPY_OPTIONS),
	.examples = EXAMPLES(
		{"penstock sync data/ s3://data/train/", "Upload new and changed files"},
		{"penstock sync --delete s3://data/train data", "Make a directory like a prefix"},
		{"penstock sync -n s3://old/x s3://new/x",
			"List the objects that another bucket lacks"}),
	.exits = EXITS(COPY_EXITS),
	.run = run_sync,
};
