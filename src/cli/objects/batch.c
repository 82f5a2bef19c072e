/* `batch`: runs many commands with one engine. */
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

#define JOBS_DEFAULT 8

/* The verbs for objects that may be used in a batch: they end by themselves, and do not use the
 * terminal. */
static const char *const verbs[] = {
	"cat", "cp", "du", "ls", "mb", "mv", "presign", "put", "rb", "rm", "stat", "sync"};

/* Options of the batch that apply to all its lines. */
static const char *const inherited[] = {
	"endpoint-url", "profile", "region", "no-sign-request", "google-key"};

struct batch {
	const struct cli *cli;
	const char *name; /* name of the file, for messages */
	bool is_stdin;
	uint64_t line; /* number of the current line */
};

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

/* Fails if the verb is not allowed in a batch, or if the line would read standard input, from which
 * the batch already reads its commands. */
static int check_words(
	const struct batch *batch, const struct strlist *words, struct penstock_error *err)
{
	const char *verb = words->items[0], *near;

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verb, verbs[i]) != 0)
			continue;
		return batch->is_stdin && reads_stdin(words)
			       ? error_set(err, PENSTOCK_E_INVALID,
					 "cannot store standard input: it has the commands; put the "
					 "commands into a file")
			       : 0;
	}
	near = str_nearest(verb, verbs, ARRAY_SIZE(verbs));
	return error_set(err, PENSTOCK_E_INVALID, "unknown verb '%s' in a batch%s%s%s", verb,
		near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Adds the inherited options after the verb, before the options of the line, which take
 * precedence. */
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

static int read_line(const struct batch *batch, struct batch_line *line, const char *text,
	struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist given = {0}, words = {0};
	size_t first = 0;
	int r = words_split(&given, text, err);

	/* Skip "penstock" at the beginning of a line, which may be pasted from a script. */
	if (r == 0 && given.n && strcmp(given.items[0], "penstock") == 0)
		first = 1;
	line->empty = given.n == first;
	if (r < 0 || line->empty)
		return r;
	r = check_words(batch, &(struct strlist){given.items + first, given.n - first}, err);
	if (r < 0)
		return r;
	if (strlist_add(&words, given.items[first]) < 0 || add_inherited(batch, &words) < 0)
		abort();
	for (size_t i = first + 1; i < given.n; i++) {
		if (strlist_add(&words, given.items[i]) < 0)
			abort();
	}
	line->cli = cli_read_words(batch->cli, &words, &line->code);
	return 0;
}

/* Errors of the line are part of the line's output. The line's --quiet and --log-level apply only
 * to that line. */
static struct batch_line *make_line(
	struct batch *batch, struct batch_lines *lines, const struct buf *text, bool too_long)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct batch_line *line;
	int r;

	line = batch_line_new(
		str_printf("%s:%llu: ", batch->name, (unsigned long long)batch->line));
	if (!line || !line->where)
		abort();
	line->lines = lines;
	line->number = batch->line;
	batch_line_take(line);
	log_own_level();
	if (too_long)
		r = error_set(&err, PENSTOCK_E_INVALID,
			"cannot read the line: it is longer than %zu KiB; divide the line",
			(size_t)(LIMIT_STRING / KIB));
	else if (memchr(buf_str(text), '\0', text->len))
		r = error_set(&err, PENSTOCK_E_INVALID, "cannot read the line: it contains a NUL");
	else
		r = read_line(batch, line, buf_str(text), &err);
	if (r < 0) {
		cli_fail(batch->cli, &err);
		line->code = CLI_EXIT_USAGE;
	}
	line->level = log_own_level();
	log_no_own_level();
	batch_line_let_go(line);
	if (line->cli)
		batch_line_plan(line);
	return line;
}

/* Returns 1, or 0 at the end of the file or if the file cannot be read. Discards the end of a line
 * that is too long. */
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
	/* A line that a failed read has truncated must not be run. */
	return c != EOF || (text->len && !ferror(file));
}

/* Adds the options of this batch, for the command that continues it. */
static void add_options(const struct cli *cli, struct buf *out)
{
	for (const struct option_spec *o = command_batch.options; o->name; o++) {
		if (!cli_has(cli, o->name))
			continue;
		buf_printf(out, " --%s", o->name);
		if (!o->argument)
			continue;
		buf_add_char(out, ' ');
		buf_add_quoted(out, cli_value(cli, o->name));
	}
}

