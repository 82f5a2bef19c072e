/* `penstock tensorboard`: starts the user's TensorBoard on the logs of runs, without a copy. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/frame/interrupt.h"
#include "cli/history/artifacts_place.h"
#include "cli/objects/remote.h"
#include "cli/print/util.h"
#include "net/credentials/credentials.h"
#include "records/layout.h"
#include "run/step/ranks.h"
#include "run/step/store_environment.h"

enum {
	LOOK_MS = 100, /* time between two checks of the directories of live runs */
	END_MS = 10000 /* time after which a TensorBoard that does not end is killed */
};

struct session {
	struct records *records;
	char *home;
	struct artifacts_place *places; /* one for each operand */
	struct remote *remotes;
	size_t n;
	char **dirs; /* for each operand, the directory of a live run; NULL for other operands */
	struct strlist logs; /* "NAME:PLACE" */
	struct object_client *client; /* client of a store with logs; NULL if all logs are local */
};

static void session_release(struct session *s)
{
	for (size_t i = 0; i < s->n; i++) {
		artifacts_place_release(&s->places[i]);
		remote_release(&s->remotes[i]);
		free(s->dirs[i]);
	}
	free(s->dirs);
	free(s->places);
	free(s->remotes);
	strlist_release(&s->logs);
	records_free(s->records);
	free(s->home);
}

/* ---- finding the logs ---- */

/* Adds a log. Replaces the characters in `name` that TensorBoard uses to separate names and places.
 * Fails if `place` has a comma. */
static int add_log(
	struct session *s, const char *name, const char *place, struct penstock_error *err)
{
	_cleanup_free_ char *safe = strdup(name);

	if (!safe)
		return error_memory(err);
	for (char *p = safe; *p; p++)
		if (strchr(",:", *p))
			*p = '_';
	if (strchr(place, ','))
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot pass '%s' to TensorBoard: it has a comma", place);
	return strlist_addf(&s->logs, "%s:%s", safe, place) < 0 ? error_memory(err) : 0;
}

/* Fails if the logs of this operand are in another store than those of earlier operands:
 * TensorBoard reads from only one S3 store at a time. */
static int check_store(struct session *s, struct object_client *client, const char *word,
	struct penstock_error *err)
{
	const struct s3_settings *new = object_client_settings(client), *old;

	if (new->google)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot open '%s': TensorBoard reads gs:// only with TensorFlow; copy "
			"the logs with 'penstock sync'",
			word);
	if (!s->client) {
		s->client = client;
		return 0;
	}
	old = object_client_settings(s->client);
	if (strcmp(old->endpoint_url, new->endpoint_url) != 0)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot open '%s' together with the others: TensorBoard reads from one "
			"store at a time, and the logs are at %s and %s",
			word, old->endpoint_url, new->endpoint_url);
	return 0;
}

