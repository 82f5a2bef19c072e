/* `penstock rm s3://…`: the operands that are objects, not runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/objects/remote.h"
#include "cli/print/fold.h"
#include "cli/print/util.h"
#include "transfer/output_keys.h"

struct removal {
	const struct cli *cli;
	struct remote *remote;
	const struct location *at;
	struct path_filter filter;
	size_t cut; /* bytes at the beginning of a key that the filter does not compare */
	bool dry_run;
	struct strlist keys; /* found, not removed yet */
	struct strlist kept; /* keys that the store refused in the last request */
	struct fold fold;
	uint64_t sizes[LIMIT_S3_LIST_KEYS]; /* sizes of the objects of `keys` */
	uint64_t removed, bytes;
	bool several; /* an operand may mean more than one object */
	uint64_t refused;
	bool force; /* remove the state of runs, too */
	const char *version; /* the only version to remove; NULL to remove objects */
	bool bypass; /* remove the version in spite of a retention */
	uint64_t spared; /* skipped objects with the state of runs */
	struct penstock_error error; /* the first error that ends the removal */
};

static void report(struct removal *removal, const char *key)
{
	if (removal->remote->json) {
		json_stream_add(removal->remote->json,
			json_pack("{s:o, s:o, s:o*, s:b}", "bucket", json_text(removal->at->bucket),
				"key", json_text(key), "version",
				removal->version ? json_text(removal->version) : NULL, "removed",
				!removal->dry_run));
	} else if (!cli_quiet(removal->cli)) {
		fprintf(cli_out(), "%s %s://%s/", removal->dry_run ? "would remove" : "removed",
			location_scheme(removal->at), removal->at->bucket);
		show_name(cli_out(), key);
		if (removal->version) {
			fputs("  ", cli_out());
			show_name(cli_out(), removal->version);
		}
		putc('\n', cli_out());
	}
}

static void print_line(void *cookie, const char *text)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(4 * LIMIT_LOG_LINE);

	(void)cookie;
	log_redact_into(&line, text);
	fprintf(log_stream(), "%spenstock rm:%s %s", log_colour(LOG_ERROR), log_colour_end(),
		cli_where());
	show_name(log_stream(), buf_str(&line));
	putc('\n', log_stream());
}

static void on_refused(void *cookie, const char *key, const struct penstock_error *err)
{
	struct removal *removal = cookie;

	removal->refused++;
	if (fold_shows(&removal->fold, key, NULL, err))
		print_line(NULL, err->message ? err->message : key);
	if (strlist_add(&removal->kept, key) < 0)
		abort();
}

static int flush(struct removal *removal, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	uint64_t refused = removal->refused;
	int r = 0;

	if (removal->keys.n && !removal->dry_run)
		r = object_delete_many(&(struct object_deletion){.client = removal->remote->client,
					       .bucket = removal->at->bucket,
					       .keys = &removal->keys,
					       .on_error = on_refused,
					       .cookie = removal},
			NULL, &own);
	/* The removal continues if the store refused only single keys: these keys were reported,
	 * and the other keys are removed. */
	if (r < 0 && removal->refused == refused)
		return error_move(err, &own);
	for (size_t i = 0; i < removal->keys.n; i++) {
		const char *key = removal->keys.items[i];
		size_t kept = 0;

		while (kept < removal->kept.n && strcmp(removal->kept.items[kept], key) != 0)
			kept++;
		if (kept < removal->kept.n)
			continue;
		removal->removed++;
		removal->bytes += removal->sizes[i];
		report(removal, key);
	}
	strlist_release(&removal->keys);
	strlist_release(&removal->kept);
	return 0;
}

static int on_object(void *cookie, const struct object_info *info)
{
	struct removal *removal = cookie;
	const char *below = info->key + location_literal_prefix(removal->at);

	/* Runs keep their state, their logs, and the only copies of overwritten files below
	 * ".penstock/". Remove these only if the operand names that prefix, or with --force. */
	if (!removal->force && output_key_is_state(below)) {
		removal->spared++;
		return 0;
	}
	if (!path_filter_takes(&removal->filter, info->key + removal->cut))
		return 0;
	removal->sizes[removal->keys.n] = info->size;
	if (strlist_add(&removal->keys, info->key) < 0)
		return error_memory(&removal->error), 1;
	return removal->keys.n == LIMIT_S3_LIST_KEYS && flush(removal, &removal->error) < 0;
}