/* Prints the counts or, after an interrupt, the command that continues: all lines before the first
 * unfinished line have ended. */
static void summarize(const struct batch *batch, const struct batch_lines *lines)
{
	unsigned long long next = lines->first_unfinished ? lines->first_unfinished
							  : batch->line + 1;
	_cleanup_(buf_release) struct buf rest = BUF_INIT(LIMIT_STRING);

	if (!cli_interrupted())
		log_info("%llu command%s, %llu failed", (unsigned long long)lines->n_lines,
			lines->n_lines == 1 ? "" : "s", (unsigned long long)lines->n_failed);
	else if (batch->is_stdin)
		log_info("interrupted: continue with line %llu", next);
	if (!cli_interrupted() || batch->is_stdin)
		return;
	buf_printf(&rest, "tail -n +%llu ", next);
	buf_add_quoted(&rest, batch->name);
	buf_add_str(&rest, " | penstock batch -");
	add_options(batch->cli, &rest);
	log_info("interrupted: continue with line %llu: %s", next, buf_str(&rest));
}

static int run_batch(const struct cli *cli)
{
	const char *path = cli_operand(cli, 0);
	struct batch batch = {.cli = cli,
		.is_stdin = strcmp(path, "-") == 0,
		.name = strcmp(path, "-") == 0 ? "<stdin>" : path};
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	bool fail_fast = cli_has(cli, "fail-fast"), more = true, too_long;
	struct batch_lines lines;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	int64_t jobs;
	int code;
	FILE *file;

	if (!cli_number(cli, "jobs", 1, LIMIT_BATCH_JOBS, fail_fast ? 1 : JOBS_DEFAULT, &jobs))
		return CLI_EXIT_USAGE;
	code = remote_limit_rate(cli);
	if (code)
		return code;
	file = batch.is_stdin ? stdin : fopen(path, "re");
	if (!file) {
		error_errno(&err, errno, "cannot read '%s'", path);
		return cli_fail(cli, &err);
	}
	remote_share_begin();
	batch_lines_begin(&lines, (unsigned)jobs, fail_fast);
	while (more && !cli_interrupted() && next_line(file, &text, &too_long)) {
		batch.line++;
		more = batch_lines_add(&lines, make_line(&batch, &lines, &text, too_long));
	}
	if (ferror(file))
		error_errno(&err, errno, "cannot read '%s'", path);
	batch_lines_end(&lines);
	if (err.code && !cli_interrupted())
		lines.code = cli_fail(cli, &err);
	penstock_error_release(&err);
	if (!batch.is_stdin)
		fclose(file);
	remote_share_end();
	summarize(&batch, &lines);
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
		"s3://data/', and runs them with one set of connections and credentials: several "
		"at a time, but each after earlier lines that touch the same object, file, prefix "
		"or directory, if one of them writes it. Output is printed in the order of the "
		"lines. cat, du, ls, mb, presign, put, rb, stat, rm --uploads and lines with '-' "
		"wait for all lines before them. The verbs are these and cp, mv, rm and sync, "
		"with their options. Blanks separate words; '...', \"...\" and \\ quote as in a "
		"shell; '#' begins a comment; only the verbs expand wildcards.\n"
		"\n"
		"A line that fails is reported with its number, and the others run. The exit code "
		"is the highest of all lines. Options for the store apply to every line that does "
		"not give its own.",
	.options = OPTIONS(
		{0, "fail-fast", NULL,
			"Stop at the first line that fails; without --jobs one line at a time"},
		{'j', "jobs", "N", "At most N lines at a time, 1 to 32; default: 8"},
		LIMIT_RATE_OPTION, REMOTE_OPTIONS),
	.examples = EXAMPLES({"penstock batch jobs.txt", "Run the commands in a file"},
		{"sed 's|.*|rm s3://data/&|' names | penstock batch -",
			"Run the commands of a pipe"}),
	.exits = EXITS({"66", "FILE, or a file that a line names, does not exist"},
		{"130", "Interrupted"}),
	.run = run_batch,
};
