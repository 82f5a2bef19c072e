#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/commands.h"
#include "records/records.h"
#include "server/serve.h"

/* Sets `*out` to the directory of the embedded store of this home. */
static int home_store(char **out, struct penstock_error *err)
{
	_cleanup_free_ char *home = NULL;
	int r = records_home(&home, err);

	if (r == 0)
		r = fs_mkdirs(home, 0700, err);
	if (r == 0 && !(*out = path_join(home, "store")))
		r = error_memory(err);
	return r;
}

static int run_serve(const struct cli *cli)
{
	const char *durability = cli_value(cli, "durability");
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *address = NULL;
	_cleanup_free_ char *metrics = NULL;
	int64_t drain_ms;
	_cleanup_free_ char *root = NULL;
	struct serve_options options = {.root = cli_value(cli, "root"),
		.master_key = cli_value(cli, "master-key"),
		.embedded = cli_has(cli, "embedded")};

	if (!cli_duration_ms(cli, "abort-uploads-after",
		    (int64_t)LIMIT_STORE_UPLOAD_DAYS * 24 * 3600 * 1000, &options.upload_age_ms))
		return CLI_EXIT_USAGE;
	if (!cli_duration_ms(
		    cli, "lifecycle-day", (int64_t)24 * 3600 * 1000, &options.lifecycle_day_ms))
		return CLI_EXIT_USAGE;
	if (options.lifecycle_day_ms < 100 || options.lifecycle_day_ms > (int64_t)24 * 3600 * 1000)
		return cli_misuse(cli, "--lifecycle-day must be from 100ms to 24h");
	if (!cli_duration_ms(cli, "log-interval", 60000, &options.log_interval_ms))
		return CLI_EXIT_USAGE;
	if (!cli_duration_ms(cli, "webhook-retry", 1000, &options.webhook_retry_ms))
		return CLI_EXIT_USAGE;
	if (options.webhook_retry_ms < 1 || options.webhook_retry_ms > 60000)
		return cli_misuse(cli, "--webhook-retry must be from 1ms to 60s");
	if (!cli_duration_ms(cli, "replication-retry", 1000, &options.replication_retry_ms))
		return CLI_EXIT_USAGE;
	if (options.replication_retry_ms < 1 || options.replication_retry_ms > 60000)
		return cli_misuse(cli, "--replication-retry must be from 1ms to 60s");
	if (!options.master_key)
		options.master_key = str_env("PENSTOCK_MASTER_KEY_FILE");
	options.relaxed = durability && strcmp(durability, "relaxed") == 0;
	if (serve_parse_listen(
		    cli_value(cli, "listen") ? cli_value(cli, "listen") : "127.0.0.1:9000",
		    &address, &options.port, &err) < 0)
		return cli_misuse(cli, "%s", err.message);
	options.address = address;
	options.log_file = cli_value(cli, "access-log");
	if (cli_has(cli, "metrics")) {
		if (serve_parse_metrics(
			    cli_value(cli, "metrics"), &metrics, &options.metrics_port, &err) < 0)
			return cli_misuse(cli, "%s", err.message);
		options.metrics_address = metrics;
	}
	if (!cli_duration_ms(cli, "drain", 10000, &drain_ms))
		return CLI_EXIT_USAGE;
	options.drain_ms = drain_ms > INT_MAX ? INT_MAX : (int)drain_ms;
	options.accounts = cli_value(cli, "accounts");
	options.replication = cli_value(cli, "replication");
	options.domain = cli_value(cli, "domain");
	if (options.domain && serve_check_domains(options.domain, &err) < 0)
		return cli_misuse(cli, "%s", err.message);
	options.tls_cert = cli_value(cli, "tls-cert");
	options.tls_key = cli_value(cli, "tls-key");
	if (!options.tls_cert != !options.tls_key)
		return cli_misuse(cli, "--tls-cert and --tls-key must be used together");
	if (!options.root) {
		if (home_store(&root, &err) < 0)
			return cli_fail(cli, &err);
		options.root = root;
	}
	if (serve_run(&options, &err) < 0) {
		/* PENSTOCK_E_INVALID is about the configuration here (keys or a credentials file),
		 * not about a workflow. */
		bool configuration = err.code == PENSTOCK_E_INVALID || err.code == PENSTOCK_E_LIMIT;
		int code = cli_fail(cli, &err);

		return configuration ? CLI_EXIT_CONFIG : code;
	}
	return 0;
}

