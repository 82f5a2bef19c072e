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
#include "cli/objects/batch_lines.h"
#include "cli/commands.h"
#include "cli/objects/remote.h"
#include "cli/frame/interrupt.h"
#include "cli/frame/words.h"
#include "base/banned.h"

#define JOBS_DEFAULT 8

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
	uint64_t line; /* its number */
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

/* NULL: there is nothing to be run, and `*code` is the line's. */
static struct cli *read_words(struct batch *batch, const struct strlist *given, int *code)
{
	_cleanup_(strlist_release) struct strlist words = {0};

	*code = check_words(batch, given);
	if (*code)
		return NULL;
	if (strlist_add(&words, given->items[0]) < 0 || add_inherited(batch, &words) < 0)
		abort();
	for (size_t i = 1; i < given->n; i++) {
		if (strlist_add(&words, given->items[i]) < 0)
			abort();
	}
	return cli_read_words(batch->cli, &words, code);
}

static void read_line(struct batch *batch, struct batch_line *line, const char *text)
{
	_cleanup_(strlist_release) struct strlist words = {0};
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (words_split(&words, text, &err) < 0) {
		cli_fail(batch->cli, &err);
		line->code = CLI_EXIT_USAGE;
		return;
	}
	/* Lines may be pasted from a script. */
	if (words.n && strcmp(words.items[0], "penstock") == 0) {
		free(words.items[0]);
		memmove(words.items, words.items + 1, words.n * sizeof(*words.items));
		words.n--;
	}
	line->empty = !words.n;
	if (words.n)
		line->cli = read_words(batch, &words, &line->code);
}

/* What is wrong with it is among what the line prints; --quiet and --log-level are its own. */
static struct batch_line *make_line(
	struct batch *batch, struct batch_lines *lines, const struct buf *text, bool too_long)
{
	struct batch_line *line;
	char *where = NULL;

	if (asprintf(&where, "%s:%llu: ", batch->name, (unsigned long long)batch->line) < 0)
		abort();
	line = batch_line_new(where);
	if (!line)
		abort();
	line->lines = lines;
	batch_line_take(line);
	log_own_level();
	if (too_long || memchr(buf_str(text), '\0', text->len)) {
		if (too_long)
			say_wrong(batch, "the line is longer than %zu KiB; divide it",
				(size_t)(LIMIT_STRING / KIB));
		else
			say_wrong(batch, "the line has a NUL in it");
		line->code = CLI_EXIT_USAGE;
	} else {
		read_line(batch, line, buf_str(text));
	}
	line->level = log_own_level();
	log_no_own_level();
	batch_line_let_go(line);
	if (line->cli)
		batch_line_plan(line);
	return line;
}

/* 0: the end. What is too long is read to its end, but not kept. */
static int next_line(FILE *file, struct buf *text, bool *too_long)
{
	int c;

	buf_clear(text);
	*too_long = false;
	while ((c = getc_unlocked(file)) != EOF && c != '\n') {
		if (text->len + 1 < LIMIT_STRING && buf_add_char(text, (char)c) < 0)
			abort();
		else if (text->len + 1 >= LIMIT_STRING)
			*too_long = true;
	}
	return c != EOF || text->len;
}

static int run_lines(struct batch *batch, struct batch_lines *lines, FILE *file)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	bool more = true, too_long;

	while (more && !cli_interrupted() && next_line(file, &text, &too_long)) {
		batch->line++;
		more = batch_lines_add(lines, make_line(batch, lines, &text, too_long));
	}
	return ferror(file) ? -1 : 0;
}

static int run_batch(const struct cli *cli)
{
	const char *path = cli_operand(cli, 0);
	struct batch batch = {.cli = cli,
		.is_stdin = strcmp(path, "-") == 0,
		.name = strcmp(path, "-") == 0 ? "<stdin>" : path};
	bool fail_fast = cli_has(cli, "fail-fast");
	struct batch_lines lines;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t jobs;
	FILE *file;
	int r;

	if (!cli_number(cli, "jobs", 1, LIMIT_BATCH_JOBS, fail_fast ? 1 : JOBS_DEFAULT, &jobs))
		return CLI_EXIT_USAGE;
	file = batch.is_stdin ? stdin : fopen(path, "re");
	if (!file) {
		error_errno(&err, errno, "cannot read %s", path);
		return cli_fail(cli, &err);
	}
	remote_share_begin();
	batch_lines_begin(&lines, (unsigned)jobs, fail_fast);
	r = run_lines(&batch, &lines, file);
	if (r < 0)
		error_errno(&err, errno, "cannot read %s", path);
	batch_lines_end(&lines);
	if (r < 0 && !cli_interrupted())
		lines.code = cli_fail(cli, &err);
	penstock_error_release(&err);
	if (!batch.is_stdin)
		fclose(file);
	remote_share_end();
	log_info("%llu command%s, %llu failed", (unsigned long long)lines.n_lines,
		lines.n_lines == 1 ? "" : "s", (unsigned long long)lines.n_failed);
	return cli_interrupted() ? 128 + cli_interrupted() : lines.code;
}

const struct command command_batch = {
	.name = "batch",
	.summary = "run many commands over the same connections",
	.operands = "FILE",
	.min_operands = 1,
	.max_operands = 1,
	.description =
		"Reads commands from FILE ('-': standard input), one on each line, as 'cp a.csv "
		"s3://data/', and runs them with one set of connections and credentials: "
		"several at a time, but each behind those before it that touch the same object, "
		"file, prefix or directory, where one of them writes. What they print comes in "
		"the order of the lines; cat, du, ls, mb, presign, put, rb and stat wait for "
		"all lines before them. The verbs are these and cp, mv, rm and sync, with their "
		"options. Words are divided by blanks; '...', \"...\" and \\ keep blanks and "
		"others together as in a shell, nothing is expanded but what the verbs "
		"themselves expand, and '#' begins a comment.\n"
		"\n"
		"A line that fails is told with its number, and the others run. The exit code "
		"is the highest of all lines. Options for the store hold for every line that "
		"does not give its own.",
	.options = OPTIONS(
		{0, "fail-fast", NULL,
			"Ends at the first line that fails; without --jobs one line at a time"},
		{'j', "jobs", "N", "Lines at a time, at most; default: 8"}, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock batch jobs.txt", "Runs the commands in a file"},
		{"sed 's|.*|rm s3://data/&|' names | penstock batch -",
			"Runs those that a pipe gives"}),
	.exits = EXITS({"66", "There is no such file; or that of a line"}, {"130", "Interrupted"}),
	.run = run_batch,
};
