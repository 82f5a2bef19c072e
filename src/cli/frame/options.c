#include "cli/frame/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

/* Base of the values that getopt_long() returns for long options; above all letters. */
enum { OPTION_BASE = 256 };

const struct option_spec common_options[] = {
	{'q', "quiet", NULL, "Print only errors and requested output"},
	{0, "log-level", "LEVEL", "Messages on stderr: debug, info, warn, error or quiet"},
	{0, "color", "WHEN", "Colours: auto (default: on a terminal), always or never"},
	{'h', "help", NULL, "Show this help and exit"},
	{0, NULL, NULL, NULL},
};

const struct command *command_find(const struct command *const *commands, const char *name)
{
	for (; *commands; commands++) {
		if (strcmp((*commands)->name, name) == 0)
			return *commands;
	}
	return NULL;
}

const struct option_spec *options_at(const struct command *command, size_t i)
{
	const struct option_spec *own = command ? command->options : NULL;

	for (; own && own->name; own++) {
		if (i-- == 0)
			return own;
	}
	for (const struct option_spec *o = common_options; o->name; o++) {
		if (i-- == 0)
			return o;
	}
	return NULL;
}

/* ---- colours ---- */

static enum { COLOURS_AUTO, COLOURS_ALWAYS, COLOURS_NEVER } colours;

