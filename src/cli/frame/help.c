#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/frame/options.h"
#include "cli/frame/tables.h"
#include "workflow/native/schema.h"

enum { MIN_WIDTH = 60, WIDTH = 80, MAX_WIDTH = 120, INDENT = 2, COLUMN = 26, KEY_COLUMN = 30 };

/* Exit codes of all verbs. */
static const struct command_exit common_exits[] = {
	{"0", "Done"},
	{"64", "The command line is invalid"},
	{"70", "penstock or this machine failed (disk, memory, closed output)"},
	{NULL, NULL},
};

const struct command_exit *exits_at(const struct command *command, size_t i)
{
	const struct command_exit *common = common_exits;
	const struct command_exit *own = command->exits;

	/* Merge the two tables, which are both sorted by number. */
	for (;;) {
		bool use_own = own && own->code &&
			       (!common->code || strtol(own->code, NULL, 10) <=
							 strtol(common->code, NULL, 10));
		const struct command_exit *next = use_own ? own++ : common;

		if (!next->code || i-- == 0)
			return next->code ? next : NULL;
		common += use_own ? 0 : 1;
	}
}

/* Returns the width of the terminal, within limits because very long lines are hard to read, or
 * WIDTH if stdout is not a terminal. */
static size_t columns(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return WIDTH;
	return size.ws_col < MIN_WIDTH	 ? MIN_WIDTH
	       : size.ws_col > MAX_WIDTH ? MAX_WIDTH
					 : size.ws_col;
}

static void add_blanks(struct buf *out, size_t n)
{
	buf_printf(out, "%*s", (int)n, "");
}

void wrap_text(struct buf *out, const char *text, size_t indent, size_t width, size_t begun)
{
	size_t column = begun;

	while (*text) {
		size_t word = strcspn(text, " \n");

		if (word > 0) {
			if (column > indent && column + 1 + word > width) {
				buf_add_char(out, '\n');
				column = 0;
			}
			if (column < indent) {
				add_blanks(out, indent - column);
				column = indent;
			} else if (column > indent) {
				buf_add_char(out, ' ');
				column++;
			}
			buf_add(out, text, word);
			column += word;
			text += word;
		}
		if (strncmp(text, "\n\n", 2) == 0) {
			buf_add_str(out, "\n\n");
			column = 0;
			text += 2;
		} else if (*text) {
			text++;
		}
	}
	buf_add_char(out, '\n');
}

/* Appends "  left         right, wrapped"; a long left part has a line of its own. */
static void add_row(struct buf *out, const char *left, const char *right, size_t column)
{
	size_t used = INDENT + strlen(left);

	add_blanks(out, INDENT);
	buf_add_str(out, left);
	if (used + 2 > column) {
		buf_add_char(out, '\n');
		used = 0;
	}
	add_blanks(out, column - used);
	wrap_text(out, right, column, columns(), column);
}

static void add_options(struct buf *out, const struct option_spec *options)
{
	for (const struct option_spec *o = options; o && o->name; o++) {
		_cleanup_(buf_release) struct buf left = BUF_INIT(LIMIT_LOG_LINE);

		/* "endpoint-url" is the first option of the store, after the verb's own options. */
		if (o > options && strcmp(o->name, "endpoint-url") == 0)
			buf_add_str(out, "\nOptions of the store:\n");

		if (o->letter)
			buf_printf(&left, "-%c, ", o->letter);
		else
			buf_add_str(&left, "    ");
		buf_printf(&left, "--%s", o->name);
		if (o->argument)
			buf_printf(&left, " %s", o->argument);
		add_row(out, buf_str(&left), o->help, COLUMN);
	}
}

void help_command(struct buf *out, const struct command *command)
{
	const struct command_exit *exit;

	buf_printf(out, "usage: penstock %s [OPTION]...%s%s\n\n", command->name,
		command->operands ? " " : "", command->operands ? command->operands : "");
	wrap_text(out, command->description, 0, columns(), 0);
	buf_add_str(out, "\nOptions:\n");
	add_options(out, command->options);
	buf_add_str(out, "\nOptions of every verb:\n");
	add_options(out, common_options);
	buf_add_str(out, "\nExamples:\n");
	for (const struct command_example *e = command->examples; e->line; e++) {
		buf_printf(out, "  %s\n", e->line);
		add_blanks(out, 6);
		wrap_text(out, e->says, 6, columns(), 6);
	}
	buf_add_str(out, "\nExit codes:\n");
	for (size_t i = 0; (exit = exits_at(command, i)); i++)
		add_row(out, exit->code, exit->says, 10);
}

