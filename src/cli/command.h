/*
 * The frame of the command line: one table row per verb, one file per verb.
 *
 *	static const struct option_spec options[] = {
 *		{ 'a', "all", NULL, "Also runs that ended long ago" },
 *		{ 0, "json", NULL, "A list of objects, for programs" },
 *		{ 0, NULL, NULL, NULL } };
 *	const struct command command_ps = { .name = "ps", .options = options, .run = run_ps, ... };
 *
 * and the verb's line in commands.h and in the table of main.c. From that row come the parsing, `--help`,
 * the man page, the completion and the check of the operands. The verb itself is
 *
 *	static int run_ps(const struct cli *cli)
 *	{
 *		if (thing(cli_has(cli, "all"), &err) < 0)
 *			return cli_fail(cli, &err);
 *		return 0;
 *	}
 *
 * It returns its exit code. What a verb is asked for goes to stdout (checked for errors on exit),
 * everything else through log.h or cli_fail() to stderr. --help, --quiet and --log-level are of every
 * verb and handled here. An argument "-" is an operand, and what follows "--" is, too.
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
	char letter;	      /* 0: none */
	const char *name;     /* long name without dashes; NULL ends a table */
	const char *argument; /* "N", "PATH=VALUE"; NULL: it takes none */
	const char *help;     /* a phrase without a full stop, wrapped by us */
};

struct command_example {
	const char *line; /* "penstock ps --json"; NULL ends a table */
	const char *says; /* what it does */
};

struct command_exit {
	const char *code; /* "73", "128+n"; NULL ends a table */
	const char *says;
};

struct cli;

struct command {
	const char *name;
	const char *summary;   /* a phrase: "list the runs of this machine" */
	const char *operands;  /* "[RUN]", "WORKFLOW"; NULL: none */
	unsigned min_operands; /* checked before `run` is called */
	unsigned max_operands; /* UINT_MAX: any number */
	/*
	 * Behind so many operands everything is one, options too: they are another program's. 0: never. The command
	 * line then stays readable to everybody as it was given, so secrets may not be among the verb's options.
	 */
	unsigned own_operands;
	const char *description;	   /* paragraphs, divided by empty lines; wrapped by us */
	const struct option_spec *options; /* NULL: none of its own */
	const struct command_example *examples; /* at least one */
	bool variables; /* other options are variables of the workflow: "--epochs 3" */
	const struct command_exit *exits; /* without 0, 64 and 70, which are every verb's */
	int (*run)(const struct cli *cli);
};

/* ---- for verbs ---- */

/* An option that the verb's table does not have is a defect, and aborts. */
bool cli_has(const struct cli *cli, const char *option);
/* The argument of its last use, or NULL. */
const char *cli_value(const struct cli *cli, const char *option);
/* Those of all its uses, in order; NULL-terminated, never NULL. */
const struct strlist *cli_values(const struct cli *cli, const char *option);

/* "NAME=VALUE" of options that the verb does not have, where it takes them for variables. */
const struct strlist *cli_variables(const struct cli *cli);
/* Says that the first of them is no option; returns its exit code. */
int cli_refuse_variables(const struct cli *cli);

size_t cli_n_operands(const struct cli *cli);
/* NULL: there are not so many. */
const char *cli_operand(const struct cli *cli, size_t i);

/*
 * A number given with an option, within bounds; `fallback` where it was not given. False: it was none,
 * and cli_misuse() has said so: return CLI_EXIT_USAGE.
 */
bool cli_number(const struct cli *cli, const char *option, int64_t min, int64_t max,
	int64_t fallback, int64_t *out);
/* The same for a duration: "500ms", "30s", "5m", "2h", "1d", or bare seconds. */
bool cli_duration_ms(
	const struct cli *cli, const char *option, int64_t fallback_ms, int64_t *out_ms);

/* "penstock VERB: text; see 'penstock VERB --help'" on stderr; returns CLI_EXIT_USAGE. */
int cli_misuse(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* cli_misuse() where any of these options (NULL behind the last) was given, as "--json WHY". Else 0. */
int cli_refuse_options(const struct cli *cli, const char *const *options, const char *why);
/* The same where more than one of them was given. */
int cli_refuse_together(const struct cli *cli, const char *const *options);
/* "penstock VERB: message" on stderr, with secrets masked; releases the error; returns its exit code. */
int cli_fail(const struct cli *cli, struct penstock_error *err);
/* The verb's name. */
const char *cli_verb(const struct cli *cli);

/*
 * Reads another command line of the table from its words, for cli_run(); free it with cli_free(). --quiet of ours is its,
 * too. NULL: there is nothing to be run, and `*code` is its exit code.
 */
struct cli *cli_read_words(const struct cli *cli, const struct strlist *words, int *code);
int cli_run(const struct cli *line);
void cli_free(struct cli *line);
/* What messages begin with behind the verb: "jobs.txt:12: ". Borrowed; NULL: nothing. */
void cli_set_where(const char *where);
const char *cli_where(void);
/* Where verbs that a batch runs beside others print; stdout, unless it was set. Of the calling thread. */
FILE *cli_out(void);
void cli_set_out(FILE *out);
/* Whether --quiet was given: only errors, and what was asked for. */
bool cli_quiet(const struct cli *cli);

/* docs/man says what they mean to a user. */
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
/* The exit code of a verb that failed with this code and knows no better one. */
int exit_code_of_error(int code);

/* ---- for main.c ---- */

/* Runs what the command line says; returns the exit code. `commands` ends with NULL. */
int cli_main(int argc, char **argv, const struct command *const *commands);

#endif
