/* `penstock ui`: serves the web page of the runs. */
#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "records/records.h"
#include "server/serve.h"
#include "ui/ui.h"

#define ADDRESS "127.0.0.1"
#define PORT	8780
enum { WAIT_MS = 100 };

/* Starts the server on the port of `options`. If the user has not chosen the port and it is in use,
 * starts the server on a free port. */
static int start(
	struct ui **ui, struct ui_options *options, bool chosen, struct penstock_error *err)
{
	int r = ui_start(ui, options, err);

	if (chosen || !error_expected(r, PENSTOCK_E_EXISTS, err))
		return r;
	options->port = 0;
	return ui_start(ui, options, err);
}

static int run_ui(const struct cli *cli)
{
	const char *listen = cli_value(cli, "listen");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *address = NULL, *home = NULL;
	struct ui_options options = {.address = ADDRESS,
		.port = PORT,
		.read_only = cli_has(cli, "read-only"),
		.hosts = cli_values(cli, "host"),
		.outputs = cli_values(cli, "output")};
	const atomic_int *interrupted = cli_watch_signals();
	struct ui *ui = NULL;
	int r;

	if (listen) {
		if (serve_parse_listen(listen, &address, &options.port, &err) < 0)
			return cli_misuse(cli, "%s", err.message);
		options.address = address;
	}
	r = records_home(&home, &err);
	if (r == 0)
		r = fs_mkdirs(home, 0700, &err);
	options.home = home;
	if (r == 0)
		r = start(&ui, &options, listen != NULL, &err);
	if (r == -(int)PENSTOCK_E_INVALID)
		return cli_misuse(cli, "%s", err.message);
	if (r < 0)
		return cli_fail(cli, &err);
	printf("open %s\n", ui_url(ui));
	fflush(stdout);
	while (!atomic_load(interrupted))
		clock_sleep_ms(WAIT_MS);
	ui_stop(ui);
	return 0;
}

const struct command command_ui = {
	.name = "ui",
	.summary = "serve a web page of the runs, their logs, metrics and files",
	.description =
		"Serves a page for a browser until Ctrl-C, and prints its address. The page shows "
		"the runs of this home, their steps, logs, metrics, checkpoints and outputs, the "
		"resources of this machine, and the buckets of all stores that penstock knows; it "
		"stops and resumes runs, and uploads and removes objects.\n"
		"\n"
		"Everyone who has the address may do what you may do, so the address has a token, "
		"and is on the loopback interface only, unless --listen names another address. Use "
		"'ssh -L 8780:127.0.0.1:8780 HOST' to look at the page of another machine.",
	.options = OPTIONS({0, "listen", "ADDRESS:PORT",
				   "Address to listen on; port 0 takes a free port. Default: "
				   "127.0.0.1:8780, or a free port if that is in use"},
		{0, "output", "[STORE:]s3://PLACE",
			"Also show the runs of other machines with an output there, or in a "
			"directory there. STORE is a profile of ~/.aws/config, or 'embedded'; "
			"default: the store of the environment. May be repeated"},
		{0, "host", "NAME",
			"Accept requests for this host name, in addition to localhost and the name of "
			"this machine; requests for other names are refused; may be repeated"},
		{0, "read-only", NULL, "Refuse to change runs and objects"}),
	.examples = EXAMPLES({"penstock ui", "Show the runs of this machine"},
		{"penstock ui --output s3://bucket/experiments/",
			"Also show the runs of all machines with an output there"},
		{"penstock ui --read-only --listen 0.0.0.0:8780 --host gpu7.example.com",
			"Let colleagues look at the runs"}),
	.exits = EXITS({"69", "Another process uses the port"}),
	.run = run_ui,
};
