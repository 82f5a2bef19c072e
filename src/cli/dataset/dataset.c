/* `dataset`: the index of a data set, its content and its speed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <penstock/error.h>

#include "cli/commands.h"
#include "cli/dataset/dataset.h"

static int write_index(struct set_operand *in, const char *url, struct penstock_error *err)
{
	int r;

	in->options.fresh = true;
	r = set_open(in, url, err);
	if (r == 0)
		r = dataset_write_index(in->set, in->options.place.cancel, err);
	if (r == 0 && !cli_quiet(in->cli))
		printf("%s: %" PRIu64 " samples in %zu %s\n", dataset_format(in->set),
			dataset_count(in->set), source_count(dataset_source(in->set)),
			source_count(dataset_source(in->set)) == 1 ? "file" : "files");
	return r;
}

static const struct action {
	const char *name;
	int (*run)(struct set_operand *in, const char *url, struct penstock_error *err);
} actions[] = {
	{"index", write_index},
	{"inspect", dataset_inspect},
	{"bench", dataset_bench},
};

static int run_dataset(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct set_operand in = SET_OPERAND_INIT;
	const struct action *action = NULL;
	int r;

	for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++) {
		if (strcmp(actions[i].name, cli_operand(cli, 0)) == 0)
			action = &actions[i];
	}
	if (!action)
		return cli_misuse(
			cli, "'%s' is not one of index, inspect and bench", cli_operand(cli, 0));
	r = set_options(&in, cli, "format");
	if (r)
		return r;
	r = action->run(&in, cli_operand(cli, 1), &err);
	if (r < 0)
		r = set_fail(cli, &err);
	set_release(&in);
	return r;
}

const struct command command_dataset = {
	.name = "dataset",
	.group = "Data sets",
	.summary = "index, inspect and measure a data set",
	.operands = "index URL | inspect URL | bench URL",
	.min_operands = 2,
	.max_operands = 2,
	.description =
		"URL is s3://BUCKET/PREFIX/, gs://BUCKET/PREFIX/ or a directory, with training "
		"samples; for inspect and bench also https://HOST/PATH, which may name several "
		"shards as in 'train-{000..099}.tar'.\n\n"
		"'index' lists the shards, finds their samples, and writes the result next to them "
		"as .penstock-index. From then on penstock.data opens the data set with two "
		"requests, without listing or scanning the shards. Run 'index' again after shards "
		"were added, replaced or removed: otherwise reading a changed shard fails, and new "
		"shards are ignored.\n\n"
		"'inspect' prints the format, the numbers of samples, shards and bytes, the fields "
		"of the first sample, and the state of the index: missing, current, copied (its "
		"shards have other versions, and are verified by their checksums) or out of date; "
		"over HTTP the index is not compared with the shards.\n\n"
		"'bench' reads batches of 256 samples for some seconds in each order of the Loader: "
		"in order, shuffled in windows, and at random. 'bench' also names the bottleneck of each "
		"order: the processor if 'bench' keeps it busy, the bandwidth if larger reads do "
		"not transfer more bytes per second, else the latency of the reads.",
	.options = OPTIONS({0, "format", "FORMAT", "Format of the shards; default: detected"},
		{0, "seconds", "DURATION", "bench: time of each order; default: 3s"},
		{0, "json", NULL, "inspect, bench: print JSON"}, SET_OPTIONS, REMOTE_OPTIONS),
	.examples = EXAMPLES(
		{"penstock dataset index s3://cifar10/train/", "Write the index of a data set"},
		{"penstock dataset index tokens/ --format tokens --window 2049 --stride 2048",
			"Give the settings of the format, which the index keeps"},
		{"penstock dataset inspect s3://cifar10/train/ --json",
			"Print the content of a data set as JSON"},
		{"penstock dataset bench s3://cifar10/train/ --seconds 5s",
			"Measure the rate at which samples are read"}),
	.exits = EXITS(SET_EXITS("The store does not respond")),
	.run = run_dataset,
};
