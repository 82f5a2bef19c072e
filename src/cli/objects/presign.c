#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"

enum { HOUR_S = 3600, WEEK_S = 7 * 24 * 3600 };

static int run_presign(const struct cli *cli)
{
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_(location_release) struct location at = {0};
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *method = cli_value(cli, "method");
	int64_t expires_ms;
	int r;

	if (!cli_duration_ms(cli, "expires", HOUR_S * 1000, &expires_ms))
		return CLI_EXIT_USAGE;
	if (expires_ms < 1000 || expires_ms > WEEK_S * 1000LL)
		return cli_misuse(cli, "--expires must be 1s to 7d");
	if (!method)
		method = "GET";
	if (strcmp(method, "GET") != 0 && strcmp(method, "PUT") != 0 &&
		strcmp(method, "HEAD") != 0 && strcmp(method, "DELETE") != 0)
		return cli_misuse(cli, "--method must be GET, HEAD, PUT or DELETE");
	r = remote_open_at(&remote, cli, 0, true, &at, &err);
	if (r == 0)
		r = object_presign(object_at(remote.client, at.bucket, at.key), method,
			(uint32_t)(expires_ms / 1000), &url, &err);
	if (r < 0)
		return remote_fail(cli, &err);
	puts(buf_str(&url));
	if (remote.embedded && !cli_quiet(cli))
		log_warn("the embedded store listens only while it is used, on another port each "
			 "time; for a lasting link run 'penstock serve' and give its URL with "
			 "--endpoint-url");
	return 0;
}

const struct command command_presign = {
	.name = "presign",
	.summary = "make a URL that needs no credentials",
	.operands = "s3://BUCKET/KEY",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Prints a URL that permits one operation on one object, without credentials, "
		"until it expires. Nothing is sent: the object need not exist. The URL is a secret.",
	.options = OPTIONS(
		{0, "expires", "TIME", "Time until the URL expires, at most 7d; default: 1h"},
		{0, "method", "METHOD", "GET (default), HEAD, PUT or DELETE"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock presign s3://cifar10/ckpt.pth",
				     "A link to a checkpoint, valid for an hour"},
		{"penstock presign --method PUT --expires 10m s3://cifar10/in.bin",
			"A link that permits the upload of one object"}),
	.exits = EXITS({"77", "There are no credentials to sign with"}),
	.run = run_presign,
};
