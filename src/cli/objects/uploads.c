#include "cli/objects/uploads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "base/banned.h"

/* What may still be under way somewhere is left, unless somebody says otherwise. */
#define DEFAULT_AGE_MS (INT64_C(24) * 3600 * 1000)

struct uploads {
	const struct cli *cli;
	struct remote *remote;
	const struct location *at;
	bool end; /* else they are only listed */
	bool dry_run;
	struct json_stream *stream; /* NULL: text */
	int64_t before_ns; /* those that were begun later are left */
	uint64_t refused;
	struct penstock_error error; /* the first that ends it */
};

static void show(struct uploads *u, const char *key, const char *id, int64_t initiated_ns)
{
	char when[SHOW_TIME_SIZE];
	json_t *object;

	if (u->stream) {
		object = json_object();
		json_object_set_new(object, "bucket", json_text(u->at->bucket));
		json_object_set_new(object, "key", json_text(key));
		json_object_set_new(object, "upload_id", json_text(id));
		json_object_set_new(object, "initiated", json_time(initiated_ns));
		if (u->end)
			json_object_set_new(object, "ended", json_boolean(!u->dry_run));
		json_stream_add(u->stream, object);
		return;
	}
	if (u->end && cli_quiet(u->cli))
		return;
	if (u->end)
		printf("%s upload of %s://%s/", u->dry_run ? "would end" : "ended",
			location_scheme(u->at), u->at->bucket);
	else
		printf("%s  %s://%s/", show_time(initiated_ns, when), location_scheme(u->at),
			u->at->bucket);
	show_name(stdout, key);
	printf("  ");
	show_name(stdout, id);
	putchar('\n');
}

static int on_upload(void *cookie, const char *key, const char *id, int64_t initiated_ns)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct uploads *u = cookie;

	if (atomic_load(u->remote->cancel))
		return error_set(&u->error, PENSTOCK_E_CANCELLED, "cancelled"), 1;
	/* One that does not say when it was begun may be under way. */
	if (u->end && u->before_ns != INT64_MAX &&
		(initiated_ns <= 0 || initiated_ns > u->before_ns))
		return 0;
	if (u->end && !u->dry_run &&
		object_abort_upload(object_at(u->remote->client, u->at->bucket, key), id, &err) <
			0) {
		u->refused++;
		log_warn("%s", err.message ? err.message : key);
		return 0;
	}
	show(u, key, id, initiated_ns);
	return ferror(stdout) != 0;
}

static int each_operand(struct uploads *u, const char *text, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	int r = remote_location(text, false, &at, err);

	if (r == 0)
		r = remote_fits(u->remote, &at, err);
	if (r == 0 && location_has_wildcard(&at))
		r = error_set(err, PENSTOCK_E_INVALID,
			"%s: uploads are found by what their keys begin with, not by a pattern",
			text);
	if (r < 0)
		return r;
	u->at = &at;
	r = object_list_uploads(object_at(u->remote->client, at.bucket, at.key), on_upload, u, err);
	if (r == 0 && u->error.code)
		r = error_move(err, &u->error);
	u->at = NULL;
	return r;
}

static int run(struct uploads *u)
{
	_cleanup_(remote_release) struct remote remote = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct json_stream stream = {0};
	int r = remote_open(&remote, u->cli, &err);

	u->remote = &remote;
	u->stream = cli_has(u->cli, "json") ? &stream : NULL;
	for (size_t i = 0; r == 0 && i < cli_n_operands(u->cli); i++)
		r = each_operand(u, cli_operand(u->cli, i), &err);
	if (u->stream && (r == 0 || stream.begun))
		json_stream_end(&stream);
	u->remote = NULL;
	u->stream = NULL;
	if (r < 0)
		return remote_fail(u->cli, &err);
	return u->refused ? CLI_EXIT_PERMISSION : 0;
}

int uploads_list(const struct cli *cli)
{
	struct uploads u = {.cli = cli};

	if (cli_n_operands(cli) == 0)
		return cli_misuse(cli, "--uploads wants a bucket, as in s3://BUCKET");
	return run(&u);
}

int uploads_end(const struct cli *cli)
{
	struct uploads u = {.cli = cli, .end = true, .dry_run = cli_has(cli, "dry-run")};
	int64_t age_ms;

	if (!cli_duration_ms(cli, "older-than", DEFAULT_AGE_MS, &age_ms))
		return CLI_EXIT_USAGE;
	u.before_ns = age_ms ? clock_wall_ns() - age_ms * NS_PER_MS : INT64_MAX;
	return run(&u);
}
