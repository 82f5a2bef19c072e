#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "cli/objects/uploads.h"
#include "base/banned.h"

struct listing {
	const struct location *at;
	size_t cut; /* bytes of each key that are not shown */
	bool json;
	bool human;
	bool wildcard;
	bool found;
	struct json_stream stream;
};

static void print_entry(const struct listing *l, const struct object_info *info)
{
	char when[SHOW_TIME_SIZE];
	char size[STR_SIZE_SIZE];

	if (info->is_prefix) {
		printf("%19s %14s  ", "", "DIR");
	} else if (l->human) {
		str_format_size(info->size, size);
		printf("%s %14s  ", show_time(info->modified_ns, when), size);
	} else {
		printf("%s %14" PRIu64 "  ", show_time(info->modified_ns, when), info->size);
	}
	show_name(stdout, info->key + l->cut);
	putchar('\n');
}

static int on_entry(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	json_t *object;

	if (l->wildcard && (info->is_prefix || !wildcard_match(l->at->key, info->key)))
		return 0;
	l->found = true;
	if (!l->json) {
		print_entry(l, info);
		return ferror(stdout) != 0;
	}
	if (info->is_prefix) {
		object = json_object();
		json_object_set_new(object, "prefix", json_text(info->key));
	} else {
		object = json_object_info(info);
	}
	json_object_set_new(object, "bucket", json_text(l->at->bucket));
	json_stream_add(&l->stream, object);
	return ferror(stdout) != 0;
}

static int on_bucket(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	char when[SHOW_TIME_SIZE];
	json_t *object;

	l->found = true;
	if (!l->json) {
		printf("%s  s3://", show_time(info->modified_ns, when));
		show_name(stdout, info->key);
		putchar('\n');
		return 0;
	}
	object = json_object();
	json_object_set_new(object, "bucket", json_text(info->key));
	json_object_set_new(object, "created", json_time(info->modified_ns));
	json_stream_add(&l->stream, object);
	return 0;
}

/* Without a delimiter the whole key is shown, else what is behind the last directory asked for. */
static int list_location(
	const struct cli *cli, struct remote *remote, struct listing *l, struct penstock_error *err)
{
	const struct location *at = l->at;
	size_t len = location_literal_prefix(at);
	_cleanup_free_ char *prefix = strndup(at->key, len);
	bool deep;
	int r;

	if (!prefix)
		return error_memory(err);
	l->wildcard = location_has_wildcard(at);
	deep = l->wildcard || cli_has(cli, "recursive");
	while (!deep && len && prefix[len - 1] != '/')
		len--;
	l->cut = deep ? 0 : len;
	l->found = false;
	r = remote_list(remote, at->bucket, prefix, deep ? NULL : "/", on_entry, l, err);
	if (r == 0 && !l->found && *at->key)
		return error_set(
			err, PENSTOCK_E_NOT_FOUND, "%s: there is no such object", at->text);
	return r;
}

static int list_operand(const struct cli *cli, struct remote *remote, struct listing *l,
	const char *text, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	int r = remote_location(text, false, &at, err);

	if (r == 0)
		r = remote_fits(remote, &at, err);
	l->at = &at;
	if (r == 0)
		r = list_location(cli, remote, l, err);
	l->at = NULL;
	return r;
}

static int run_ls(const struct cli *cli)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct listing l = {.json = cli_has(cli, "json"), .human = cli_has(cli, "human")};
	int r;

	if (cli_has(cli, "uploads"))
		return uploads_list(cli);
	remote_many_requests();
	r = remote_open(&remote, cli, &err);
	if (r == 0 && cli_n_operands(cli) == 0)
		r = bucket_list(remote.client, on_bucket, &l, &err);
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = list_operand(cli, &remote, &l, cli_operand(cli, i), &err);
	if (l.json && (r == 0 || l.stream.begun))
		json_stream_end(&l.stream);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_ls = {
	.name = "ls",
	.summary = "list buckets and objects",
	.operands = "[s3://BUCKET[/PREFIX]]...",
	.max_operands = (unsigned)-1,
	.description =
		"Lists the objects whose key begins with PREFIX, with date and size, and what "
		"lies deeper as DIR; without an operand the buckets.\n\n"
		"In PREFIX '*' stands for any characters and '?' for one; put it in quotes. Keys "
		"are in byte order.",
	.options = OPTIONS({'r', "recursive", NULL, "All objects below, instead of one level"},
		{'H', "human", NULL, "Sizes with units"},
		{0, "uploads", NULL,
			"Instead of objects the uploads in parts that were neither completed nor ended"},
		{0, "json", NULL, "A list of objects with key, size, etag and modified"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock ls", "The buckets of this account"},
		{"penstock ls s3://cifar10/", "What is at the top of a bucket"},
		{"penstock ls 's3://cifar10/epoch-*.pth'", "Objects by pattern"},
		{"penstock ls --uploads s3://cifar10/", "What interrupted uploads have left"},
		{"penstock ls -r --json s3://cifar10/runs/", "Everything below, for programs"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_ls,
};
