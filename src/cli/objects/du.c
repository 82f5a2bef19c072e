#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "records/layout.h"
#include "sync/replaced.h"

struct sum {
	const struct cli *cli;
	uint64_t objects;
	uint64_t bytes;
	uint64_t replaced, replaced_bytes; /* part of these sums: copies of replaced objects */
};

/* Returns true for ".penstock/runs/ID/replaced/…", at the beginning or after a slash. */
static bool is_replaced(const char *key)
{
	const char *at = key;

	while ((at = strstr(at, RUN_STATE_ROOT))) {
		const char *id = at + strlen(RUN_STATE_ROOT);

		if ((at == key || at[-1] == '/') &&
			str_starts(id + strcspn(id, "/"), "/" REPLACED_DIR))
			return true;
		at = id;
	}
	return false;
}

static int add(void *cookie, const struct object_info *info)
{
	struct sum *sum = cookie;

	sum->objects++;
	sum->bytes += info->size;
	if (is_replaced(info->key)) {
		sum->replaced++;
		sum->replaced_bytes += info->size;
	}
	return 0;
}

static int sum_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct sum *sum = cookie;
	char size[REMOTE_SIZE_SIZE];
	int r;

	*sum = (struct sum){.cli = sum->cli};
	r = remote_each(remote, at, add, sum, err);
	if (r < 0)
		return r;
	if (remote->json) {
		json_stream_add(remote->json,
			json_pack("{s:o, s:I, s:I, s:{s:I, s:I}}", "url", json_text(at->text),
				"objects", (json_int_t)sum->objects, "bytes",
				(json_int_t)sum->bytes, "replaced", "objects",
				(json_int_t)sum->replaced, "bytes",
				(json_int_t)sum->replaced_bytes));
		return 0;
	}
	remote_size(sum->cli, sum->bytes, size);
	printf("%14s %12" PRIu64 " object%s  %s\n", size, sum->objects,
		sum->objects == 1 ? " " : "s", at->text);
	if (sum->replaced) {
		remote_size(sum->cli, sum->replaced_bytes, size);
		printf("%14s %12" PRIu64 " object%s    of these are copies of replaced objects\n",
			size, sum->replaced, sum->replaced == 1 ? " " : "s");
	}
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
		"'*' and '?'. Copies of objects that runs have replaced (`replaced` in the "
		"workflow) are in these sums, and in a line of their own.",
	.options = OPTIONS({'H', "human", NULL, "Print sizes with units"},
		{0, "json", NULL,
			"Print a list of JSON objects with url, objects, bytes, and replaced (objects "
			"and bytes of the copies)"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock du -H s3://cifar10/", "The size of a bucket"},
		{"penstock du 's3://cifar10/runs/*.pth'", "The size of all checkpoints"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_du,
};
