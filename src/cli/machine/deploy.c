/* `penstock deploy`: serves the newest version of a model. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/objects/remote.h"
#include "deploy/deploy.h"
#include "net/http/http.h"
#include "records/records.h"
#include "server/serve.h"

#define ADDRESS	   "127.0.0.1:8000"
#define CACHE_SIZE (INT64_C(50) * 1000 * 1000 * 1000)

/* Reads "socket", "reuseport" or the name of a signal. */
static bool read_traffic(const char *text, struct deploy_options *out)
{
	static const struct {
		const char *name;
		int number;
	} signals[] = {{"HUP", SIGHUP}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}};

	if (!text || strcmp(text, "socket") == 0)
		out->traffic = DEPLOY_SOCKET;
	else if (strcmp(text, "reuseport") == 0)
		out->traffic = DEPLOY_REUSEPORT;
	else
		out->traffic = DEPLOY_SIGNAL;
	for (size_t i = 0; out->traffic == DEPLOY_SIGNAL && i < ARRAY_SIZE(signals); i++) {
		if (strcmp(signals[i].name, text) == 0)
			out->signal = signals[i].number;
	}
	return out->traffic != DEPLOY_SIGNAL || out->signal;
}

/* Reads METRIC:max or METRIC:min. `metric` must have room for the name. */
static bool read_best(const char *text, char *metric, size_t size, struct deploy_options *out)
{
	const char *colon = strrchr(text, ':');

	if (!colon || colon == text || (size_t)(colon - text) >= size ||
		(strcmp(colon, ":max") != 0 && strcmp(colon, ":min") != 0))
		return false;
	snprintf(metric, size, "%.*s", (int)(colon - text), text);
	out->best = metric;
	out->best_is_max = strcmp(colon, ":max") == 0;
	return true;
}

/* Reads the times and numbers. Returns 0 or an exit code. */
static int read_numbers(const struct cli *cli, struct deploy_options *out)
{
	const char *size = cli_value(cli, "cache-size");
	int64_t unavailable;

	out->cache_size = CACHE_SIZE;
	if (size && !str_to_size(size, &out->cache_size))
		return cli_misuse(cli, "invalid --cache-size '%s': use a size such as 50GB", size);
	if (!cli_duration_ms(cli, "interval", 10000, &out->interval_ms) ||
		!cli_duration_ms(cli, "settle", 5000, &out->settle_ms) ||
		!cli_duration_ms(cli, "start-timeout", 300000, &out->start_ms) ||
		!cli_duration_ms(cli, "watch", 10000, &out->watch_ms) ||
		!cli_duration_ms(cli, "drain", 30000, &out->drain_ms) ||
		!cli_number(cli, "unavailable", 1, 100000, 1, &unavailable))
		return CLI_EXIT_USAGE;
	if (out->interval_ms < 100)
		return cli_misuse(cli, "invalid --interval '%s': use at least 100ms",
			cli_value(cli, "interval"));
	out->unavailable = (unsigned)unavailable;
	return 0;
}

/* Refuses a missing command, an invalid --health, and options that cannot be used together. Returns
 * 0 or an exit code. */
static int check(const struct cli *cli, const struct deploy_options *o)
{
	struct in6_addr address;

	if (!o->command[0])
		return cli_misuse(cli, "missing COMMAND after the place of the model");
	if (o->health && *o->health != '/' && !str_starts(o->health, "http://") &&
		!str_starts(o->health, "https://"))
		return cli_misuse(cli, "invalid --health '%s': use /PATH or a URL", o->health);
	if (o->traffic == DEPLOY_REUSEPORT && (!o->health || !strstr(o->health, "{health_port}")))
		return cli_misuse(cli,
			"--traffic reuseport needs a --health URL with {health_port}: an answer on "
			"the port of the service may come from either server");
	if (o->traffic == DEPLOY_SIGNAL && !o->health)
		return cli_misuse(cli, "--traffic %s needs --health", cli_value(cli, "traffic"));
	if (o->traffic == DEPLOY_SOCKET && strcmp(o->host, "::") != 0 &&
		inet_pton(AF_INET6, o->host, &address) == 1)
		return cli_misuse(cli,
			"invalid --listen '%s': --traffic socket needs an IPv4 address, or [::]",
			cli_value(cli, "listen"));
	return 0;
}

