#include <ctype.h>
#include <string.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/frame/options.h"
#include "cli/frame/tables.h"

/* Appends the text of one paragraph; escapes what roff would interpret. */
static void add_text(struct buf *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool line_begin = i == 0 || text[i - 1] == '\n';

		if (line_begin && (text[i] == '.' || text[i] == '\''))
			buf_add_str(out, "\\&");
		if (text[i] == '\\')
			buf_add_str(out, "\\e");
		else if (text[i] == '-')
			buf_add_str(out, "\\-");
		else if (text[i] == '\'')
			buf_add_str(out, "\\(aq");
		else
			buf_add_char(out, text[i]);
	}
}

static void add_line(struct buf *out, const char *before, const char *text)
{
	buf_add_str(out, before);
	add_text(out, text, strlen(text));
	buf_add_char(out, '\n');
}

static void add_title(struct buf *out, const char *name)
{
	buf_add_str(out, ".TH \"");
	for (const char *p = name; *p; p++)
		buf_add_char(out, (char)toupper((unsigned char)*p));
	buf_printf(out, "\" \"1\" \"\" \"penstock %s\" \"\"\n", PENSTOCK_VERSION);
	buf_add_str(out, ".nh\n.ad l\n");
}

static void add_options(struct buf *out, const struct option_spec *options)
{
	for (const struct option_spec *o = options; o && o->name; o++) {
		buf_add_str(out, ".TP\n");
		if (o->letter)
			buf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
		buf_add_str(out, "\\fB\\-\\-");
		add_text(out, o->name, strlen(o->name));
		buf_add_str(out, "\\fR");
		if (o->argument) {
			buf_add_str(out, " \\fI");
			add_text(out, o->argument, strlen(o->argument));
			buf_add_str(out, "\\fR");
		}
		buf_add_char(out, '\n');
		add_line(out, "", o->help);
	}
}

static void add_item(struct buf *out, const char *term, const char *text)
{
	add_line(out, ".TP\n.B ", term);
	add_line(out, "", text);
}

static void add_facts(struct buf *out, const struct fact *facts)
{
	for (; facts->name; facts++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_LOG_LINE);

		table_add_plain(&text, facts->says);
		if (facts->otherwise) {
			buf_add_str(&text, "; default: ");
			table_add_plain(&text, facts->otherwise);
		}
		add_item(out, facts->name, buf_str(&text));
	}
}

static void overview_page(struct buf *out, const struct command *const *commands)
{
	add_title(out, "penstock");
	buf_add_str(out, ".SH NAME\npenstock \\- run training workflows whose data and output live "
			 "in object storage\n");
	buf_add_str(out, ".SH SYNOPSIS\n.B penstock\n\\fIVERB\\fR [\\fIOPTION\\fR]... "
			 "[\\fIOPERAND\\fR]...\n.SH DESCRIPTION\n");
	add_line(out, "",
		"penstock runs a training workflow: it fetches the data from HTTP or object "
		"storage, runs the steps, publishes their output to object storage while they "
		"run, and resumes after an interruption. penstock needs no server.");
	buf_add_str(out, ".SH VERBS\n");
	for (; *commands; commands++) {
		if ((*commands)->group) {
			buf_add_str(out, ".SS ");
			add_text(out, (*commands)->group, strlen((*commands)->group));
			buf_add_char(out, '\n');
		}
		buf_printf(out, ".TP\n.BR penstock\\-%s (1)\n", (*commands)->name);
		add_line(out, "", (*commands)->summary);
	}
	buf_add_str(out, ".SH OPTIONS\n");
	add_options(out, common_options);
	add_item(out, "--version", "Show the version and exit");
	add_item(out, "--completion SHELL", "Print the completion for bash, zsh or fish");
	buf_add_str(out, ".SH ENVIRONMENT\n");
	add_facts(out, environment_table);
	buf_add_str(out, ".SH EXIT STATUS\n");
	add_facts(out, exit_table);
}

void man_page(struct buf *out, const struct command *command, const struct command *const *commands)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_LOG_LINE);
	const struct command_exit *exit;

	if (!command) {
		overview_page(out, commands);
		return;
	}
	buf_printf(&name, "penstock-%s", command->name);
	add_title(out, buf_str(&name));
	buf_add_str(out, ".SH NAME\n");
	add_text(out, buf_str(&name), name.len);
	buf_add_str(out, " \\- ");
	add_text(out, command->summary, strlen(command->summary));
	buf_printf(out, "\n.SH SYNOPSIS\n.B penstock %s\n[\\fIOPTION\\fR]...\n", command->name);
	if (command->operands)
		add_line(out, "", command->operands);
	buf_add_str(out, ".SH DESCRIPTION\n");
	for (const char *text = command->description; *text;) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);

		add_text(out, text, len);
		buf_add_str(out, end ? "\n.PP\n" : "\n");
		text += len + (end ? 2 : 0);
	}
	buf_add_str(out, ".SH OPTIONS\n");
	add_options(out, command->options);
	add_options(out, common_options);
	buf_add_str(out, ".SH EXAMPLES\n");
	for (const struct command_example *e = command->examples; e->line; e++)
		add_item(out, e->line, e->says);
	buf_add_str(out, ".SH EXIT STATUS\n");
	for (size_t i = 0; (exit = exits_at(command, i)); i++)
		add_item(out, exit->code, exit->says);
	buf_add_str(out, ".SH SEE ALSO\n.BR penstock (1)\n");
}
