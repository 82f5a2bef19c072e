/* `batch`: many commands, one engine. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/remote.h"
#include "cli/words.h"
#include "base/banned.h"

/* Those that are about objects, and neither long-lived nor asking anything of the terminal. */
static const char *const verbs[] = {
	"cat", "cp", "du", "ls", "mb", "mv", "presign", "put", "rb", "rm", "stat", "sync"};

/* What every line has unless it says otherwise. */
static const char *const inherited[] = {
	"endpoint-url", "profile", "region", "no-sign-request", "google-key"};

struct batch {
	const struct cli *cli;
	const char *name; /* of the file, for messages */
	bool is_stdin;
	uint64_t line;
	uint64_t lines, failed;
	int code; /* the worst so far */
};

static void say_wrong(struct batch *batch, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void say_wrong(struct batch *batch, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	error_set(&err, PENSTOCK_E_INVALID, "%s", buf_str(&text));
	cli_fail(batch->cli, &err);
}

static bool reads_stdin(const struct strlist *words)
{
	if (strcmp(words->items[0], "put") == 0)
		return true;
	for (size_t i = 1; i + 1 < words->n; i++) {
		if (strcmp(words->items[i], "-") == 0)
			return true;
	}
	return false;
}

/* 0: it may be run. */
static int check_words(struct batch *batch, const struct strlist *words)
{
	const char *verb = words->items[0], *near;

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verb, verbs[i]) != 0)
			continue;
		if (!batch->is_stdin || !reads_stdin(words))
			return 0;
		say_wrong(batch, "standard input holds the commands and cannot be stored; put them "
				 "into a file");
		return CLI_EXIT_USAGE;
	}
	near = str_nearest(verb, verbs, ARRAY_SIZE(verbs));
	say_wrong(batch, "'%s' is no verb of a batch%s%s%s", verb, near ? ", did you mean '" : "",
		near ? near : "", near ? "'?" : "");
	return CLI_EXIT_USAGE;
}

/* Behind the verb: what the line itself says comes later and counts. */
static int add_inherited(const struct batch *batch, struct strlist *words)
{
	for (size_t i = 0; i < ARRAY_SIZE(inherited); i++) {
		const struct strlist *values = cli_values(batch->cli, inherited[i]);

		if (!values->n)
			continue;
		if (strlist_addf(words, "--%s", inherited[i]) < 0)
			return -1;
		if (strcmp(inherited[i], "no-sign-request") != 0 &&
			strlist_add(words, values->items[values->n - 1]) < 0)
			return -1;
	}
	return 0;
}

static int run_words(struct batch *batch, const struct strlist *given)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	int code = check_words(batch, given);

	if (code)
		return code;
	if (strlist_add(&words, given->items[0]) < 0 || add_inherited(batch, &words) < 0)
		abort();
	for (size_t i = 1; i < given->n; i++) {
		if (strlist_add(&words, given->items[i]) < 0)
			abort();
	}
	return cli_run_words(batch->cli, &words);
}

static int run_line(struct batch *batch, const char *line)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (words_split(&words, line, &err) < 0) {
		batch->lines++;
		cli_fail(batch->cli, &err);
		return CLI_EXIT_USAGE;
	}
	/* Lines may be pasted from a script. */
	if (words.n && strcmp(words.items[0], "penstock") == 0) {
		free(words.items[0]);
		memmove(words.items, words.items + 1, words.n * sizeof(*words.items));
		words.n--;
	}
	if (!words.n)
		return 0;
	batch->lines++;
	return run_words(batch, &words);
}

static int run_lines(struct batch *batch, FILE *file)
{
	_cleanup_free_ char *line = NULL;
	bool stop = cli_has(batch->cli, "fail-fast");
	size_t size = 0;
	ssize_t len;

	while ((len = getline(&line, &size, file)) > 0 && !remote_interrupted()) {
		_cleanup_free_ char *where = NULL;
		int code;

		batch->line++;
		if (asprintf(&where, "%s:%llu: ", batch->name, (unsigned long long)batch->line) < 0)
			abort();
		cli_set_where(where);
		if ((size_t)len > LIMIT_STRING || strlen(line) != (size_t)len) {
			say_wrong(batch, "the line %s",
				(size_t)len > LIMIT_STRING ? "is too long" : "has a NUL in it");
			code = CLI_EXIT_USAGE;
		} else {
			code = run_line(batch, line);
		}
		cli_set_where(NULL);
		batch->failed += code != 0;
		if (code > batch->code)
			batch->code = code;
		if (code && stop)
			break;
	}
	return ferror(file) ? -1 : 0;
}

static int run_batch(const struct cli *cli)
{
	const char *path = cli_operand(cli, 0);
	struct batch batch = {.cli = cli,
		.is_stdin = strcmp(path, "-") == 0,
		.name = strcmp(path, "-") == 0 ? "<stdin>" : path};
	FILE *file = batch.is_stdin ? stdin : fopen(path, "re");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int r;

	if (!file) {
		error_errno(&err, errno, "cannot read %s", path);
		return cli_fail(cli, &err);
	}
	remote_share_begin();
	r = run_lines(&batch, file);
	if (r < 0 && !remote_interrupted()) {
		error_errno(&err, errno, "cannot read %s", path);
		batch.code = cli_fail(cli, &err);
	}
	if (!batch.is_stdin)
		fclose(file);
	remote_share_end();
	log_info("%llu command%s, %llu failed", (unsigned long long)batch.lines,
		batch.lines == 1 ? "" : "s", (unsigned long long)batch.failed);
	return remote_interrupted() ? 128 + remote_interrupted() : batch.code;
}

static const struct option_spec options[] = {
	{0, "fail-fast", NULL, "Ends at the first line that fails"},
	REMOTE_OPTIONS,
	{0, NULL, NULL, NULL},
};

static const struct command_example examples[] = {
	{"penstock batch jobs.txt", "Runs the commands in a file"},
	{"sed 's|.*|rm s3://data/&|' names | penstock batch -", "Runs those that a pipe gives"},
	{NULL, NULL},
};

static const struct command_exit exits[] = {
	{"66", "There is no such file; or that of a line"},
	{"130", "Interrupted"},
	{NULL, NULL},
};

const struct command command_batch = {
	.name = "batch",
	.summary = "run many commands over the same connections",
	.operands = "FILE",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Reads commands from FILE ('-': standard input), one on each line, as 'cp a.csv "
		"s3://data/', and runs them one after the other with one set of connections and "
		"credentials. The verbs are cat, cp, du, ls, mb, mv, presign, put, rb, rm, stat "
		"and "
		"sync, with their options. Words are divided by blanks; '...', \"...\" and \\ keep "
		"blanks and others together as in a shell, nothing is expanded but what the verbs "
		"themselves expand, and '#' begins a comment.\n\n"
		"A line that fails is told with its number, and the next one runs. The exit code "
		"is "
		"the highest of all lines. Options for the store hold for every line that does not "
		"give its own.",
	.options = options,
	.examples = examples,
	.exits = exits,
	.run = run_batch,
};