/* Reads all options, but not the place. Returns 0 or an exit code. */
static int read_options(const struct cli *cli, struct deploy_options *out, char **address,
	char *metric, size_t metric_size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *best = cli_value(cli, "best"), *listen = cli_value(cli, "listen");
	int code;

	if (best && !read_best(best, metric, metric_size, out))
		return cli_misuse(cli, "invalid --best '%s': use METRIC:max or METRIC:min", best);
	if (!read_traffic(cli_value(cli, "traffic"), out))
		return cli_misuse(cli,
			"invalid --traffic '%s': use socket, reuseport, HUP, USR1 or USR2",
			cli_value(cli, "traffic"));
	if (serve_parse_listen(listen ? listen : ADDRESS, address, &out->port, &err) < 0)
		return cli_misuse(cli, "%s", err.message);
	out->host = *address;
	out->health = cli_value(cli, "health");
	out->ready = cli_value(cli, "ready");
	out->no_state = cli_has(cli, "no-state");
	code = read_numbers(cli, out);
	return code ? code : check(cli, out);
}

static int run_deploy(const struct cli *cli)
{
	_cleanup_(location_release) struct location at = {0};
	_cleanup_(remote_release) struct remote remote = {0};
	_cleanup_(strlist_release) struct strlist command = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *address = NULL, *home = NULL, *prefix = NULL;
	struct deploy_options options = {0};
	char metric[LIMIT_METRICS_NAME];
	bool status = cli_has(cli, "status");
	int r = 0, code;

	if (!deploy_is_needed())
		return 0;
	if (!status && cli_has(cli, "json"))
		return cli_misuse(cli, "--json needs --status");
	if (status && cli_n_operands(cli) > 1)
		return cli_misuse(cli, "--status starts no server, so it takes no COMMAND");
	for (size_t i = 1; i < cli_n_operands(cli); i++) {
		if (strlist_add(&command, cli_operand(cli, i)) < 0)
			r = error_memory(&err);
	}
	options.command = command.n ? (const char *const *)command.items
				    : (const char *const[]){NULL};
	code = status || r < 0 ? 0 : read_options(cli, &options, &address, metric, sizeof(metric));
	if (code)
		return code;
	/* A signal does not cancel requests of this engine: the last request, after the signal,
	 * removes the entry of this replica from the store. */
	if (r == 0)
		r = http_engine_new(&remote.engine, &(struct http_engine_options){0}, &err);
	if (r == 0)
		r = remote_open_at(&remote, cli, 0, false, &at, &err);
	if (r == 0)
		r = records_home(&home, &err);
	if (r == 0)
		r = fs_mkdirs(home, 0700, &err);
	if (r == 0 && !(prefix = location_prefix(at.key)))
		r = error_memory(&err);
	if (r == 0 && status)
		r = deploy_print(
			remote.client, at.bucket, prefix, cli_has(cli, "json"), cli_out(), &err);
	if (r == 0 && !status &&
		(str_ends(prefix, "/../") || str_ends(prefix, "/./") ||
			strcmp(prefix, "../") == 0 || strcmp(prefix, "./") == 0))
		return cli_misuse(cli, "'%s' cannot be the name of a directory", prefix);
	if (r < 0 || status)
		return r < 0 ? remote_fail(cli, &err) : 0;
	options.engine = remote.engine;
	options.client = remote.client;
	options.bucket = at.bucket;
	options.prefix = prefix;
	options.home = home;
	options.cancel = cli_watch_signals();
	r = deploy_run(&options, &err);
	return r < 0 ? remote_fail(cli, &err) : 0;
}

