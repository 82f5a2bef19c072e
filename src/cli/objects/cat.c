#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "copy/copy.h"
#include "base/banned.h"

static int cat_operand(struct remote *remote, const char *text,
	const struct object_get_options *options, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	int r = remote_location(text, true, &at, err);

	if (r == 0)
		r = remote_fits(remote, &at, err);
	if (r == 0)
		r = object_get_stream(object_at(remote->client, at.bucket, at.key), options,
			copy_to_stdout, &remote->cancel, NULL, err);
	return r < 0 && at.text ? remote_missing(remote, &at, err) : r;
}

static int run_cat(const struct cli *cli)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct object_get_options options = {0};
	int64_t offset, length;
	int r;

	if (!cli_number(cli, "offset", 0, INT64_MAX, 0, &offset) ||
		!cli_number(cli, "length", 1, INT64_MAX, 0, &length))
		return CLI_EXIT_USAGE;
	options.offset = (uint64_t)offset;
	options.length = (uint64_t)length;
	r = remote_open(&remote, cli, &err);
	options.cancel = remote.cancel;
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = cat_operand(&remote, cli_operand(cli, i), &options, &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_cat = {
	.name = "cat",
	.summary = "write objects to standard output",
	.operands = "s3://BUCKET/KEY...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Writes objects one after the other to standard output. Pieces are fetched "
		"ahead in parallel. The store's checksum is verified at the end: a failure "
		"comes after the bytes, so look at the exit code. An object that is replaced "
		"meanwhile is an error, never a mixture.",
	.options = OPTIONS({0, "offset", "N", "Begin at this byte"},
		{0, "length", "N", "At most so many bytes"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock cat s3://cifar10/log.txt", "Prints an object"},
		{"penstock cat s3://data/train.tar.gz | tar tz",
			"Looks into an archive on its way"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_cat,
};
