/*
 * The command line. Each verb has a row in a table, and a file of its own:
 *
 *	const struct command command_ps = {
 *		.name = "ps",
 *		.options = OPTIONS({'a', "all", NULL, "Also runs that ended long ago"},
 *			{0, "json", NULL, "Print a list of JSON objects"}),
 *		.run = run_ps };
 *
 * A verb also has a line in commands.h. The row of a verb defines the parsing, `--help`, the man
 * page, the completion and the check of the operands. The verb itself is
 *
 *	int ps_print(bool all, struct penstock_error *err);
 *
 *	static int run_ps(const struct cli *cli)
 *	{
 *		if (ps_print(cli_has(cli, "all"), &err) < 0)
 *			return cli_fail(cli, &err);
 *		return 0;
 *	}
 *
 * run() returns the exit code. Requested output goes to stdout, which is checked for errors on
 * exit; everything else goes to stderr, through log.h or cli_fail(). --help, --quiet, --log-level
 * and --color are common to all verbs, and src/cli/frame handles them. An argument "-" is an
 * operand, as are all arguments after "--".
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"

struct penstock_error;

struct option_spec {
	char letter; /* 0 if the option has only a long name */
	const char *name; /* long name without dashes; NULL ends a table */
	/* "N", "PATH=VALUE", or "WORD|WORD" for a list of valid words; NULL if the option takes no
	 * argument */
	const char *argument;
	const char *help; /* a phrase without a full stop; wrapped when printed */
};

struct command_example {
	const char *line; /* "penstock ps --json"; NULL ends a table */
	const char *says; /* the effect of the command */
};

struct command_exit {
	const char *code; /* "73", "128+n"; NULL ends a table */
	const char *says;
};

/* Tables of a verb's row. */
/* clang-format off */
#define OPTIONS(...)  (const struct option_spec[]){__VA_ARGS__, {0}}
#define EXAMPLES(...) (const struct command_example[]){__VA_ARGS__, {0}}
#define EXITS(...)    (const struct command_exit[]){__VA_ARGS__, {0}}
/* clang-format on */

struct cli;

struct command {
	const char *name;
	const char *summary; /* a phrase: "list the runs of this machine" */
	/* Heading above the verb in lists of verbs; NULL if the verb is in the group of the
	 * previous verb */
	const char *group;
	const char *operands; /* "[RUN]", "WORKFLOW"; NULL if the verb has no operands */
	unsigned min_operands; /* checked before `run` is called */
	unsigned max_operands; /* UINT_MAX for any number */
	/*
	 * After this many operands all arguments are operands, including those that begin with a
	 * dash: they belong to another program. 0 if unused. The arguments of such a verb are not
	 * hidden from other users, so the verb must have no option with a secret.
	 */
	unsigned own_operands;
	const char *description; /* paragraphs, separated by empty lines; wrapped when printed */
	const struct option_spec *options; /* NULL if the verb has no options of its own */
	const struct command_example *examples; /* at least one */
	bool variables; /* unknown options are variables of the workflow: "--epochs 3" */
	const struct command_exit *exits; /* without 0, 64 and 70, which are common to all verbs */
	int (*run)(const struct cli *cli);
};

/* ---- for verbs ---- */

/* Returns true if the option was given. Aborts if the verb's table does not have the option. */
bool cli_has(const struct cli *cli, const char *option);
/* Returns the argument of the last use of the option; NULL if it was not given. */
const char *cli_value(const struct cli *cli, const char *option);
/* Returns the arguments of all uses of the option, in order; NULL-terminated, never NULL. */
const struct strlist *cli_values(const struct cli *cli, const char *option);

/* Returns the options of the command line that the verb does not have, as "NAME=VALUE". The list is
 * empty unless the verb accepts variables. */
const struct strlist *cli_variables(const struct cli *cli);
/* Reports the first variable as an unknown option; returns the exit code. */
int cli_refuse_variables(const struct cli *cli);

size_t cli_n_operands(const struct cli *cli);
/* Returns operand `i`, the first being 0; NULL if there are fewer operands. */
const char *cli_operand(const struct cli *cli, size_t i);

