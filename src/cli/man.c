#include <ctype.h>
#include <string.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/options.h"
#include "base/banned.h"

/* Text of one paragraph; what roff would read as a request or an escape is masked. */
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

static void add_paragraphs(struct buf *out, const char *text)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);

		add_text(out, text, len);
		buf_add_char(out, '\n');
		text += len;
		if (end) {
			text += 2;
			buf_add_str(out, ".PP\n");
		}
	}
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

static void command_page(struct buf *out, const struct command *command)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_LOG_LINE);
	const struct command_exit *exit;

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
	add_paragraphs(out, command->description);
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

static void overview_page(struct buf *out, const struct command *const *commands)
{
	static const struct command_exit exits[] = {
		{"0", "Every step succeeded and the output is complete"},
		{"1-63, 79-127",
			"The code of the step that failed; its own 64 to 78 are shown as 79"},
		{"64", "The command line is wrong"},
		{"65", "The workflow is wrong, or can never fit this machine; or several runs "
		       "begin with what was given"},
		{"66", "An input, file or run is not there"},
		{"69", "A service does not answer, or somebody else holds what is needed"},
		{"70", "penstock or this machine failed (disk, memory, closed output)"},
		{"73", "The output is not completely uploaded; wins over a step's code"},
		{"75", "Preempted; the same command continues it"},
		{"77", "Credentials or permissions were refused"},
		{"78", "The configuration is wrong"},
		{"128+n", "Ended by signal n"},
		{NULL, NULL},
	};

	add_title(out, "penstock");
	buf_add_str(out, ".SH NAME\npenstock \\- run training workflows whose data and output live "
			 "in object storage\n");
	buf_add_str(out, ".SH SYNOPSIS\n.B penstock\n\\fIVERB\\fR [\\fIOPTION\\fR]... "
			 "[\\fIOPERAND\\fR]...\n.SH DESCRIPTION\n");
	add_line(out, "",
		"penstock runs a training workflow: it brings the data from HTTP or object "
		"storage, "
		"runs the steps, keeps their output in object storage while they run, and after "
		"an interruption goes on where they stopped. It needs no server.");
	buf_add_str(out, ".SH VERBS\n");
	for (; *commands; commands++) {
		buf_printf(out, ".TP\n.BR penstock\\-%s (1)\n", (*commands)->name);
		add_line(out, "", (*commands)->summary);
	}
	buf_add_str(out, ".SH OPTIONS\n");
	add_options(out, common_options);
	add_item(out, "--version", "Show the version and exit");
	buf_add_str(out, ".SH ENVIRONMENT\n");
	add_item(out, "PENSTOCK_HOME",
		"Where runs and records are kept; else $XDG_DATA_HOME/penstock, else "
		"~/.local/share/penstock");
	add_item(out, "PENSTOCK_CLAIMS_DIR",
		"Where the runs of this machine share out its CPUs, memory and GPUs; else "
		"/run/lock/penstock or /tmp/penstock-claims");
	add_item(out, "PENSTOCK_NETWORK_PATIENCE",
		"Seconds for which a run that begins waits for an input or a store that cannot be "
		"reached or answers 5xx, since it last got on; else 90");
	add_item(out, "PENSTOCK_NETWORK_STALL",
		"Seconds without a byte after which a connection is given up and made anew; else "
		"30");
	add_item(out, "PENSTOCK_UNPACK_RATIO",
		"An archive that unpacks to more than 256 MiB and more than so many times its size "
		"is "
		"refused; else 500");
	add_item(out, "PENSTOCK_STOP_GRACE",
		"How many seconds a step has to end after it was asked to, before it is killed; "
		"30");
	add_item(out, "PENSTOCK_FLUSH_PATIENCE",
		"Seconds for which the end of a run tries to upload its output while nothing "
		"moves; "
		"else 120");
	add_item(out, "PENSTOCK_LOG", "As --log-level");
	add_item(out, "NO_COLOR", "No colours, whatever the terminal can do");
	buf_add_str(out, ".SH EXIT STATUS\n");
	for (const struct command_exit *e = exits; e->code; e++)
		add_item(out, e->code, e->says);
}

void man_page(struct buf *out, const struct command *command, const struct command *const *commands)
{
	if (command)
		command_page(out, command);
	else
		overview_page(out, commands);
}
