#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/str.h"
#include "cli/frame/options.h"
#include "cli/frame/tables.h"
#include "workflow/document/secrets.h"

static int refuse_verb(const struct cli *cli, const char *word)
{
	const char *names[64];
	const char *found;
	size_t n = 0;

	for (; n < ARRAY_SIZE(names) - 2 && cli->commands[n]; n++)
		names[n] = cli->commands[n]->name;
	names[n++] = "help";
	names[n++] = "version";
	found = str_nearest(word, names, n);
	if (found)
		return cli_misuse(cli, "unknown verb '%s', did you mean '%s'?", word, found);
	return cli_misuse(cli, "unknown verb '%s'", word);
}

static int print_text(const struct buf *text)
{
	if (buf_failed(text))
		abort();
	fputs(buf_str(text), cli_out());
	return 0;
}

static int print_version(void)
{
	printf("penstock %s\n", PENSTOCK_VERSION);
	return 0;
}

static int print_help(const struct cli *cli, const struct command *command)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (command)
		help_command(&text, command);
	else
		help_overview(&text, cli->commands);
	return print_text(&text);
}

/* Prints a page: --man [VERB], --completion SHELL, --table NAME FORMAT. */
static int print_page(const struct cli *cli, const char *what, const char *name, const char *format)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	if (strcmp(what, "--man") == 0) {
		const struct command *command = name ? command_find(cli->commands, name) : NULL;

		if (name && !command)
			return refuse_verb(cli, name);
		man_page(&text, command, cli->commands);
	} else if (strcmp(what, "--completion") == 0) {
		if (!name || !completion_script(name))
			return cli_misuse(cli, "--completion supports bash, zsh and fish");
		buf_add_str(&text, completion_script(name));
	} else if (!name || !format || !table_write(&text, name, strcmp(format, "markdown") == 0)) {
		return cli_misuse(cli, "--table needs the name of a table and markdown or scdoc");
	}
	return print_text(&text);
}

/* Prints the candidates for the last word of a command line, for the scripts of --completion. */
static int print_completion(const struct cli *cli, char *const *words, size_t n)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	completion_words(&text, cli->commands, words, n);
	return print_text(&text);
}

/* `penstock help [VERB|workflow]` */
static int run_help(const struct cli *cli)
{
	const char *verb = cli_operand(cli, 1);
	const struct command *command = verb ? command_find(cli->commands, verb) : NULL;

	if (verb && (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0))
		return print_help(cli, NULL);
	if (verb && strcmp(verb, "workflow") == 0 && !cli_operand(cli, 2)) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

		help_workflow(&text);
		return print_text(&text);
	}
	if (verb && !command && strcmp(verb, "help") != 0 && strcmp(verb, "version") != 0)
		return refuse_verb(cli, verb);
	if (cli_operand(cli, 2))
		return cli_misuse(cli, "unexpected operand '%s'", cli_operand(cli, 2));
	return print_help(cli, command);
}

/* Parses the operands of `top` as the command line of a verb. Returns NULL if there is nothing to
 * run; `*code` is then the exit code. */
static struct cli *read_verb(const struct cli *top, const struct command *command, int *code)
{
	struct cli *cli = malloc(sizeof(*cli));
	size_t argc = top->operands.n;

	/* getopt_long() permutes the words, but does not change the strings. */
	_cleanup_free_ char **argv = calloc(argc + 1, sizeof(*argv));

	if (!argv || !cli)
		abort();
	*cli = (struct cli){.command = command, .commands = top->commands, .quiet = top->quiet};
	memcpy(argv, top->operands.items, argc * sizeof(*argv));
	*code = cli_parse(cli, (int)argc, argv);
	if (!*code && !cli->help)
		return cli;
	if (!*code)
		*code = print_help(top, command);
	cli_free(cli);
	return NULL;
}

struct cli *cli_read_words(const struct cli *cli, const struct strlist *words, int *code)
{
	const struct cli top = {.commands = cli->commands, .quiet = cli->quiet, .operands = *words};
	const struct command *command = command_find(cli->commands, words->items[0]);

	if (command)
		return read_verb(&top, command, code);
	*code = refuse_verb(&top, words->items[0]);
	return NULL;
}

int cli_run(const struct cli *line)
{
	return line->command->run(line);
}

void cli_free(struct cli *line)
{
	if (!line)
		return;
	cli_release(line);
	free(line);
}

/* `penstock` without a verb is an error in a script, but prints the verbs to stderr as help for a
 * user. */
