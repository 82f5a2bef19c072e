#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/print/progress.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"

struct transfer {
	struct progress *progress;
	const char *name;
	atomic_llong bytes;
};

static void on_bytes(void *cookie, int64_t bytes)
{
	struct transfer *transfer = cookie;
	long long done = atomic_fetch_add(&transfer->bytes, bytes) + bytes;

	progress_update(transfer->progress, transfer->name, done > 0 ? (uint64_t)done : 0, 0);
}

static void show(const struct cli *cli, const struct location *at, const struct object_info *info)
{
	char size[STR_SIZE_SIZE];

	if (cli_has(cli, "json")) {
		show_json(json_pack("{s:o, s:o, s:I, s:o, s:o}", "bucket", json_text(at->bucket),
			"key", json_text(at->key), "size", (json_int_t)info->size, "etag",
			json_text(info->etag), "version", json_text(info->version_id)));
	} else if (!cli_quiet(cli)) {
		str_format_size(info->size, size);
		show_name(stdout, at->text);
		printf("  %s  ", size);
		show_name(stdout, info->etag);
		putchar('\n');
	}
}

static int run_put(const struct cli *cli)
{
	static const char *const conditions[] = {"if-none-match", "if-match", NULL};
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_(location_release) struct location at = {0};
	_cleanup_(object_info_release) struct object_info info = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct transfer transfer = {0};
	struct object_put_options options = {
		.if_match = cli_value(cli, "if-match"), .progress = on_bytes, .cookie = &transfer};
	int r = remote_put_options(cli, &options);

	if (r == 0)
		r = cli_refuse_together(cli, conditions);
	if (r)
		return r;
	if (isatty(STDIN_FILENO))
		return cli_misuse(cli, "standard input is a terminal; pipe the content into it");
	if (remote_open_at(&remote, cli, 0, true, &at, &err) < 0)
		return remote_fail(cli, &err);
	options.cancel = remote.cancel;
	transfer.name = at.key;
	transfer.progress = isatty(STDERR_FILENO) ? progress_new(cli_quiet(cli)) : NULL;
	r = object_put_stream(
		object_at(remote.client, at.bucket, at.key), STDIN_FILENO, &options, &info, &err);
	progress_clear(transfer.progress);
	progress_free(transfer.progress);
	if (r < 0) {
		/* The store does not say which condition failed. */
		if (err.code == PENSTOCK_E_PRECONDITION && options.if_none_match)
			error_set(&err, PENSTOCK_E_PRECONDITION,
				"cannot create '%s': it exists; --if-none-match does not overwrite it",
				at.text);
		else if (err.code == PENSTOCK_E_PRECONDITION)
			error_set(&err, PENSTOCK_E_PRECONDITION,
				"cannot replace '%s': its ETag is not '%s'; 'penstock stat' shows "
				"the ETag",
				at.text, options.if_match);
		return remote_fail(cli, &err);
	}
	show(cli, &at, &info);
	return 0;
}

const struct command command_put = {
	.name = "put",
	.summary = "store standard input as an object",
	.operands = "s3://BUCKET/KEY",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Stores standard input, of any length, as one object. The data is sent in parts as it "
		"arrives, with checksums, and becomes visible only when it is complete: if put is "
		"interrupted, nothing changes.\n\n"
		"If the program before a pipe fails, put stores what it has written: use 'set -o "
		"pipefail', or store under another name first.",
	.options = OPTIONS({0, "if-none-match", NULL, "Fail if the object exists"},
		{0, "if-match", "ETAG", "Fail unless the object has this ETag"},
		{0, "content-type", "TYPE",
			"Type of the object; default: application/octet-stream"},
		{0, "metadata", "NAME=VALUE", "Metadata of the object; may be repeated"},
		{0, "storage-class", "CLASS", "Storage class, such as STANDARD_IA"},
		{0, "part-size", "SIZE", "Size of the parts; default: 8MiB, growing"},
		{0, "json", NULL, "Print a JSON object with key, size, ETag and version"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"tar c data | penstock put s3://cifar10/data.tar",
				     "Store the output of a program"},
		{"penstock put --if-none-match s3://cifar10/lock < id",
			"Store a file, unless the object exists"}),
	.exits = EXITS({"66", "There is no such bucket"},
		{"69", "The store does not respond, or the condition is not met"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_put,
};
