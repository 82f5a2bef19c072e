/* What the files of the frame share; verbs include command.h only. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdio.h>

#include "base/buf.h"
#include "cli/command.h"

/* One command line, read. */
struct cli {
	const struct command *command; /* NULL: penstock itself */
	const struct command *const *commands;
	struct strlist *values; /* one per option, in the order of options_at() */
	size_t n_values;
	struct strlist operands;
	struct strlist variables;
	bool help;
	bool quiet;
};

/* The options of every verb, behind its own. */
extern const struct option_spec common_options[];
/* The i-th of a verb's options, the common ones behind its own; NULL: no more. */
const struct option_spec *options_at(const struct command *command, size_t i);

/* 0, or an exit code after the mistake was told. */
int cli_parse(struct cli *cli, int argc, char **argv);
void cli_release(struct cli *cli);

/* Appends `text` wrapped to `width` columns, each line behind `indent` blanks, but the first where `begun`
 * columns are used already. Empty lines in `text` divide paragraphs. */
void wrap_text(struct buf *out, const char *text, size_t indent, size_t width, size_t begun);

/* `penstock help workflow`: every key that a workflow may have, and a whole one. */
void help_workflow(struct buf *out);
void help_overview(struct buf *out, const struct command *const *commands);
void help_command(struct buf *out, const struct command *command);
/* Roff, for man(1). `command` NULL: the overview. */
void man_page(
	struct buf *out, const struct command *command, const struct command *const *commands);
void completion_bash(struct buf *out, const struct command *const *commands);

/* The i-th exit code of a verb, those of every verb among its own, by number; NULL: no more. */
const struct command_exit *exits_at(const struct command *command, size_t i);

#endif
