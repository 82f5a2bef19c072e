#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"

struct listing {
	const struct cli *cli;
	const struct location *at;
	size_t cut; /* number of bytes at the beginning of each key that are not shown */
	struct json_stream *json; /* NULL for text */
	int64_t limit; /* maximum number of entries to list for an operand */
	int64_t listed;
};

/* The last character of Unicode: a listing that starts after DIR/ and this character skips all keys
 * below DIR/. */
#define LAST_CHARACTER "\xf4\x8f\xbf\xbf"

/* Returns the part of the key to show. Checks the length, because a faulty store may send keys that
 * do not begin with the requested prefix. */
static const char *name_of(const struct listing *l, const char *key)
{
	return strlen(key) < l->cut ? key : key + l->cut;
}

static int on_entry(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	char when[SHOW_TIME_SIZE];
	char size[REMOTE_SIZE_SIZE];

	l->listed++;
	if (l->json) {
		json_t *object = info->is_prefix
					 ? json_pack("{s:o}", "prefix", json_text(info->key))
					 : json_object_info(info);

		json_object_set_new(object, "bucket", json_text(l->at->bucket));
		json_stream_add(l->json, object);
		return l->listed >= l->limit || ferror(stdout) != 0;
	}
	remote_size(l->cli, info->size, size);
	printf("%19s %14s  ", info->is_prefix ? "" : show_time(info->modified_ns, when),
		info->is_prefix ? "DIR" : size);
	show_name(stdout, name_of(l, info->key));
	putchar('\n');
	return l->listed >= l->limit || ferror(stdout) != 0;
}

static int on_version(void *cookie, const struct object_version *version)
{
	struct listing *l = cookie;
	char when[SHOW_TIME_SIZE];
	char size[REMOTE_SIZE_SIZE];

	if (location_has_wildcard(l->at) && !wildcard_match(l->at->key, version->key))
		return 0;
	if (version->is_prefix)
		return on_entry(
			l, &(struct object_info){.key = (char *)version->key, .is_prefix = true});
	l->listed++;
	if (l->json) {
		json_stream_add(l->json,
			json_pack("{s:o, s:o, s:I, s:o, s:o, s:b, s:b}", "key",
				json_text(version->key), "version", json_text(version->id), "size",
				(json_int_t)version->size, "etag", json_text(version->etag),
				"modified", json_time(version->modified_ns), "latest",
				version->latest, "deleted", version->marker));
		return l->listed >= l->limit || ferror(stdout) != 0;
	}
	remote_size(l->cli, version->size, size);
	printf("%19s %14s  ", show_time(version->modified_ns, when),
		version->marker ? "DELETED" : size);
	show_name(stdout, name_of(l, version->key));
	printf("  ");
	show_name(stdout, version->id);
	putchar('\n');
	return l->listed >= l->limit || ferror(stdout) != 0;
}

static int on_bucket(void *cookie, const struct object_info *info)
{
	struct listing *l = cookie;
	char when[SHOW_TIME_SIZE];

	if (!l->json) {
		printf("%s  s3://", show_time(info->modified_ns, when));
		show_name(stdout, info->key);
		putchar('\n');
		return 0;
	}
	json_stream_add(l->json, json_pack("{s:o, s:o}", "bucket", json_text(info->key), "created",
					 json_time(info->modified_ns)));
	return 0;
}

/* Lists all versions. With --deleted, lists the newest version of each object, including deleted
 * objects. */
static int list_versions(
	struct listing *l, struct remote *remote, const char *delimiter, struct penstock_error *err)
{
	const struct location *at = l->at;
	_cleanup_free_ char *prefix = strndup(at->key, location_literal_prefix(at));

	if (!prefix)
		return error_memory(err);
	return object_list_versions(object_at(remote->client, at->bucket, prefix),
		&(struct object_versions_options){.delimiter = delimiter,
			.after = remote->after,
			.after_version = cli_value(l->cli, "after-version"),
			.newest = cli_has(l->cli, "deleted"),
			.cancel = remote->cancel},
		on_version, l, err);
}

/* Shows whole keys if all levels are listed, otherwise the part after the last directory of the
 * operand. */