bool cli_colours(int fd)
{
	const char *no = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	if (colours != COLOURS_AUTO)
		return colours == COLOURS_ALWAYS;
	return isatty(fd) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

bool cli_set_colours(const char *when)
{
	static const char *const words[] = {
		[COLOURS_AUTO] = "auto", [COLOURS_ALWAYS] = "always", [COLOURS_NEVER] = "never"};

	for (unsigned i = 0; when && i < ARRAY_SIZE(words); i++) {
		if (strcmp(when, words[i]) == 0) {
			colours = i;
			when = NULL;
		}
	}
	log_set_colour(cli_colours(STDERR_FILENO));
	return !when;
}

/* ---- parsing ---- */

/* Takes "--epochs=3", or "--epochs" and "3". Returns true if the unknown option is a variable. */
static bool take_variable(struct cli *cli, int argc, char **argv)
{
	const char *word = argv[optind - 1];

	if (!cli->command || !cli->command->variables || !str_starts(word, "--"))
		return false;
	word += 2;
	if (strchr(word, '=')) {
		if (strlist_add(&cli->variables, word) < 0)
			abort();
		return true;
	}
	if (optind >= argc)
		return false;
	if (strlist_addf(&cli->variables, "%s=%s", word, argv[optind++]) < 0)
		abort();
	return true;
}

/* Returns the option whose name is most similar to the part of `word` before "=", or NULL if no
 * name is similar enough. */
static const char *nearest_option(const struct cli *cli, const char *word)
{
	_cleanup_free_ char *name = strndup(word, strcspn(word, "="));
	const char *names[64];
	size_t n = 0;

	for (; n < ARRAY_SIZE(names) && options_at(cli->command, n); n++)
		names[n] = options_at(cli->command, n)->name;
	return name ? str_nearest(name, names, n) : NULL;
}

static int refuse_word(const struct cli *cli, const char *word)
{
	const char *near = nearest_option(cli, word + 2);

	return cli_misuse(cli, "unknown option %.*s%s%s%s", (int)strcspn(word, "="), word,
		near ? ", did you mean --" : "", near ? near : "", near ? "?" : "");
}

const struct strlist *cli_variables(const struct cli *cli)
{
	return &cli->variables;
}

int cli_refuse_variables(const struct cli *cli)
{
	_cleanup_free_ char *word = str_printf("--%s", cli->variables.items[0]);

	if (!word)
		abort();
	return refuse_word(cli, word);
}

/* Returns true if `word` is one of `words`, a list such as "slurm|local". */
static bool is_word_of(const char *words, const char *word)
{
	const size_t len = strlen(word);

	for (; words; words = strchr(words, '|')) {
		words += *words == '|';
		if (strcspn(words, "|") == len && strncmp(words, word, len) == 0)
			return true;
	}
	return false;
}

/* Reports missing operands. If the first operand is not one of the words that a spec such as
 * "list|get RUN" needs, reports that operand instead. */
static int refuse_without_word(const struct cli *cli, const char *wanted)
{
	size_t len = strspn(wanted, "abcdefghijklmnopqrstuvwxyz|");
	_cleanup_free_ char *words = strndup(wanted, len);
	const char *first = cli_operand(cli, 0);

	if (!words || !first || wanted[len] != ' ' || !strchr(words, '|') ||
		is_word_of(words, first))
		return cli_misuse(cli, "missing %s", wanted);
	return cli_misuse(cli, "'%s' is not %s; did you mean 'penstock %s %.*s %s'?", first, words,
		cli_verb(cli), (int)strcspn(words, "|"), words, first);
}

/* Reports a missing operand. If a variable is probably a mistyped option, reports that option
 * instead, because the operand may have been taken as the value of the variable. */
static int refuse_missing(const struct cli *cli)
{
	for (size_t i = 0; i < cli->variables.n; i++) {
		_cleanup_free_ char *word = NULL;

		if (!nearest_option(cli, cli->variables.items[i]))
			continue;
		word = str_printf("--%s", cli->variables.items[i]);
		if (!word)
			abort();
		return refuse_word(cli, word);
	}
	return refuse_without_word(cli, cli->command->operands);
}

static int refuse_option(const struct cli *cli, char **argv, int letter)
{
	const char *word = argv[optind - 1];

	if (letter > 0 && letter < OPTION_BASE)
		return cli_misuse(cli, "unknown option -%c", letter);
	if (letter >= OPTION_BASE) /* "--json=yes" */
		return cli_misuse(cli, "option --%s takes no argument",
			options_at(cli->command, (size_t)(letter - OPTION_BASE))->name);
	return str_starts(word, "--") ? refuse_word(cli, word)
				      : cli_misuse(cli, "unknown option %s", word);
}

static int take_option(struct cli *cli, size_t i, const char *argument)
{
	const struct option_spec *option = options_at(cli->command, i);

	if (strlist_add(&cli->values[i], argument ? argument : "") < 0)
		abort();
	if (strcmp(option->name, "help") == 0) {
		cli->help = true;
	} else if (strcmp(option->name, "quiet") == 0) {
		cli->quiet = true;
		log_set_level(LOG_ERROR);
	} else if (strcmp(option->name, "log-level") == 0 && log_set_level_name(argument) < 0) {
		return cli_misuse(cli,
			"invalid --log-level '%s': expected debug, info, warn, error or quiet",
			argument);
	} else if (strcmp(option->name, "color") == 0 && !cli_set_colours(argument)) {
		return cli_misuse(
			cli, "invalid --color '%s': expected auto, always or never", argument);
	} else if (argument && strchr(option->argument, '|') &&
		   !is_word_of(option->argument, argument)) {
		return cli_misuse(cli, "invalid --%s '%s': expected %s", option->name, argument,
			option->argument);
	}
	return 0;
}

/* Builds the tables of a verb for getopt_long(). For penstock itself, and for verbs with
 * `own_operands`, a '+' makes getopt_long() stop at the first operand. */
static void make_tables(const struct cli *cli, struct option *longs, char *shorts)
{
	char *s = shorts;

	if (!cli->command || cli->command->own_operands)
		*s++ = '+';
	*s++ = ':';
	for (size_t i = 0; i < cli->n_values; i++) {
		const struct option_spec *o = options_at(cli->command, i);

		longs[i] = (struct option){o->name, o->argument ? required_argument : no_argument,
			NULL, OPTION_BASE + (int)i};
		if (!o->letter)
			continue;
		*s++ = o->letter;
		if (o->argument)
			*s++ = ':';
	}
	longs[cli->n_values] = (struct option){0};
	*s = '\0';
}

static size_t index_of(const struct cli *cli, int value)
{
	for (size_t i = 0; i < cli->n_values; i++) {
		if (value == OPTION_BASE + (int)i || value == options_at(cli->command, i)->letter)
			return i;
	}
	abort();
}

/* Takes an operand of a verb with `own_operands`. getopt_long() stops at the operand, but options
 * of the verb may follow the operand. */
static bool take_own_operand(struct cli *cli, int argc, char **argv)
{
	if (!cli->command || cli->operands.n >= cli->command->own_operands || optind >= argc ||
		strcmp(argv[optind - 1], "--") == 0)
		return false;
	if (strlist_add(&cli->operands, argv[optind++]) < 0)
		abort();
	return true;
}

int cli_parse(struct cli *cli, int argc, char **argv)
{
	const struct command *c = cli->command;
	struct option longs[64];
	char shorts[3 + 2 * ARRAY_SIZE(longs)];
	int value;
	int code = 0;

	while (options_at(cli->command, cli->n_values))
		cli->n_values++;
	if (cli->n_values >= ARRAY_SIZE(longs))
		abort();
	cli->values = calloc(cli->n_values, sizeof(*cli->values));
	if (!cli->values)
		abort();
	make_tables(cli, longs, shorts);
	opterr = 0;
	optind = 0; /* restart: penstock's own options were parsed before the verb's */
	while (code == 0 && ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1 ||
				    take_own_operand(cli, argc, argv))) {
		if (value == -1)
			continue;
		if (value == '?' && optopt == 0 && take_variable(cli, argc, argv))
			continue;
		if (value == '?')
			code = refuse_option(cli, argv, optopt);
		else if (value == ':')
			code = cli_misuse(cli, "option --%s needs %s",
				options_at(c, index_of(cli, optopt))->name,
				options_at(c, index_of(cli, optopt))->argument);
		else
			code = take_option(cli, index_of(cli, value), optarg);
	}
	for (int i = optind; code == 0 && i < argc; i++) {
		if (strlist_add(&cli->operands, argv[i]) < 0)
			abort();
	}
	if (code || !c || cli->help)
		return code;
	if (cli->operands.n < c->min_operands)
		return refuse_missing(cli);
	if (cli->operands.n > c->max_operands)
		return cli_misuse(
			cli, "unexpected operand '%s'", cli->operands.items[c->max_operands]);
	return 0;
}

