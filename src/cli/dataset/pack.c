/* `pack`: writes a data set as shards of another format. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/dataset/set.h"
#include "cli/frame/interrupt.h"
#include "cli/print/progress.h"
#include "cli/print/util.h"
#include "dataset/pack/pack.h"
#include "transfer/location.h"

struct packing {
	struct set_operand in;
	struct remote remote; /* store of the target */
	struct progress *progress;
	struct pack_options options;
	struct pack_target target;
	uint64_t total; /* bytes of all shards of the source */
};

/* --labels folder */
static int read_labels(struct packing *v, const struct cli *cli)
{
	const char *text = cli_value(cli, "labels"), *format = v->options.format;

	if (!text)
		return 0;
	if (strcmp(text, "folder") != 0)
		return cli_misuse(cli, "--labels must be 'folder'");
	if (strcmp(format, "records") == 0 || strcmp(format, "npy") == 0)
		return cli_misuse(cli, "--labels needs --format tar, mds or tfrecord: samples of "
				       "other formats have no fields");
	v->in.options.labels = true;
	return 0;
}

/* --compression zstd[:LEVEL] */
static int read_compression(struct packing *v, const struct cli *cli)
{
	const char *text = cli_value(cli, "compression");
	int64_t level = 3;

	if (!text)
		return 0;
	if (strcmp(v->options.format, "mds") != 0)
		return cli_misuse(cli, "--compression needs --format mds: a sample in a "
				       "compressed shard of another format could not be "
				       "read alone");
	if (strcmp(text, "zstd") != 0 &&
		!(str_starts(text, "zstd:") && str_to_i64(text + 5, 1, 22, &level)))
		return cli_misuse(cli, "--compression must be zstd or zstd:LEVEL, 1 to 22");
	v->options.zstd = (int)level;
	return 0;
}

static int read_options(struct packing *v, const struct cli *cli)
{
	const char *size = cli_value(cli, "shard-size");
	int64_t jobs, seed, cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	v->options.format = cli_value(cli, "format");
	v->options.shuffle = cli_has(cli, "shuffle");
	v->options.force = cli_has(cli, "force");
	v->options.shard_bytes = 64 * MIB;
	if (!v->options.format)
		return cli_misuse(cli, "--format is missing: tar, mds, tfrecord, records or npy");
	if (size && (!str_to_size(size, &v->options.shard_bytes) || v->options.shard_bytes == 0 ||
			    v->options.shard_bytes > GIB))
		return cli_misuse(cli, "--shard-size must be 1 to 1GiB");
	if (!cli_number(cli, "jobs", 1, LIMIT_DATASET_SCANS,
		    cpus < 1   ? 1
		    : cpus > 4 ? 4
			       : cpus,
		    &jobs) ||
		!cli_number(cli, "seed", 0, INT64_MAX, 0, &seed))
		return CLI_EXIT_USAGE;
	if (cli_has(cli, "seed") && !v->options.shuffle)
		return cli_misuse(cli, "--seed needs --shuffle");
	v->options.jobs = (size_t)jobs;
	v->options.seed = (uint64_t)seed;
	r = read_labels(v, cli);
	if (r == 0)
		r = read_compression(v, cli);
	return r ? r : set_options(&v->in, cli, "source-format");
}

/* The store of the target is opened first, because the source may use the same store. */
static int open_target(
	void *cookie, bool google, struct object_client **out, struct penstock_error *err)
{
	struct packing *v = cookie;
	int r = v->remote.client ? 0 : remote_open_scheme(&v->remote, v->in.cli, google, err);

	*out = v->remote.client;
	return r;
}

static int open_stores(struct packing *v, const char *to, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	struct object_client *client;
	int r = location_parse(&at, to, err);

	if (r == 0 && at.kind == LOCATION_OBJECT)
		r = open_target(v, at.google, &client, err);
	else if (r == 0)
		r = remote_open_engine(&v->remote, err);
	v->in.target = &v->remote;
	return r;
}

static void show_progress(void *cookie, uint64_t samples, uint64_t bytes)
{
	struct packing *v = cookie;

	(void)samples;
	progress_update(
		v->progress, v->options.format, bytes < v->total ? bytes : v->total, v->total);
}

static uint64_t bytes_of(const struct dataset *set)
{
	const struct source *source = dataset_source(set);
	uint64_t bytes = 0;

	for (size_t i = 0; i < source_count(source); i++)
		bytes += source_size(source, i);
	return bytes;
}

static int print_result(
	const struct packing *v, const struct pack_result *done, const char *to, int64_t ms)
{
	char size[STR_SIZE_SIZE], time[SHOW_DURATION_SIZE];

	if (cli_has(v->in.cli, "json"))
		return show_json(json_pack("{s:o, s:s, s:I, s:I, s:I, s:f}", "url", json_text(to),
			"format", v->options.format, "samples", (json_int_t)done->samples, "shards",
			(json_int_t)done->shards, "bytes", (json_int_t)done->bytes, "seconds",
			(double)ms / 1000));
	str_format_size(done->bytes, size);
	if (!cli_quiet(v->in.cli))
		printf("%" PRIu64 " samples in %zu %s of %s, %s in %s\n", done->samples,
			done->shards, done->shards == 1 ? "shard" : "shards", v->options.format,
			size, show_duration(ms, time));
	return 0;
}

