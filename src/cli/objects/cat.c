#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "copy/copy.h"

struct reading {
	struct object_get_options options;
	const char *version; /* NULL for the current version */
};

static int cat_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct reading *reading = cookie;
	struct object_ref object = object_at(remote->client, at->bucket, at->key);

	object.version = reading->version;
	reading->options.cancel = remote->cancel;
	return object_get_stream(
		       object, &reading->options, copy_to_stdout, &remote->cancel, NULL, err) < 0
		       ? copy_explain_missing(object, at->text, err)
		       : 0;
}

static int run_cat(const struct cli *cli)
{
	struct reading reading = {0};
	int64_t offset, length;
	int code = remote_version(cli, &reading.version);

	if (code)
		return code;
	if (!cli_number(cli, "offset", 0, INT64_MAX, 0, &offset) ||
		!cli_number(cli, "length", 1, INT64_MAX, 0, &length))
		return CLI_EXIT_USAGE;
	reading.options.offset = (uint64_t)offset;
	reading.options.length = (uint64_t)length;
	return remote_operands(cli, true, false, cat_operand, &reading);
}

const struct command command_cat = {
	.name = "cat",
	.summary = "write objects to standard output",
	.operands = "s3://BUCKET/KEY...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Writes objects one after the other to standard output, fetching parts ahead in "
		"parallel. The store's checksum is verified at the end, after the bytes were "
		"written, so check the exit code. If an object is replaced meanwhile, cat fails "
		"instead of mixing both.",
	.options = OPTIONS({0, "offset", "N", "Begin at byte N"},
		{0, "length", "N", "Write at most N bytes"},
		{0, "version-id", "ID", "Write this version, in place of the current one"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock cat s3://cifar10/log.txt", "Print an object"},
		{"penstock cat s3://data/train.tar.gz | tar tz",
			"List an archive without storing it"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_cat,
};
