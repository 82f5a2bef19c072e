/* `penstock ls --uploads` and `rm --uploads`: unfinished multipart uploads. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"

/* Age from which uploads are aborted without --older-than: newer uploads may be in progress. */
#define DEFAULT_AGE_MS (INT64_C(24) * 3600 * 1000)

struct uploads {
	const struct cli *cli;
	struct remote *remote;
	const struct location *at;
	bool end; /* abort the uploads; if false, only list them */
	bool dry_run;
	int64_t before_ns; /* uploads that started later stay */
	uint64_t refused;
	struct penstock_error error; /* the first error that ends the listing */
};

static void show(struct uploads *u, const char *key, const char *id, int64_t initiated_ns)
{
	char when[SHOW_TIME_SIZE];

	if (u->remote->json) {
		json_t *object = json_pack("{s:o, s:o, s:o, s:o}", "bucket",
			json_text(u->at->bucket), "key", json_text(key), "upload_id", json_text(id),
			"initiated", json_time(initiated_ns));

		if (u->end)
			json_object_set_new(object, "ended", json_boolean(!u->dry_run));
		json_stream_add(u->remote->json, object);
		return;
	}
	if (u->end && cli_quiet(u->cli))
		return;
	printf("%s%s%s://%s/",
		!u->end	     ? show_time(initiated_ns, when)
		: u->dry_run ? "would abort upload of"
			     : "aborted upload of",
		u->end ? " " : "  ", location_scheme(u->at), u->at->bucket);
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
	/* An upload without a time may still be in progress. */
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

static int each_operand(
	void *cookie, struct remote *remote, struct location *at, struct penstock_error *err)
{
	struct uploads *u = cookie;
	int r;

	if (location_has_wildcard(at))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot select uploads by the pattern '%s'; give the beginning of their keys",
			at->text);
	u->remote = remote;
	u->at = at;
	r = object_list_uploads(object_at(remote->client, at->bucket, at->key), on_upload, u, err);
	return r == 0 && u->error.code ? error_move(err, &u->error) : r;
}

static int run(struct uploads *u)
{
	int code = remote_operands(u->cli, false, cli_has(u->cli, "json"), each_operand, u);

	return code || !u->refused ? code : CLI_EXIT_PERMISSION;
}

int uploads_list(const struct cli *cli)
{
	if (cli_n_operands(cli) == 0)
		return cli_misuse(cli, "--uploads needs a bucket, as in s3://BUCKET");
	return run(&(struct uploads){.cli = cli});
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