static int add_stored(struct session *s, struct object_client *client, const char *bucket,
	const char *prefix, const char *name, struct penstock_error *err)
{
	_cleanup_free_ char *url = str_printf("s3://%s/%s", bucket, prefix);
	int r = url ? check_store(s, client, name, err) : error_memory(err);

	return r < 0 ? r : add_log(s, name, url, err);
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static int add_place(struct session *s, const struct cli *cli, size_t i, struct penstock_error *err)
{
	_cleanup_(location_release) struct location at = {0};
	int r = remote_open_at(&s->remotes[i], cli, i, false, &at, err);

	return r < 0 ? r
		     : add_stored(s, s->remotes[i].client, at.bucket, at.key,
			       *at.key ? last_name(at.key) : at.bucket, err);
}

static int add_dir(struct session *s, const char *word, struct penstock_error *err)
{
	_cleanup_free_ char *path = realpath(word, NULL);

	return path ? add_log(s, last_name(path), path, err)
		    : error_errno(err, errno, "cannot find '%s'", word);
}

/* Adds the log of a run. Reads a live run from its directory even if its output is in a store,
 * because the files on this machine are newer. */
static int add_run(struct session *s, const char *word, size_t i, struct penstock_error *err)
{
	struct artifacts_place *place = &s->places[i];
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	int r = artifacts_find(place, s->home, s->records, word, false, err);

	if (r == 0 && *place->id)
		r = run_layout_init(&layout, s->home, place->id, 1, err);
	if (r < 0)
		return r;
	if (place->dir)
		return add_log(s, place->name, place->dir, err);
	if (place->live && layout.output && access(layout.output, F_OK) == 0) {
		s->dirs[i] = take_pointer(layout.output);
		return add_log(s, place->name, s->dirs[i], err);
	}
	r = artifacts_open(place, s->home, err);
	return r < 0 ? r
		     : add_stored(s, place->store->client, place->store->bucket, place->prefix,
			       place->name, err);
}

/* Returns the number of operands before the options of TensorBoard. */
static size_t count_logs(const struct cli *cli)
{
	size_t n = 0;

	while (n < cli_n_operands(cli) && *cli_operand(cli, n) != '-')
		n++;
	return n;
}

static int find_logs(struct session *s, const struct cli *cli, size_t n, struct penstock_error *err)
{
	int r = 0;

	s->places = calloc(n, sizeof(*s->places));
	s->remotes = calloc(n, sizeof(*s->remotes));
	s->dirs = calloc(n, sizeof(*s->dirs));
	if (!s->places || !s->remotes || !s->dirs)
		return error_memory(err);
	s->n = n;
	for (size_t i = 0; r == 0 && i < s->n; i++) {
		const char *word = cli_operand(cli, i);

		if (location_is_object(word)) {
			r = add_place(s, cli, i, err);
			continue;
		}
		if (location_is_dir(word)) {
			r = add_dir(s, word, err);
			continue;
		}
		if (!s->records)
			r = show_open(&s->records, &s->home, err);
		if (r == 0)
			r = add_run(s, word, i, err);
	}
	return r;
}

/* Returns true if the directory of a live run was removed: the run has then ended, and its output
 * is only in the store. Reports each directory once. */
static bool has_lost_dir(struct session *s)
{
	bool lost = false;

	for (size_t i = 0; i < s->n; i++) {
		if (s->dirs[i] && access(s->dirs[i], F_OK) < 0 && errno == ENOENT) {
			free(take_pointer(s->dirs[i]));
			lost = true;
		}
	}
	return lost;
}

/* Finds the logs again. If the logs cannot be opened, returns false and does not change `s`. */
static bool find_again(struct session *s, const struct cli *cli)
{
	_cleanup_(session_release) struct session found = {0};
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct session before = *s;

	if (find_logs(&found, cli, s->n, &err) < 0) {
		log_warn("%s", err.message);
		return false;
	}
	*s = found;
	found = before;
	log_info("TensorBoard restarts: a run has ended, and its output is in its store now");
	return true;
}

/* ---- running TensorBoard ---- */

/* Adds keys that do not expire. Keys that expire are not added: boto3 finds and renews them itself,
 * from the same sources as penstock. */
static int add_keys(
	const struct s3_settings *settings, struct strlist *env, struct penstock_error *err)
{
	_cleanup_(credentials_release) struct credentials keys = {0};
	int r = credentials_get(settings->credentials, &keys, err);

	if (r < 0 || !keys.access_key_id || keys.expires_at_ns)
		return r;
	return store_environment_keys(env, &keys) < 0 ? error_memory(err) : 0;
}

/* Makes the environment of TensorBoard, with the variables of boto3, which TensorBoard uses to read
 * S3. */
static int make_environment(
	const struct session *s, struct strlist *env, struct penstock_error *err)
{
	const struct s3_settings *settings;

	if (strlist_add_all(env, (const char *const *)environ) < 0)
		return error_memory(err);
	if (!s->client)
		return 0;
	settings = object_client_settings(s->client);
	if (store_environment_place(env, settings) < 0 ||
		strlist_set(env, "AWS_ENDPOINT_URL_S3", settings->endpoint_url) < 0 ||
		strlist_set(env, "S3_ENDPOINT", settings->endpoint_url) < 0) /* TensorBoard's own */
		return error_memory(err);
	return add_keys(settings, env, err);
}

static int make_words(const struct cli *cli, const struct session *s, const char *program, int port,
	struct strlist *words)
{
	_cleanup_(buf_release) struct buf logs = BUF_INIT(LIMIT_EXEC_WORDS);
	const char *address = cli_value(cli, "bind");

	for (size_t i = 0; i < s->logs.n; i++)
		buf_printf(&logs, "%s%s", i ? "," : "", s->logs.items[i]);
	if (buf_failed(&logs) || strlist_add(words, program) < 0 ||
		strlist_addf(words, "--logdir_spec=%s", logs.data) < 0 ||
		strlist_addf(words, "--port=%d", port) < 0 ||
		strlist_addf(words, "--host=%s", address ? address : "127.0.0.1") < 0)
		return -1;
	/* TensorBoard's fast loader reads S3 only from Amazon's endpoints. */
	if (s->client && strlist_add(words, "--load_fast=false") < 0)
		return -1;
	for (size_t i = s->n; i < cli_n_operands(cli); i++)
		if (strlist_add(words, cli_operand(cli, i)) < 0)
			return -1;
	return 0;
}

/* Runs TensorBoard until it ends, a signal arrives or the logs have moved. Returns 1 if the logs
 * have moved. */
static int run_once(const struct cli *cli, struct session *s, const char *program, int port,
	int *status, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist words = {0}, env = {0};
	struct process process = PROCESS_INIT;
	bool moved = false;
	int r = make_environment(s, &env, err);

	if (r == 0 && make_words(cli, s, program, port, &words) < 0)
		r = error_memory(err);
	if (r == 0)
		r = process_spawn(&process,
			&(struct process_spec){.argv = (const char *const *)words.items,
				.envp = (const char *const *)env.items,
				.stdin_fd = -1,
				.stdout_fd = STDOUT_FILENO,
				.stderr_fd = STDERR_FILENO,
				.die_with_parent = true},
			err);
	if (r < 0)
		return r;
	while (!process_wait(&process, LOOK_MS, status)) {
		moved = has_lost_dir(s) && find_again(s, cli);
		if (!moved && !cli_interrupted())
			continue;
		process_end(&process, END_MS, status);
		break;
	}
	process_release(&process);
	return moved;
}

static int start(
	const struct cli *cli, struct session *s, int port, int *code, struct penstock_error *err)
{
	_cleanup_free_ char *program = fs_find_program(str_env("PATH"), "tensorboard");
	int status = 0, r = 0;

	if (!program)
		return error_set(err, PENSTOCK_E_UNAVAILABLE,
			"cannot find 'tensorboard': it is not in PATH; install it with 'pip install "
			"tensorboard boto3'");
	/* TensorBoard gets the same port after each restart. */
	if (port == 0)
		r = free_ports(&port, 1, err);
	if (r < 0)
		return r;
	cli_watch_signals();
	do
		r = run_once(cli, s, program, port, &status, err);
	while (r == 1 && !cli_interrupted());
	*code = cli_interrupted()     ? 128 + cli_interrupted()
		: WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				      : WEXITSTATUS(status);
	return r < 0 ? r : 0;
}

static int run_tensorboard(const struct cli *cli)
{
	_cleanup_(session_release) struct session s = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t port;
	int code = 0, r;

	if (!cli_number(cli, "port", 0, UINT16_MAX, 6006, &port))
		return CLI_EXIT_USAGE;
	if (count_logs(cli) == 0)
		return cli_misuse(cli, "expected a RUN, a place or a directory");
	r = find_logs(&s, cli, count_logs(cli), &err);
	if (r == 0)
		r = start(cli, &s, (int)port, &code, &err);
	return r < 0 ? remote_fail(cli, &err) : code;
}

const struct command command_tensorboard = {
	.name = "tensorboard",
	.summary = "open TensorBoard on the logs of runs",
	.operands = "RUN|s3://PLACE|DIR... [-- OPTIONS]",
	.min_operands = 1,
	.max_operands = UINT_MAX,
	.description =
		"Starts the TensorBoard that is in PATH on the outputs of these runs, while they "
		"are written, and without a copy: a run of this machine is read from its "
		"directory, any other from its store. When a run ends, TensorBoard restarts, on "
		"the same port, and reads the run from its store. TensorBoard reads S3 with "
		"boto3, which has to be installed next to it ('pip install tensorboard boto3'). "
		"OPTIONS are passed to TensorBoard.\n"
		"\n"
		"Ends when TensorBoard ends, with the same exit code.",
	.options = OPTIONS({0, "port", "N", "Port of the page; 0 for any free port; default: 6006"},
		{0, "bind", "ADDRESS", "Address of the page; default: 127.0.0.1"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock tensorboard cifar10", "Watch a run"},
		{"penstock tensorboard cifar10 mnist --port 0",
			"Compare two runs, on any free port"},
		{"penstock tensorboard s3://bucket/results -- --reload_interval 1",
			"Watch a run of another machine, with an option of TensorBoard"}),
	.exits = EXITS({"66", "There is no such run or bucket"},
		{"69", "TensorBoard is not installed"}, {"77", "The store denies access"},
		{"128+n", "Ended by signal n"}),
	.run = run_tensorboard,
};