static int print_verbs(const struct cli *top)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);

	buf_add_str(&text, "usage: penstock VERB [OPTION]... [OPERAND]...\n");
	help_verbs(&text, top->commands);
	buf_add_str(&text, "\nMore: penstock --help, penstock VERB --help\n");
	fputs(buf_str(&text), stderr);
	return CLI_EXIT_USAGE;
}

static int dispatch(struct cli *top)
{
	const char *verb = cli_operand(top, 0);
	const struct command *command;
	struct cli *cli;
	int code;

	if (top->help)
		return print_help(top, NULL);
	if (!verb)
		return print_verbs(top);
	command = command_find(top->commands, verb);
	if (!command && strcmp(verb, "version") == 0)
		return print_version();
	if (!command)
		return strcmp(verb, "help") == 0 ? run_help(top) : refuse_verb(top, verb);
	cli = read_verb(top, command, &code);
	if (cli)
		code = cli_run(cli);
	cli_free(cli);
	return code;
}

/* Fails if the output could not be written: a full disk or a closed pipe may cause an error only
 * when the buffer is flushed. */
static int check_stdout(int code)
{
	int failed = ferror(stdout);

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return code;
	fprintf(stderr, "penstock: cannot write to standard output: %s\n",
		errno ? strerror(errno) : "write error");
	return code ? code : CLI_EXIT_INTERNAL;
}

/* Returns true for "PATH=VALUE" of --set if neither its path nor its value looks like a secret. */
static bool is_plain_set(const char *set)
{
	static const char *const words[] = {"key", "token", "secret", "pass", "pwd", "credential",
		"connection", "auth", "bearer", "notify", "env"};
	_cleanup_free_ char *path = strndup(set, strcspn(set, "="));
	const char *dot = path ? strrchr(path, '.') : NULL;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasestr(set, words[i]))
			return false;
	}
	return path && !secret_variable(dot ? dot + 1 : path, set + strcspn(set, "=") + 1);
}

/* Overwrites arguments that may contain secrets: values of --env and some of --set, and the users
 * and query strings of URLs. Every user can read the arguments of a process. The parsed values are
 * copies. */
static void hide_arguments(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		bool set = strcmp(argv[i - 1], "--set") == 0 || strcmp(argv[i - 1], "-s") == 0;
		char *secret = strchr(argv[i], '=');
		char *url = strstr(argv[i], "://");

		if (secret && str_starts(argv[i], "--set=") && is_plain_set(secret + 1))
			secret = NULL;
		else if (secret && str_starts(argv[i], "--"))
			secret = strchr(secret + 1, '=');
		else if (secret && set && is_plain_set(argv[i]))
			secret = NULL;
		if (url && strchr(url, '@') && (!secret || url < secret))
			secret = url + 2;
		else if (url && !secret)
			secret = strchr(url, '?');
		if (secret)
			memset(secret + 1, '*', strlen(secret + 1));
	}
}

int cli_main(int argc, char **argv, const struct command *const *commands)
{
	_cleanup_(cli_release) struct cli cli = {.commands = commands};
	const struct command *command;
	int code;

	/* Open descriptors 0 to 2 if they are closed. Otherwise a file that is opened later would
	 * get one of these numbers, and messages would be written to that file. */
	for (int fd = 0; fd < 3; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
			open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
			abort();
	}
	process_protect_memory();
	cli_set_colours(NULL);
	signal(SIGPIPE, SIG_IGN); /* report a write error instead */
	signal(SIGCHLD, SIG_DFL); /* if the parent ignores SIGCHLD, exit statuses would be lost */
	if (log_set_level_name(getenv("PENSTOCK_LOG")) < 0)
		log_warn("invalid PENSTOCK_LOG '%s': expected debug, info, warn, error or quiet",
			getenv("PENSTOCK_LOG"));
	if (argc > 1 && strcmp(argv[1], "--version") == 0)
		return check_stdout(print_version());
	if (argc > 1 && (strcmp(argv[1], "--man") == 0 || strcmp(argv[1], "--table") == 0 ||
				strcmp(argv[1], "--completion") == 0))
		return check_stdout(print_page(
			&cli, argv[1], argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL));
	if (argc > 1 && strcmp(argv[1], "--complete") == 0)
		return check_stdout(print_completion(&cli, argv + 2, (size_t)argc - 2));
	code = cli_parse(&cli, argc, argv);
	command = cli.operands.n ? command_find(commands, cli.operands.items[0]) : NULL;
	/* Arguments for another program stay visible: that program will have the same arguments,
	 * and `exec` needs its command line unchanged, because it executes itself again with the
	 * same arguments before it enters a container (enter_prepare()). */
	if (!command || !command->own_operands)
		hide_arguments(argc, argv);
	return check_stdout(code ? code : dispatch(&cli));
}