static void add_keys(struct buf *out, const struct schema *schema, size_t depth)
{
	bool within_step = schema != &schema_job;

	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		_cleanup_(buf_release) struct buf left = BUF_INIT(LIMIT_LOG_LINE);
		_cleanup_(buf_release) struct buf meaning = BUF_INIT(LIMIT_STRING);

		if (key->flags & KEY_LEGACY)
			continue;
		add_blanks(&left, INDENT * (depth - 1));
		buf_add_str(&left, key->name);
		table_add_meaning(&meaning, key);
		add_row(out, buf_str(&left), buf_str(&meaning), KEY_COLUMN);
		/* Do not repeat the keys of a step for nested steps. */
		if (key->below && !(within_step && key->below == &schema_step))
			add_keys(out, key->below, depth + 1);
	}
}

void help_workflow(struct buf *out)
{
	wrap_text(out,
		"A workflow is a JSON or YAML file that defines what a run reads, what it runs, "
		"and where its output goes. 'penstock validate FILE' reports the errors of a "
		"file, and --set PATH=VALUE replaces a field for one run. penstock-workflow(5) "
		"explains every key.",
		0, columns(), 0);
	buf_add_str(out, "\nKeys:\n");
	add_keys(out, &schema_job, 1);
	buf_add_str(out,
		"\nExample:\n"
		"  resources: {tasks: 1, cpusPerTask: 2, memPerCpu: 2048}\n"
		"  input:\n"
		"    http: {url: \"https://example.org/data.tar.gz\"}\n"
		"  output:\n"
		"    s3: {region: us-east-1, bucketUrl: \"s3://models\", path: /run-1,\n"
		"         endpointUrl: embedded}\n"
		"  continuousOutputSync: true\n"
		"  steps:\n"
		"    - name: train\n"
		"      run:\n"
		"        command: python3 train.py $DEEPSQUARE_INPUT $DEEPSQUARE_OUTPUT\n");
}

void help_verbs(struct buf *out, const struct command *const *commands)
{
	for (; *commands; commands++) {
		if ((*commands)->group)
			buf_printf(out, "\n%s:\n", (*commands)->group);
		add_row(out, (*commands)->name, (*commands)->summary, 15);
	}
}

void help_overview(struct buf *out, const struct command *const *commands)
{
	buf_add_str(out, "usage: penstock VERB [OPTION]... [OPERAND]...\n\n");
	wrap_text(out,
		"Runs a training workflow: fetches its data, runs its steps, publishes its "
		"output to object storage while they run, and resumes after an interruption.",
		0, columns(), 0);
	help_verbs(out, commands);
	add_row(out, "help",
		"show the help of a verb (penstock help VERB) or of workflow files (penstock help "
		"workflow)",
		15);
	add_row(out, "version", "show the version, also as --version", 15);
	buf_add_str(out, "\nOptions:\n");
	add_options(out, common_options);
	add_options(out,
		(const struct option_spec[]){{0, "version", NULL, "Show the version and exit"},
			{0, "completion", "SHELL", "Print the completion for bash, zsh or fish"},
			{0, NULL, NULL, NULL}});
	buf_add_str(out, "\nEnvironment:\n");
	for (const struct fact *fact = environment_table; fact->name; fact++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);

		if (strcmp(fact->name, "PENSTOCK_HOME") != 0 &&
			strcmp(fact->name, "PENSTOCK_LOG") != 0 &&
			strcmp(fact->name, "NO_COLOR") != 0)
			continue;
		table_add_plain(&text, fact->says);
		add_row(out, fact->name, buf_str(&text), COLUMN);
	}
	buf_add_str(out, "\n"
			 "Options, examples and exit codes of a verb: penstock VERB --help\n");
}
