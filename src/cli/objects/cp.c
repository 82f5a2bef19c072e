/* `cp` and `mv`: copy and move files and objects. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/copying.h"

struct operands {
	struct place *sources;
	size_t n;
	struct place target;
};

static void operands_release(struct operands *o)
{
	for (size_t i = 0; o->sources && i < o->n; i++)
		place_release(&o->sources[i]);
	free(o->sources);
	place_release(&o->target);
}

static int parse_operands(struct operands *o, struct copying *v, struct penstock_error *err)
{
	bool raw = cli_has(v->cli, "raw");
	int r;

	o->n = cli_n_operands(v->cli) - 1;
	o->sources = calloc(o->n, sizeof(*o->sources));
	if (!o->sources)
		return error_memory(err);
	r = place_parse(&o->target, cli_operand(v->cli, o->n), true, err);
	for (size_t i = 0; r == 0 && i < o->n; i++)
		r = place_parse(&o->sources[i], cli_operand(v->cli, i), raw, err);
	if (r < 0 || o->target.kind != LOCATION_STDIO || v->options.dry_run)
		return r;
	if (v->report.json)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use --json with '-': standard output is the content of the "
			"object");
	v->report.to_stderr = true;
	return 0;
}

/* Returns the first source in a store, which decides the store to open; NULL if there is none. */
static const struct place *first_object(const struct operands *o)
{
	for (size_t i = 0; i < o->n; i++) {
		if (place_is_object(&o->sources[i]))
			return &o->sources[i];
	}
	return NULL;
}

static int run(const struct cli *cli)
{
	static const char *const over[] = {"no-clobber", "if-none-match", NULL};
	_cleanup_(operands_release) struct operands operands = {0};
	bool move = strcmp(cli_verb(cli), "mv") == 0;
	struct copying v = COPYING_INIT;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct copy_request request = {
		.target = &operands.target, .recursive = cli_has(cli, "recursive")};
	int r = cli_refuse_together(cli, over);

	if (r == 0)
		r = copying_options(&v, cli);
	if (r)
		return r;
	v.options.move = move;
	v.options.no_clobber = cli_has(cli, "no-clobber");
	r = parse_operands(&operands, &v, &err);
	request.sources = operands.sources;
	request.n = operands.n;
	if (r == 0)
		r = copy_check(&request, move, &err);
	if (r == 0)
		r = copying_open(&v, first_object(&operands), &operands.target, &err);
	if (r == 0)
		r = copy_check_overlap(&v.copy, &request, &err);
	if (r < 0)
		return copying_refuse(&v, &err);
	r = copy_sources(&v.copy, &request, &err);
	if (r == 0)
		r = copy_finish(&v.copy, &err);
	copying_warn_spared(&v, "moves");
	return copying_end(&v, r, &err);
}

/* clang-format off */
static const struct option_spec options[] = {
	{'r', "recursive", NULL, "Copy everything below a source; see above for the names"},
	{0, "no-clobber", NULL, "Skip targets that exist"},
	{0, "raw", NULL,
		"Take '*' and '?' in sources as ordinary characters, and without --recursive a '/' "
		"at the end of a key"},
	COPY_OPTIONS, {0}};
/* clang-format on */

#define NAMES                                                                                      \
	"If TARGET ends in '/', is a bucket or a local directory, or if there are several "        \
	"sources, items are put below it under their names; otherwise TARGET is the new "          \
	"name.\n\n"                                                                                \
	"In a source '*' matches any characters, including '/', and '?' one; the copy keeps "      \
	"the part of the name after the last '/' before the first wildcard. With --recursive "     \
	"a directory or prefix means everything below it: its content if it ends in '/' (or "      \
	"is a bucket, or '.'), otherwise itself under its name. Patterns of --include and "        \
	"--exclude are matched against the names below the source.\n\n"

const struct command command_cp = {
	.name = "cp",
	.group = "Files and objects",
	.summary = "copy files and objects",
	.operands = "SOURCE... TARGET",
	.min_operands = 2,
	.max_operands = UINT_MAX,
	.description =
		"Copies many items at a time, each completely or not at all, and verified.\n"
		"\n"
		"A source is s3://BUCKET/KEY, gs://BUCKET/KEY, http(s)://..., a file, or '-' for "
		"standard input. TARGET is one of these; '-' is standard output, and a web server "
		"gets a PUT. " NAMES "Existing targets are overwritten, unless --no-clobber or "
		"--if-none-match is given.",
	.options = options,
	.examples = EXAMPLES({"penstock cp model.pth s3://models/", "Upload a file under its name"},
		{"penstock cp 's3://data/train/*.tar' shards/", "Download the objects that match"},
		{"penstock cp -r runs/ s3://models/runs/", "Upload the content of a directory"},
		{"penstock cp s3://old/big.tar s3://new/ --source-profile lab",
			"Copy between two stores, through this machine"},
		{"tar c . | penstock cp - s3://data/all.tar", "Store the output of a program"}),
	.exits = EXITS(COPY_EXITS),
	.run = run,
};

const struct command command_mv = {
	.name = "mv",
	.summary = "move files and objects",
	.operands = "SOURCE... TARGET",
	.min_operands = 2,
	.max_operands = UINT_MAX,
	.description =
		"Copies like 'penstock cp', and removes each source when its copy is complete and "
		"verified. The state of runs below .penstock/ stays without --force.\n"
		"\n"
		"A source is s3://BUCKET/KEY, gs://BUCKET/KEY or a file, and so is TARGET; at "
		"least one of the two is an object. " NAMES
		"Local directories that became empty are removed.",
	.options = options,
	.examples = EXAMPLES({"penstock mv s3://data/new/a.csv s3://data/old/",
				     "Move an object, within the store"},
		{"penstock mv -r results/ s3://models/results/",
			"Upload files and remove them here"}),
	.exits = EXITS(COPY_EXITS),
	.run = run,
};
