#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "copy/copy.h"
#include "cli/print/util.h"

static void print_line(const char *label, const char *text)
{
	fputs(label, stdout);
	show_name(stdout, text);
	putchar('\n');
}

/* Returns the storage class. S3 sends no header for its default class. */
static const char *class_of(const struct location *at, const struct object_info *info)
{
	if (info->storage_class)
		return info->storage_class;
	return str_starts(at->text, "s3://") ? "STANDARD" : NULL;
}

static void print_lock(const struct object_info *info)
{
	char when[SHOW_TIME_SIZE];

	if (info->retention) {
		fputs("  lock      ", stdout);
		show_name(stdout, info->retention);
		printf(" until %s\n", show_time(info->retained_until_ns, when));
	}
	if (info->legal_hold)
		print_line("  lock      ", "legal hold");
}

static void print_object(
	const struct location *at, const struct object_info *info, const struct strlist *tags)
{
	char when[SHOW_TIME_SIZE];
	char size[STR_SIZE_SIZE];

	str_format_size(info->size, size);
	print_line("", at->text);
	printf("  size      %" PRIu64 " (%s)\n  modified  %s\n", info->size, size,
		show_time(info->modified_ns, when));
	print_line("  etag      ", info->etag);
	if (info->version_id)
		print_line("  version   ", info->version_id);
	if (info->content_type)
		print_line("  type      ", info->content_type);
	if (class_of(at, info))
		print_line("  class     ", class_of(at, info));
	print_lock(info);
	for (size_t i = 0; i < info->metadata.n; i++)
		print_line("  metadata  ", info->metadata.items[i]);
	for (size_t i = 0; i < tags->n; i++)
		print_line("  tag       ", tags->items[i]);
}

/* Returns the "name=value" pairs of the list as a JSON object. */
static json_t *pairs_of(const struct strlist *list)
{
	json_t *pairs = json_object();

	for (size_t i = 0; i < list->n; i++) {
		_cleanup_free_ char *name = strdup(list->items[i]);
		char *equals = name ? strchr(name, '=') : NULL;

		if (!equals)
			continue;
		*equals = '\0';
		json_object_set_new(pairs, name, json_text(equals + 1));
	}
	return pairs;
}

static json_t *retention_of(const struct object_info *info)
{
	return info->retention ? json_pack("{s:o, s:o}", "mode", json_text(info->retention),
					 "until", json_time(info->retained_until_ns))
			       : json_null();
}

static json_t *object_of(const struct location *at, struct object_info *info)
{
	json_t *object;

	info->key = strdup(at->key);
	object = json_object_info(info);
	json_object_set_new(object, "bucket", json_text(at->bucket));
	json_object_set_new(object, "version", json_text(info->version_id));
	json_object_set_new(object, "content_type", json_text(info->content_type));
	json_object_set_new(object, "storage_class", json_text(class_of(at, info)));
	json_object_set_new(object, "retention", retention_of(info));
	json_object_set_new(object, "legal_hold", json_boolean(info->legal_hold));
	json_object_set_new(object, "metadata", pairs_of(&info->metadata));
	return object;
}

static int stat_bucket(
	const struct remote *remote, const struct location *at, struct penstock_error *err)
{
	static const char *const names[] = {[BUCKET_UNVERSIONED] = "off",
		[BUCKET_VERSIONED] = "enabled",
		[BUCKET_SUSPENDED] = "suspended"};
	enum bucket_versioning versioning = BUCKET_UNVERSIONED;
	int r = bucket_versioning(remote->client, at->bucket, &versioning, err);

	if (r < 0)
		return r;
	if (remote->json) {
		json_stream_add(
			remote->json, json_pack("{s:o, s:s}", "bucket", json_text(at->bucket),
					      "versioning", names[versioning]));
		return 0;
	}
	print_line("", at->text);
	print_line("  versioning  ", names[versioning]);
	return 0;
}

struct question {
	bool tags;
	const char *version; /* NULL for the current version */
};

static int stat_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	const struct question *question = cookie;
	_cleanup_(object_info_release) struct object_info info = {0};
	_cleanup_error_ struct penstock_error refused = PENSTOCK_ERROR_INIT;
	_cleanup_(strlist_release) struct strlist tags = {0};
	struct object_ref object = object_at(remote->client, at->bucket, at->key);
	json_t *found;

	if (!*at->key)
		return stat_bucket(remote, at, err);
	object.version = question->version;
	if (object_head(object, &info, err) < 0)
		return copy_explain_missing(object, at->text, err);
	if (question->tags && object_tags(object, &tags, &refused) < 0)
		log_warn("%s", refused.message);
	if (!remote->json) {
		print_object(at, &info, &tags);
		return 0;
	}
	found = object_of(at, &info);
	if (question->tags)
		json_object_set_new(found, "tags", refused.code ? json_null() : pairs_of(&tags));
	json_stream_add(remote->json, found);
	return 0;
}

static int run_stat(const struct cli *cli)
{
	struct question question = {.tags = cli_has(cli, "tags")};
	int code = remote_version(cli, &question.version);

	return code ? code
		    : remote_operands(cli, question.version != NULL, cli_has(cli, "json"),
			      stat_operand, &question);
}

const struct command command_stat = {
	.name = "stat",
	.summary = "show size, date and metadata of an object",
	.operands = "s3://BUCKET[/KEY]...",
	.min_operands = 1,
	.max_operands = (unsigned)-1,
	.description =
		"Shows size, date, ETag, version, content type, storage class, Object Lock and "
		"metadata of objects, and the versioning of buckets (off, enabled or suspended), "
		"with one request each.",
	.options = OPTIONS({0, "tags", NULL, "Also show the tags, with one more request"},
		{0, "version-id", "ID", "Show this version, in place of the current one"},
		{0, "json", NULL, "Print a list of JSON objects"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock stat s3://cifar10/ckpt.pth",
		"Size, date, ETag and metadata of a checkpoint"}),
	.exits = EXITS(REMOTE_EXITS),
	.run = run_stat,
};
