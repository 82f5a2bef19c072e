#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "base/banned.h"

struct sum {
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

static int sum_operand(const struct cli *cli, struct remote *remote, const char *text,
	struct json_stream *stream, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	struct sum sum = {0};
	char size[STR_SIZE_SIZE];
	json_t *object;
	int r = remote_location(text, false, &at, err);

	if (r == 0)
		r = remote_fits(remote, &at, err);
	if (r == 0)
		r = remote_each(remote, &at, add, &sum, err);
	if (r < 0)
		return r;
	if (stream) {
		object = json_object();
		json_object_set_new(object, "url", json_text(text));
		json_object_set_new(object, "objects", json_integer((json_int_t)sum.objects));
		json_object_set_new(object, "bytes", json_integer((json_int_t)sum.bytes));
		json_stream_add(stream, object);
	} else if (cli_has(cli, "human")) {
		str_format_size(sum.bytes, size);
		printf("%14s %12" PRIu64 " object%s  %s\n", size, sum.objects,
			sum.objects == 1 ? " " : "s", text);
	} else {
		printf("%14" PRIu64 " %12" PRIu64 " object%s  %s\n", sum.bytes, sum.objects,
			sum.objects == 1 ? " " : "s", text);
	}
	return 0;
}

static int run_du(const struct cli *cli)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct json_stream stream = {0};
	bool json = cli_has(cli, "json");
	int r;

	remote_many_requests();
	r = remote_open(&remote, cli, &err);
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = sum_operand(cli, &remote, cli_operand(cli, i), json ? &stream : NULL, &err);
	if (json && (r == 0 || stream.begun))
		json_stream_end(&stream);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_du = {
	.name = "du",
	.summary = "add up the sizes of objects",
	.operands = "s3://BUCKET[/KEY]...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description = "Prints bytes and number of the objects that each operand means: an object, "
		       "all below a prefix that ends in '/', a bucket, or all that match a pattern "
		       "with '*' and '?'.",
	.options = OPTIONS({'H', "human", NULL, "Sizes with units"},
		{0, "json", NULL, "A list of objects with url, objects and bytes"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock du -H s3://cifar10/", "How much a bucket holds"},
		{"penstock du 's3://cifar10/runs/*.pth'", "How much all checkpoints take"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_du,
};