const struct command command_serve = {
	.name = "serve",
	.group = "This machine",
	.summary = "serve an S3-compatible object store from a directory",
	.description =
		"Serves the object store in DIR until SIGTERM or SIGINT. Once it accepts "
		"connections, it prints 'listening on URL', and on stderr the place of the keys "
		"and an example. Addresses are path-style, http://ADDRESS:PORT/BUCKET/KEY; "
		"--domain adds virtual-host style. Any region is accepted.\n\n"
		"The keys of the store's own account are read from PENSTOCK_ACCESS_KEY_ID and "
		"PENSTOCK_SECRET_ACCESS_KEY; if these are not set, keys are generated once and "
		"kept in DIR/credentials (mode 0600), an AWS credentials file that other tools "
		"read with AWS_SHARED_CREDENTIALS_FILE.\n\n"
		"Objects are encrypted if a request or their bucket asks for it. The master key is "
		"in DIR/master-key (mode 0600), which is made if it is missing, or in the file "
		"that --master-key names: 64 hexadecimal digits on a line. Encrypted objects are "
		"lost without the master key. To replace the key, put the line of a new key above "
		"the line of the old key and restart; no body is rewritten, and the old line is "
		"then no longer needed.\n\n"
		"On a loopback address the server also listens on a Unix socket, in "
		"/run/user/UID/penstock or /tmp/penstock-UID, which penstock uses if both run as "
		"the same user.\n\n"
		"DIR/webhooks names the webhooks that buckets may notify, one on a line: NAME URL "
		"[TOKEN] [account=NUMBER]. The file is read at the start; with tokens it must be "
		"accessible only to its owner (chmod 600).\n\n"
		"With --log-level debug each request is a line on stderr. Any reply, such as 403 "
		"to an unsigned request, shows that the store is alive. Only one process can serve "
		"a directory at a time.",
	.options = OPTIONS(
		{0, "root", "DIR",
			"Directory of the store; created if missing. Default: the embedded store of this home"},
		{0, "listen", "ADDRESS:PORT",
			"Address to listen on; port 0 takes a free port. Default: 127.0.0.1:9000"},
		{0, "accounts", "FILE",
			"Add the accounts in FILE, a JSON array of objects with number (12 digits), name, "
			"access_key_id and secret_access_key, and optionally id and email; an "
			"access_key_id of null revokes an account"},
		{0, "replication", "FILE",
			"The destinations of replication, a JSON array of objects with name, "
			"endpoint, optionally bucket, region and account (whose buckets may be sent "
			"there), and either access_key_id and secret_access_key or profile; a rule "
			"of a bucket names a destination as arn:aws:s3:::NAME. A FILE with secret "
			"keys must not be accessible to other users"},
		{0, "domain", "NAME[,NAME]",
			"Serve BUCKET at the host BUCKET.NAME, too (virtual-host style); "
			"path-style stays valid at other hosts"},
		{0, "tls-cert", "FILE",
			"Serve HTTPS with the certificate chain in FILE, in PEM; a renewed file "
			"is used within seconds, or after SIGHUP"},
		{0, "tls-key", "FILE", "The private key of the certificate, in PEM"},
		{0, "durability", "full|relaxed",
			"full (default): a write is acknowledged when it is on stable storage. relaxed: "
			"a crash of the machine may undo whole changes of the last half minute; a crash "
			"of the process loses nothing"},
		{0, "master-key", "FILE",
			"File of the master key of encrypted objects; created if missing. Default: "
			"$PENSTOCK_MASTER_KEY_FILE, else DIR/master-key"},
		{0, "abort-uploads-after", "DURATION",
			"Abort an unfinished multipart upload of any bucket this long after it was "
			"started and received its last part, such as 12h or 30d; 0 disables the "
			"limit. Default: 7d"},
		{0, "log-interval", "DURATION",
			"Deliver the access logs of buckets this long after their first line; a "
			"crash loses undelivered lines. Default: 60s"},
		{0, "webhook-retry", "DURATION",
			"Pause before a failed delivery to a webhook is repeated; it doubles each "
			"time, up to 60s. Default: 1s"},
		{0, "replication-retry", "DURATION",
			"Pause before a version that could not be sent to another store is sent again; "
			"it doubles each time, up to 60s. Default: 1s"},
		{0, "lifecycle-day", "DURATION",
			"Length of a day of lifecycle rules, to try them out: objects expire that "
			"much sooner, and replies name the dates of real days. Default: 24h"},
		{0, "access-log", "FILE",
			"Append a line for each request to FILE, in the format of S3's server access "
			"logs; SIGHUP reopens it"},
		{0, "metrics", "[ADDRESS:]PORT",
			"Serve /metrics for Prometheus, /health/live and /health/ready at this "
			"address, without authentication. Default address: 127.0.0.1"},
		{0, "drain", "DURATION",
			"Time for requests in flight to end after SIGTERM; requests that wait in a queue "
			"then get 503. Default: 10s"},
		{0, "embedded", NULL, "Exit when the store has not been used for some seconds"}),
	.examples = EXAMPLES({"penstock serve", "Open the embedded store to other tools"},
		{"penstock serve --root /srv/store --listen 0.0.0.0:9000", "Serve to the network"},
		{"penstock serve --root /tmp/s --listen 127.0.0.1:0 --durability relaxed",
			"A throw-away store on a free port"}),
	.exits = EXITS({"66", "DIR cannot be created or opened"},
		{"69", "Another process serves DIR or uses the port, or a newer penstock created "
		       "DIR"},
		{"77", "Permission denied"},
		{"78", "The keys, the credentials file in DIR, or ADDRESS are invalid, or the "
		       "master key of encrypted objects is missing"}),
	.run = run_serve,
};