static int list_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct listing *l = cookie;
	bool deep;
	const char *after = cli_value(l->cli, "after");
	_cleanup_free_ char *beyond = NULL;
	int r;

	at->literal = cli_has(l->cli, "raw");
	deep = location_has_wildcard(at) || cli_has(l->cli, "recursive") ||
	       cli_has(l->cli, "versions");
	l->at = at;
	l->json = remote->json;
	l->listed = 0;
	if (after && !deep && str_ends(after, "/")) {
		beyond = str_printf("%s" LAST_CHARACTER, after);
		if (!beyond)
			return error_memory(err);
	}
	l->cut = deep ? 0 : strlen(at->key);
	while (l->cut && at->key[l->cut - 1] != '/')
		l->cut--;
	remote->after = beyond ? beyond : after;
	if (cli_has(l->cli, "versions") || cli_has(l->cli, "deleted"))
		return list_versions(l, remote, deep ? NULL : "/", err);
	r = remote_list(remote, at, deep ? NULL : "/", on_entry, l, err);
	/* The last page of a listing may be empty. */
	return after && error_expected(r, PENSTOCK_E_NOT_FOUND, err) ? 0 : r;
}

static int run_ls(const struct cli *cli)
{
	static const char *const kinds[] = {"versions", "deleted", "uploads", NULL};
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct json_stream stream = {0};
	struct listing l = {.cli = cli, .json = cli_has(cli, "json") ? &stream : NULL};
	int r = cli_refuse_together(cli, kinds);

	if (r)
		return r;
	if (cli_has(cli, "after-version") && !(cli_has(cli, "versions") && cli_has(cli, "after")))
		return cli_misuse(cli, "--after-version needs --versions and --after");
	if (!cli_number(cli, "limit", 1, INT64_MAX, INT64_MAX, &l.limit))
		return CLI_EXIT_USAGE;
	if (cli_has(cli, "uploads"))
		return uploads_list(cli);
	remote_many_requests();
	if (cli_n_operands(cli))
		return remote_operands(cli, false, l.json != NULL, list_operand, &l);
	r = remote_open(&remote, cli, &err);
	if (r == 0)
		r = bucket_list(remote.client, on_bucket, &l, &err);
	if (l.json && (r == 0 || stream.begun))
		json_stream_end(&stream);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_ls = {
	.name = "ls",
	.summary = "list buckets and objects",
	.operands = "[s3://BUCKET[/PREFIX]]...",
	.max_operands = (unsigned)-1,
	.description =
		"Lists the objects whose key begins with PREFIX, with date and size, and deeper "
		"levels as DIR. Without an operand, lists the buckets.\n\n"
		"In PREFIX '*' matches any characters and '?' one; put it in quotes. Keys are in "
		"byte order.",
	.options = OPTIONS({'r', "recursive", NULL, "List all objects below, instead of one level"},
		{'H', "human", NULL, "Print sizes with units"},
		{0, "raw", NULL, "Take '*' and '?' in PREFIX as ordinary characters"},
		{0, "after", "KEY", "Begin after this key, or after this DIR/"},
		{0, "limit", "N", "List at most N objects and directories of each operand"},
		{0, "versions", NULL,
			"List the versions of objects, including deleted ones, with their ids"},
		{0, "deleted", NULL,
			"Also list the deleted objects of a bucket with versioning, and the ids of "
			"the newest versions"},
		{0, "after-version", "ID",
			"With --versions: begin after this version of the KEY of --after"},
		{0, "uploads", NULL, "List unfinished multipart uploads instead of objects"},
		{0, "json", NULL, "Print a list of JSON objects with key, size, etag and modified"},
		REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock ls", "The buckets of this account"},
		{"penstock ls s3://cifar10/", "The first level of a bucket"},
		{"penstock ls 's3://cifar10/epoch-*.pth'", "Objects by pattern"},
		{"penstock ls --limit 1000 --after images/000999.jpg s3://cifar10/images/",
			"The next page of many objects"},
		{"penstock ls --versions s3://cifar10/ckpt.pth",
			"The earlier versions of an object"},
		{"penstock ls --deleted s3://cifar10/", "The first level with the deleted objects"},
		{"penstock ls --uploads s3://cifar10/", "The interrupted uploads"},
		{"penstock ls -r --json s3://cifar10/runs/", "All objects below, as JSON"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_ls,
};
