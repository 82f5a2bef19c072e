#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"

struct sum {
	const struct cli *cli;
	uint64_t objects;
	uint64_t bytes;
};

static int add(void *cookie, const struct object_info *info)
{
	struct sum *sum = cookie;

	sum->objects++;
	sum->bytes += info->size;
	return 0;
}

static int sum_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct sum *sum = cookie;
	char size[REMOTE_SIZE_SIZE];
	int r;

	sum->objects = sum->bytes = 0;
	r = remote_each(remote, at, add, sum, err);
	if (r < 0)
		return r;
	if (remote->json) {
		json_stream_add(remote->json,
			json_pack("{s:o, s:I, s:I}", "url", json_text(at->text), "objects",
				(json_int_t)sum->objects, "bytes", (json_int_t)sum->bytes));
		return 0;
	}
	remote_size(sum->cli, sum->bytes, size);
	printf("%14s %12" PRIu64 " object%s  %s\n", size, sum->objects,
		sum->objects == 1 ? " " : "s", at->text);
	return 0;
}

static int run_du(const struct cli *cli)
{
	struct sum sum = {.cli = cli};

	remote_many_requests();
	return remote_operands(cli, false, cli_has(cli, "json"), sum_operand, &sum);
}

const struct command command_du = {
	.name = "du",
	.summary = "add up the sizes of objects",
	.operands = "s3://BUCKET[/KEY]...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Prints the size and number of the objects of each operand: an object, all "
		"below a prefix that ends in '/', a bucket, or all that match a pattern with "
		"'*' and '?'.",
	.options = OPTIONS({'H', "human", NULL, "Print sizes with units"},
		{0, "json", NULL, "Print a list of objects with url, objects and bytes"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock du -H s3://cifar10/", "The size of a bucket"},
		{"penstock du 's3://cifar10/runs/*.pth'", "The size of all checkpoints"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_du,
};