const struct command command_deploy = {
	.name = "deploy",
	.summary = "serve the newest version of a model, and move to later ones without downtime",
	.operands = "s3://BUCKET/MODEL -- COMMAND [ARGUMENT...]",
	.min_operands = 1,
	.max_operands = UINT32_MAX,
	.own_operands = 1,
	.description =
		"Fetches the newest version of a model, verifies it, and starts COMMAND as its "
		"server. When the bucket has a newer version, a second server starts next to the "
		"first; once it is healthy it gets all new connections, and after --watch the "
		"first one gets SIGTERM, to end its connections and exit. A version whose server "
		"fails is given up, and the previous version stays in service.\n\n"
		"A version is a directory with a number (MODEL/1/, MODEL/2/, as TensorFlow Serving "
		"and Triton have them) or a checkpoint of a run (with COMMIT.json). If MODEL has "
		"neither, all objects below it are one version, as in a model store of TorchServe. "
		"A version with a commit is complete when all its files are there; any other "
		"version when it did not change for the time of --settle, or when it has the "
		"object that --ready names.\n\n"
		"In COMMAND and --health these words are replaced, and the server has them in its "
		"environment: {model} (PENSTOCK_MODEL, directory of the version), {base} "
		"(PENSTOCK_MODEL_BASE, directory with its number in it), {repository} "
		"(PENSTOCK_MODEL_REPOSITORY, directory with the model in it), {version} "
		"(PENSTOCK_MODEL_VERSION), {host} (HOST), {port} (PORT) and {health_port} "
		"(PENSTOCK_HEALTH_PORT, a port that no other server has).\n\n"
		"With --traffic socket, the default, the server gets a listening socket as "
		"descriptor 3, as from systemd. With reuseport it listens on {port} itself, with "
		"SO_REUSEPORT; both versions answer for a short time. With a signal (HUP, USR1 or "
		"USR2) one server stays, {model} is a symbolic link to the version, and the signal "
		"makes the server load it.\n\n"
		"If this process is killed, another one continues, and the server does not notice. "
		"Replicas of many machines change their version one at a time, or --unavailable at "
		"a time; MODEL/.penstock/deploy.json has the version of each replica.",
	.options = OPTIONS(
		{0, "listen", "ADDRESS:PORT",
			"Address of the service; port 0 takes a free port. Default: " ADDRESS},
		{0, "traffic", "HOW", "socket, reuseport, HUP, USR1 or USR2; default: socket"},
		{0, "health", "URL",
			"Path or URL: a server is healthy when it replies with a status from 200 to "
			"299. Default: / with any status below 500"},
		{0, "best", "METRIC:ORDER",
			"Serve the checkpoint with the best metric (ORDER is max or min) instead of "
			"the newest version"},
		{0, "ready", "NAME", "A version is complete when it has an object of that name"},
		{0, "settle", "TIME",
			"A version without a commit is complete when it did not change for this "
			"long; default: 5s"},
		{0, "interval", "TIME", "Time between two listings of the bucket; default: 10s"},
		{0, "start-timeout", "TIME",
			"A server that is not healthy after this long has failed; default: 5m"},
		{0, "watch", "TIME",
			"The old server stays for this long after the new one took over, and "
			"returns if the new one fails; default: 10s"},
		{0, "drain", "TIME",
			"Time from the SIGTERM to a server until it is killed; default: 30s"},
		{0, "cache-size", "BYTES",
			"Space for versions of this model on this machine; default: 50GB"},
		{0, "unavailable", "N",
			"Number of replicas, over all machines, that change their version at a "
			"time; default: 1"},
		{0, "no-state", NULL,
			"Write nothing to the bucket: replicas change their versions independently"},
		{0, "status", NULL, "Print the replicas and their versions, and exit"},
		{0, "json", NULL, "With --status: print an object"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock deploy s3://models/mnist -- uvicorn app:app --fd 3",
				     "Serve the newest version"},
		{"penstock deploy s3://out/checkpoints --best accuracy:max -- ./serve {model}",
			"Serve the best checkpoint of a run"},
		{"penstock deploy s3://models/m --traffic HUP --health /health -- gunicorn app",
			"Keep one server, and signal it to load each version"},
		{"penstock deploy --status s3://models/mnist", "Show the version of each replica"}),
	.exits = EXITS({"66", "There is no such bucket or program; with --status: no replica"},
		{"69", "The store does not respond, or another process uses the address"},
		{"77", "The store denies access, or there are no credentials"}),
	.run = run_deploy,
};