static void report_interrupt(const struct pack_result *done, const char *to)
{
	if (done->left)
		log_info("interrupted: shards without an index are left in '%s'; the same command "
			 "with --force removes them and starts over",
			to);
	else
		log_info("interrupted: '%s' has no new shards; the same command starts over", to);
}

static int fail(const struct packing *v, const struct pack_result *done, const char *to,
	struct penstock_error *err)
{
	if (cli_interrupted())
		report_interrupt(done, to);
	else if (done->left)
		error_suffix(
			err, "; shards without an index are left; --force removes these shards");
	return set_fail(v->in.cli, err);
}

static int run_pack(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct packing v = {.in = SET_OPERAND_INIT};
	const char *to = cli_operand(cli, 1);
	int64_t start = clock_monotonic_ms();
	struct pack_result done = {0};
	int r = read_options(&v, cli);

	if (r)
		return r;
	remote_many_requests();
	r = open_stores(&v, to, &err);
	if (r == 0)
		r = set_open(&v.in, cli_operand(cli, 0), &err);
	if (r == 0) {
		v.total = bytes_of(v.in.set);
		v.options.cancel = v.in.options.place.cancel;
		if (isatty(STDERR_FILENO))
			v.progress = progress_new(cli_quiet(cli));
		v.options.progress = show_progress;
		v.options.cookie = &v;
		v.target = (struct pack_target){.url = to, .open = open_target, .cookie = &v};
		r = dataset_pack(v.in.set, &v.target, &v.options, &done, &err);
		progress_clear(v.progress);
		progress_free(v.progress);
	}
	r = r < 0 ? fail(&v, &done, to, &err)
		  : print_result(&v, &done, to, clock_monotonic_ms() - start);
	set_release(&v.in);
	remote_release(&v.remote);
	return r;
}

const struct command command_pack = {
	.name = "pack",
	.summary = "write a data set as shards of another format",
	.operands = "SOURCE TARGET",
	.min_operands = 2,
	.max_operands = 2,
	.description =
		"Reads the samples of any data set, even over HTTP, and writes them to TARGET, "
		"s3://BUCKET/PREFIX/, gs://BUCKET/PREFIX/ or a directory, as shards shard-000000.* "
		"with an index, so that penstock.data opens them with two requests. Readers of the "
		"format read the shards, too.\n\n"
		"tar is the format of WebDataset, and mds that of MosaicML Streaming, with its "
		"index.json; tfrecord has a tf.train.Example for each sample. records and npy need "
		"samples of equal size; for npy each sample must be one array, or bytes. Objects "
		"whose names differ only after the first dot, such as 1.jpg and 1.cls, become one "
		"sample of tar, mds or tfrecord.\n\n"
		"Each shard appears whole, and the index last. A command that fails or is "
		"interrupted removes its shards. A command that is killed leaves shards without an "
		"index, which --force removes. TARGET must not be in SOURCE, and SOURCE not in "
		"TARGET.",
	.options = OPTIONS(
		{0, "format", "tar|mds|tfrecord|records|npy", "Format of the new shards; required"},
		{0, "shard-size", "SIZE", "Size of a shard; default: 64MiB"},
		{0, "compression", "zstd[:LEVEL]",
			"Compress shards of mds, LEVEL 1 to 22, default 3; a reader fetches and unpacks "
			"each as a whole, and the only index is index.json"},
		{'j', "jobs", "N",
			"Shards written at a time, each in memory; default: one per CPU, at most 4"},
		{0, "labels", "folder",
			"Add an integer field cls: the number of a sample's folder, such as cat "
			"for cat/1.jpg, in the sorted list of all first-level folders"},
		{0, "shuffle", NULL, "Write the samples in a random order"},
		{0, "seed", "N", "Seed of the random order; default: 0"},
		{0, "force", NULL,
			"Remove the index, index.json and shards shard-* from TARGET; default: refuse "
			"a target that is not empty"},
		{0, "json", NULL, "Print url, format, samples, shards, bytes and seconds as JSON"},
		{0, "source-format", "FORMAT", "Format of SOURCE; default: detected"}, SET_OPTIONS,
		REMOTE_OPTIONS, SOURCE_REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock pack images/ s3://cifar10/train/ --format tar",
				     "Upload a directory as tars"},
		{"penstock pack s3://cifar10/train/ mds/ --format mds --shuffle",
			"Write MosaicML's shards in a random order"}),
	.exits = EXITS(SET_EXITS("The store does not respond, or TARGET is not empty"),
		{"130", "Interrupted; TARGET has no new shards"}),
	.run = run_pack,
};