void cli_release(struct cli *cli)
{
	for (size_t i = 0; cli->values && i < cli->n_values; i++)
		strlist_release(&cli->values[i]);
	free(cli->values);
	cli->values = NULL;
	cli->n_values = 0;
	strlist_release(&cli->operands);
	strlist_release(&cli->variables);
}

/* ---- queries ---- */

const struct strlist *cli_values(const struct cli *cli, const char *option)
{
	for (size_t i = 0; i < cli->n_values; i++) {
		if (strcmp(options_at(cli->command, i)->name, option) == 0)
			return &cli->values[i];
	}
	abort(); /* not in the verb's table */
}

bool cli_has(const struct cli *cli, const char *option)
{
	return cli_values(cli, option)->n > 0;
}

const char *cli_value(const struct cli *cli, const char *option)
{
	const struct strlist *values = cli_values(cli, option);

	return values->n ? values->items[values->n - 1] : NULL;
}

size_t cli_n_operands(const struct cli *cli)
{
	return cli->operands.n;
}

const char *cli_operand(const struct cli *cli, size_t i)
{
	return i < cli->operands.n ? cli->operands.items[i] : NULL;
}

bool cli_number(const struct cli *cli, const char *option, int64_t min, int64_t max,
	int64_t fallback, int64_t *out)
{
	const char *value = cli_value(cli, option);

	*out = fallback;
	if (!value || str_to_i64(value, min, max, out))
		return true;
	cli_misuse(cli, "invalid --%s '%s': expected a number from %lld to %lld", option, value,
		(long long)min, (long long)max);
	return false;
}