/* Sets `*out` to the number that was given for the option, or to `fallback` if the option was not
 * given. If the value is not a number from `min` to `max`, calls cli_misuse() and returns false:
 * the verb then returns CLI_EXIT_USAGE. */
bool cli_number(const struct cli *cli, const char *option, int64_t min, int64_t max,
	int64_t fallback, int64_t *out);
/* Like cli_number(), for a duration: "500ms", "30s", "5m", "2h", "1d", or bare seconds. */
bool cli_duration_ms(
	const struct cli *cli, const char *option, int64_t fallback_ms, int64_t *out_ms);

/* Prints "penstock VERB: text; see 'penstock VERB --help'" to stderr. Returns CLI_EXIT_USAGE. */
int cli_misuse(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* If one of these options (NULL-terminated) was given, calls cli_misuse() with its name and `why`,
 * such as "--json WHY", and returns the exit code. Returns 0 if no option was given. */
int cli_refuse_options(const struct cli *cli, const char *const *options, const char *why);
/* Like cli_refuse_options(), but only if more than one of the options was given. */
int cli_refuse_together(const struct cli *cli, const char *const *options);
/* Prints "penstock VERB: message" to stderr, with secrets masked. Releases the error, and returns
 * the exit code for it. */
int cli_fail(const struct cli *cli, struct penstock_error *err);
/* Like cli_fail(), but returns `invalid_code` for PENSTOCK_E_INVALID. */
int cli_fail_as(const struct cli *cli, struct penstock_error *err, int invalid_code);
/* Returns the verb's name. */
const char *cli_verb(const struct cli *cli);

/* Parses `words` as another command line, for cli_run(). The line inherits --quiet; free the line
 * with cli_free(). Returns NULL if there is nothing to run; `*code` is then the exit code. */
struct cli *cli_read_words(const struct cli *cli, const struct strlist *words, int *code);
int cli_run(const struct cli *line);
void cli_free(struct cli *line);
/* Sets a text that follows the verb in messages, such as "jobs.txt:12: ". Borrowed; NULL removes
 * the text. */
void cli_set_where(const char *where);
const char *cli_where(void);
/* Returns the stream to which the calling thread prints requested output: stdout, or the buffer of
 * a line if a batch runs the verb. */
FILE *cli_out(void);
void cli_set_out(FILE *out);
/* Returns true if output to this descriptor is coloured. --color decides; by default, the output is
 * coloured if the descriptor is a terminal, NO_COLOR is not set or is "", and TERM is not
 * "dumb". */
bool cli_colours(int fd);
/* Returns true if --quiet was given: print only errors and requested output. */
bool cli_quiet(const struct cli *cli);

/* docs/man describes the exit codes for users. */
enum {
	CLI_EXIT_USAGE = 64,
	CLI_EXIT_WORKFLOW = 65,
	CLI_EXIT_INPUT = 66,
	CLI_EXIT_UNAVAILABLE = 69,
	CLI_EXIT_INTERNAL = 70,
	CLI_EXIT_OUTPUT = 73,
	CLI_EXIT_PREEMPTED = 75,
	CLI_EXIT_PERMISSION = 77,
	CLI_EXIT_CONFIG = 78,
};
/* Returns the default exit code for an error code. */
int exit_code_of_error(int code);

/* ---- for main.c ---- */

/* Kinds of names that the completion offers: names and ids of runs, tags, and tags with a ':' in
 * front. */
enum cli_names { CLI_NAMES_RUNS, CLI_NAMES_TAGS, CLI_NAMES_COLON_TAGS };
typedef void cli_name_fn(void *cookie, const char *name, const char *says);
/* Sets the function that lists the names. */
void cli_set_names(void (*list)(enum cli_names kind, cli_name_fn *fn, void *cookie));
void cli_each_name(enum cli_names kind, cli_name_fn *fn, void *cookie);

/* Runs the command line; returns the exit code. `commands` ends with NULL. */
int cli_main(int argc, char **argv, const struct command *const *commands);

#endif