static int remove_location(struct removal *removal, struct location *at, struct penstock_error *err)
{
	int r;

	removal->at = at;
	removal->cut = location_literal_prefix(at);
	while (removal->cut && at->key[removal->cut - 1] != '/')
		removal->cut--;
	if (at->literal && str_ends(at->key, "/") && cli_has(removal->cli, "recursive"))
		r = remote_list(removal->remote, at, NULL, on_object, removal, err);
	else
		r = remote_each(removal->remote, at, on_object, removal, err);
	if (r == 0 && removal->error.code)
		r = error_move(err, &removal->error);
	if (r == 0)
		r = flush(removal, err);
	strlist_release(&removal->keys);
	return r;
}

/* Removes an operand with --recursive: "a" means the object "a" and everything below "a/", as in
 * cp. */
static int remove_tree(struct removal *removal, struct location *at, struct penstock_error *err)
{
	_cleanup_(location_release) struct location below = {0};
	_cleanup_free_ char *text = str_printf("%s/", at->text);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int found, r;

	if (!text)
		return error_memory(err);
	r = location_parse(&below, text, err);
	if (r < 0)
		return r;
	below.literal = at->literal;
	found = remove_location(removal, at, &own);
	if (found < 0 && found != -(int)PENSTOCK_E_NOT_FOUND)
		return error_move(err, &own);
	r = remove_location(removal, &below, err);
	if (r != -(int)PENSTOCK_E_NOT_FOUND)
		return r;
	penstock_error_release(err);
	return found == 0 ? 0 : error_move(err, &own);
}

static int remove_version(
	struct removal *removal, const struct location *at, struct penstock_error *err)
{
	struct object_ref object = object_at(removal->remote->client, at->bucket, at->key);
	int r = 0;

	object.version = removal->version;
	if (!removal->dry_run)
		r = removal->bypass ? object_delete_retained(object, err)
				    : object_delete(object, NULL, err);
	if (r == 0)
		report(removal, at->key);
	return r;
}

static int remove_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct removal *removal = cookie;
	bool wildcard, directory;

	removal->remote = remote;
	removal->at = at;
	if (removal->version)
		return remove_version(removal, at, err);
	at->literal = cli_has(removal->cli, "raw");
	if ((!*at->key || (!at->literal && str_ends(at->key, "/"))) &&
		!cli_has(removal->cli, "recursive"))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot remove all objects below '%s'; use --recursive", at->text);
	wildcard = location_has_wildcard(at);
	directory = cli_has(removal->cli, "recursive");
	removal->several |= wildcard || directory;
	if (directory && !wildcard && *at->key && !str_ends(at->key, "/"))
		return remove_tree(removal, at, err);
	return remove_location(removal, at, err);
}

static void summarize(const struct removal *removal)
{
	char bytes[STR_SIZE_SIZE];

	str_format_size(removal->bytes, bytes);
	/* A batch prints its own summary. */
	if (removal->several && !*cli_where())
		log_info("%" PRIu64 " %sremoved, %s", removal->removed,
			removal->dry_run ? "to be " : "", bytes);
}

int rm_objects(const struct cli *cli)
{
	struct removal removal = {.cli = cli,
		.filter = {cli_values(cli, "include"), cli_values(cli, "exclude")},
		.dry_run = cli_has(cli, "dry-run"),
		.force = cli_has(cli, "force"),
		.bypass = cli_has(cli, "bypass-governance-retention")};
	int code = remote_version(cli, &removal.version);

	if (code)
		return code;
	if (removal.bypass && !removal.version)
		return cli_misuse(cli, "--bypass-governance-retention needs --version-id");
	remote_many_requests();
	code = remote_operands(
		cli, removal.version != NULL, cli_has(cli, "json"), remove_operand, &removal);
	fold_end(&removal.fold, print_line, NULL);
	if (removal.spared)
		log_warn("left %llu object%s below .penstock/: the state, logs and kept copies of "
			 "runs; --force also removes them",
			(unsigned long long)removal.spared, removal.spared == 1 ? "" : "s");
	summarize(&removal);
	return code || !removal.refused ? code : CLI_EXIT_PERMISSION;
}
