#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "server/serve.h"
#include "base/banned.h"

static int run_serve(const struct cli *cli)
{
	const char *durability = cli_value(cli, "durability");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *address = NULL;
	struct serve_options options = {
		.root = cli_value(cli, "root"), .embedded = cli_has(cli, "embedded")};

	if (!cli_duration_ms(cli, "abort-uploads-after",
		    (int64_t)LIMIT_STORE_UPLOAD_DAYS * 24 * 3600 * 1000, &options.upload_age_ms))
		return CLI_EXIT_USAGE;
	if (!options.root)
		return cli_misuse(cli, "--root DIR is missing");
	if (durability && strcmp(durability, "full") != 0 && strcmp(durability, "relaxed") != 0)
		return cli_misuse(cli, "--durability is full or relaxed");
	options.relaxed = durability && strcmp(durability, "relaxed") == 0;
	if (serve_parse_listen(
		    cli_value(cli, "listen") ? cli_value(cli, "listen") : "127.0.0.1:9000",
		    &address, &options.port, &err) < 0)
		return cli_misuse(cli, "%s", err.message);
	options.address = address;
	if (serve_run(&options, &err) < 0) {
		/* What is wrong here is keys or a credentials file, not a workflow. */
		bool configuration = err.code == PENSTOCK_E_INVALID || err.code == PENSTOCK_E_LIMIT;
		int code = cli_fail(cli, &err);

		return configuration ? CLI_EXIT_CONFIG : code;
	}
	return 0;
}

static const struct option_spec options[] = {
	{0, "root", "DIR", "Where the store is kept; made where missing"},
	{0, "listen", "ADDRESS:PORT",
		"Where to accept requests; port 0 takes a free one. Default: 127.0.0.1:9000"},
	{0, "durability", "full|relaxed",
		"full (default): a write is acknowledged when it is on stable storage. relaxed: a "
		"crash of "
		"the machine may undo the last half minute of changes, whole ones; one of the "
		"process loses nothing"},
	{0, "abort-uploads-after", "DURATION",
		"Drop a multipart upload that nobody finished, this long after it began and got "
		"its last "
		"part, as 12h or 30d; 0 never does. Default: 7d"},
	{0, "embedded", NULL, "Leave when nobody has used the store for some seconds"},
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock serve --root /srv/store --listen 0.0.0.0:9000", "Serve to the network"},
	{"penstock serve --root /tmp/s --listen 127.0.0.1:0 --durability relaxed",
		"A throw-away store on a free port"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"66", "DIR cannot be made or opened"},
	{"69", "another process serves DIR or has the port, or a newer penstock made DIR"},
	{"77", "permission is missing"},
	{"78", "the keys, the credentials file in DIR, or ADDRESS, are wrong"},
	{NULL, NULL},
};

const struct command command_serve = {
	.name = "serve",
	.summary = "serve an S3-compatible object store from a directory",
	.description =
		"Serves the object store in DIR until SIGTERM or SIGINT, and prints \"listening on "
		"URL\" "
		"once it accepts. Addresses are path-style: http://ADDRESS:PORT/BUCKET/KEY. Any "
		"region is "
		"accepted.\n\n"
		"The keys of its account come from PENSTOCK_ACCESS_KEY_ID and "
		"PENSTOCK_SECRET_ACCESS_KEY; "
		"where these are not set they are made once and kept in DIR/credentials (mode "
		"0600), an AWS "
		"credentials file that other tools read with AWS_SHARED_CREDENTIALS_FILE.\n\n"
		"On an address of the loopback it listens on a Unix socket, too, in "
		"/run/user/UID/penstock or /tmp/penstock-UID. penstock itself uses it where both "
		"are of "
		"one user.\n\n"
		"One process serves a directory at a time.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_serve,
};