bool cli_duration_ms(
	const struct cli *cli, const char *option, int64_t fallback_ms, int64_t *out_ms)
{
	static const struct {
		const char *name;
		int64_t ms;
	} units[] = {
		{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
	const char *value = cli_value(cli, option);
	char *end = NULL;
	double number;

	*out_ms = fallback_ms;
	if (!value)
		return true;
	number = isdigit((unsigned char)*value) ? strtod(value, &end) : -1;
	/* The bound, about 30 years, lets callers add the duration to a time in ns. */
	for (size_t i = 0; end && i < ARRAY_SIZE(units); i++) {
		double ms = number * (double)units[i].ms;

		if (strcmp(end, units[i].name) == 0 && ms >= 0 && ms <= 1e12) {
			*out_ms = (int64_t)ms;
			return true;
		}
	}
	cli_misuse(cli, "invalid --%s '%s': expected a duration such as 30s, 500ms, 5m or 2h",
		option, value);
	return false;
}

const char *cli_verb(const struct cli *cli)
{
	return cli->command->name;
}

bool cli_quiet(const struct cli *cli)
{
	return cli->quiet;
}

/* ---- errors ---- */

/* Set in the thread that executes a line of a batch. */
static _Thread_local const char *line_of_batch;
static _Thread_local FILE *out_of_batch;

void cli_set_where(const char *where)
{
	line_of_batch = where;
}

const char *cli_where(void)
{
	return line_of_batch ? line_of_batch : "";
}

void cli_set_out(FILE *out)
{
	out_of_batch = out;
}

FILE *cli_out(void)
{
	return out_of_batch ? out_of_batch : stdout;
}

static void print_line(const struct cli *cli, const char *text)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(4 * LIMIT_LOG_LINE);

	log_redact_into(&line, text);
	fprintf(log_stream(), "%spenstock%s%s:%s %s%s\n", log_colour(LOG_ERROR),
		cli->command ? " " : "", cli->command ? cli->command->name : "", log_colour_end(),
		cli_where(), buf_str(&line));
}

int cli_misuse(const struct cli *cli, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	buf_printf(&text, "%s 'penstock%s%s --help'",
		str_ends(buf_str(&text), "?") ? " see" : "; see", cli->command ? " " : "",
		cli->command ? cli->command->name : "");
	print_line(cli, buf_str(&text));
	return CLI_EXIT_USAGE;
}

int cli_refuse_options(const struct cli *cli, const char *const *options, const char *why)
{
	for (; *options; options++) {
		if (cli_has(cli, *options))
			return cli_misuse(cli, "--%s %s", *options, why);
	}
	return 0;
}

int cli_refuse_together(const struct cli *cli, const char *const *options)
{
	const char *first = NULL;

	for (; *options; options++) {
		if (!cli_has(cli, *options))
			continue;
		if (first)
			return cli_misuse(
				cli, "--%s and --%s cannot be used together", first, *options);
		first = *options;
	}
	return 0;
}

int cli_fail(const struct cli *cli, struct penstock_error *err)
{
	int code = exit_code_of_error(err->code);

	print_line(cli, err->message ? err->message : penstock_code_name(err->code));
	penstock_error_release(err);
	return code;
}

int cli_fail_as(const struct cli *cli, struct penstock_error *err, int invalid_code)
{
	bool invalid = err->code == PENSTOCK_E_INVALID;
	int code = cli_fail(cli, err);

	return invalid ? invalid_code : code;
}

int exit_code_of_error(int code)
{
	switch ((enum penstock_code)code) {
	case PENSTOCK_OK:
		return 0;
	case PENSTOCK_E_INVALID:
	case PENSTOCK_E_LIMIT:
		return CLI_EXIT_WORKFLOW;
	case PENSTOCK_E_NOT_FOUND:
		return CLI_EXIT_INPUT;
	case PENSTOCK_E_PERMISSION:
		return CLI_EXIT_PERMISSION;
	case PENSTOCK_E_UNAVAILABLE:
	case PENSTOCK_E_TIMEOUT:
	case PENSTOCK_E_PRECONDITION:
	case PENSTOCK_E_EXISTS:
	case PENSTOCK_E_CHANGED:
	case PENSTOCK_E_PROTOCOL:
	case PENSTOCK_E_UNSUPPORTED:
		return CLI_EXIT_UNAVAILABLE;
	case PENSTOCK_E_CANCELLED:
		return 130;
	default:
		return CLI_EXIT_INTERNAL;
	}
}
