/* `sync`: makes a tree like another. */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/objects/copying.h"
#include "base/banned.h"

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
		"Brings what lies below SOURCE below TARGET, under the same names; each is a "
		"local directory or s3://BUCKET[/PREFIX], and a '/' at the end makes no "
		"difference. Sent is what is not there, has another size, or is newer than what "
		"is there; nobody is asked about single objects. An upload's time is that of "
		"the store, and a download gets it, so the next sync finds nothing to do.\n"
		"\n"
		"With --delete what is only at the target is deleted, at the end, and only if "
		"everything else succeeded; what --include and --exclude leave out stays, and "
		"so does what runs keep below .penstock/, but for --force.",
	.options = OPTIONS(
		{0, "delete", NULL, "Deletes what is at the target only, once all else succeeded"},
		{0, "size-only", NULL, "What has the same size is the same"},
		{0, "exact-timestamps", NULL, "What has another time is another, older ones too"},
		{0, "checksum", NULL, "The content decides; reads all files of the same size"},
		COPY_OPTIONS),
	.examples = EXAMPLES(
		{"penstock sync data/ s3://data/train/", "Uploads what is new or has changed"},
		{"penstock sync --delete s3://data/train data", "Makes a directory like a prefix"},
		{"penstock sync -n s3://old/x s3://new/x",
			"Says what is missing in another bucket"}),
	.exits = EXITS(COPY_EXITS),
	.run = run_sync,
};
