#include "cli/objects/rm_objects.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "base/banned.h"

struct removal {
	const struct cli *cli;
	struct remote *remote;
	const struct location *at;
	struct path_filter filter;
	size_t cut; /* bytes of a key before what the filter looks at */
	bool dry_run;
	struct json_stream *stream; /* NULL: text */
	struct strlist keys; /* found, not removed yet */
	struct strlist kept; /* of the last batch: those that were refused */
	uint64_t refused;
	bool force; /* what runs keep for themselves, too */
	uint64_t spared; /* of that, where not */
	struct penstock_error error; /* the first that ends it */
};

static void report(struct removal *removal, const char *key)
{
	json_t *object;

	if (removal->stream) {
		object = json_object();
		json_object_set_new(object, "bucket", json_text(removal->at->bucket));
		json_object_set_new(object, "key", json_text(key));
		json_object_set_new(object, "removed", json_boolean(!removal->dry_run));
		json_stream_add(removal->stream, object);
	} else if (!cli_quiet(removal->cli)) {
		fprintf(cli_out(), "%s %s://%s/", removal->dry_run ? "would remove" : "removed",
			location_scheme(removal->at), removal->at->bucket);
		show_name(cli_out(), key);
		putc('\n', cli_out());
	}
}

static void on_refused(void *cookie, const char *key, const struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(4 * LIMIT_LOG_LINE);
	struct removal *removal = cookie;

	removal->refused++;
	log_redact_into(&line, err->message ? err->message : key);
	fprintf(log_stream(), "penstock rm: %s", cli_where());
	show_name(log_stream(), buf_str(&line));
	putc('\n', log_stream());
	if (strlist_add(&removal->kept, key) < 0)
		abort();
}

static bool was_kept(const struct removal *removal, const char *key)
{
	for (size_t i = 0; i < removal->kept.n; i++) {
		if (strcmp(removal->kept.items[i], key) == 0)
			return true;
	}
	return false;
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
	/* Refusals of single keys were told, and the others are gone. */
	if (r < 0 && removal->refused == refused)
		return error_move(err, &own);
	for (size_t i = 0; i < removal->keys.n; i++) {
		if (!was_kept(removal, removal->keys.items[i]))
			report(removal, removal->keys.items[i]);
	}
	strlist_release(&removal->keys);
	strlist_release(&removal->kept);
	return 0;
}

/* Below ".penstock/" runs keep their state, their logs, and the only copies of what they overwrote.
 * It goes where it is named itself, or with --force. */
static bool belongs_to_runs(const char *path)
{
	return str_starts(path, ".penstock/") || strstr(path, "/.penstock/");
}

static int on_object(void *cookie, const struct object_info *info)
{
	struct removal *removal = cookie;

	if (!removal->force && belongs_to_runs(info->key + location_literal_prefix(removal->at))) {
		removal->spared++;
		return 0;
	}
	if (!path_filter_takes(&removal->filter, info->key + removal->cut))
		return 0;
	if (strlist_add(&removal->keys, info->key) < 0)
		return error_memory(&removal->error), 1;
	return removal->keys.n == LIMIT_S3_LIST_KEYS && flush(removal, &removal->error) < 0;
}

static int remove_operand(struct removal *removal, const char *text, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	int r = remote_location(text, false, &at, err);

	if (r == 0)
		r = remote_fits(removal->remote, &at, err);
	if (r < 0)
		return r;
	at.literal = cli_has(removal->cli, "raw");
	if ((!*at.key || (!at.literal && str_ends(at.key, "/"))) &&
		!cli_has(removal->cli, "recursive"))
		return error_set(err, PENSTOCK_E_INVALID,
			"%s means everything below it; say --recursive if that is what you want",
			text);
	removal->at = &at;
	removal->cut = location_literal_prefix(&at);
	while (removal->cut && at.key[removal->cut - 1] != '/')
		removal->cut--;
	r = remote_each(removal->remote, &at, on_object, removal, err);
	if (r == 0 && removal->error.code)
		r = error_move(err, &removal->error);
	if (r == 0)
		r = flush(removal, err);
	strlist_release(&removal->keys);
	removal->at = NULL;
	return r;
}

int rm_objects(const struct cli *cli)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct json_stream stream = {0};
	struct removal removal = {.cli = cli,
		.remote = &remote,
		.filter = {cli_values(cli, "include"), cli_values(cli, "exclude")},
		.dry_run = cli_has(cli, "dry-run"),
		.force = cli_has(cli, "force"),
		.stream = cli_has(cli, "json") ? &stream : NULL};
	int r;

	remote_many_requests();
	r = remote_open(&remote, cli, &err);
	for (size_t i = 0; r == 0 && i < cli_n_operands(cli); i++)
		r = remove_operand(&removal, cli_operand(cli, i), &err);
	if (removal.spared)
		log_warn("left %llu object%s below .penstock/: the state, logs and kept copies of "
			 "runs; --force removes them, too",
			(unsigned long long)removal.spared, removal.spared == 1 ? "" : "s");
	if (removal.stream && (r == 0 || stream.begun))
		json_stream_end(&stream);
	if (r < 0)
		return remote_fail(cli, &err);
	return removal.refused ? CLI_EXIT_PERMISSION : 0;
}
