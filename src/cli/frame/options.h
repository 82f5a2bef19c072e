/* Internals that the files of the frame share; verbs include only command.h. */
#ifndef CLI_FRAME_OPTIONS_H
#define CLI_FRAME_OPTIONS_H

#include <stdio.h>

#include "base/buf.h"
#include "cli/command.h"

/* A parsed command line. */
struct cli {
	const struct command *command; /* NULL for penstock itself */
	const struct command *const *commands;
	struct strlist *values; /* one per option, in the order of options_at() */
	size_t n_values;
	struct strlist operands;
	struct strlist variables;
	bool help;
	bool quiet;
};

/* Returns the verb `name`, or NULL if it is unknown. */
const struct command *command_find(const struct command *const *commands, const char *name);

/* The options that all verbs have, listed after the verb's own options. */
extern const struct option_spec common_options[];
/* Returns option `i` of a verb: first the verb's own options, then the common ones. NULL if there
 * are no more. */
const struct option_spec *options_at(const struct command *command, size_t i);

/* Sets the colours of all output: "auto", "always", "never"; NULL keeps the setting. Returns false
 * for anything else. */
bool cli_set_colours(const char *when);
/* Parses the command line. Returns 0, or the exit code after an error message. */
int cli_parse(struct cli *cli, int argc, char **argv);
void cli_release(struct cli *cli);

/* Appends `text` wrapped to `width` columns. Each line is indented by `indent` blanks, except the
 * first, in which `begun` columns are used already. Empty lines in `text` separate paragraphs. */
void wrap_text(struct buf *out, const char *text, size_t indent, size_t width, size_t begun);

/* Appends the text of `penstock help workflow`: every key of a workflow, and a complete example. */
void help_workflow(struct buf *out);
void help_overview(struct buf *out, const struct command *const *commands);
/* Appends the verbs in groups, as in the overview. */
void help_verbs(struct buf *out, const struct command *const *commands);
void help_command(struct buf *out, const struct command *command);
/* Appends a page for man(1) in roff. `command` is NULL for the overview. */
void man_page(
	struct buf *out, const struct command *command, const struct command *const *commands);
/* Appends the candidates for the completion of a shell: a line "WORD\tDESCRIPTION" for each, and a
 * line "\tfiles" if the shell has to offer names of files, too. `words` are the words after
 * "penstock"; the last of them is the beginning of the word to complete, and may be empty. */
void completion_words(
	struct buf *out, const struct command *const *commands, char *const *words, size_t n);
/* Returns the script of a shell, "bash", "zsh" or "fish"; NULL for any other name. */
const char *completion_script(const char *shell);

/* Returns item `i` of the exit codes of a verb: its own and the common ones, sorted by number. NULL
 * if there are no more. */
const struct command_exit *exits_at(const struct command *command, size_t i);

#endif
