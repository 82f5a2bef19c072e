/* `penstock secret`: stores the values of `${{ secrets.NAME }}`. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/workflow/secret_file.h"

static volatile sig_atomic_t interrupted;

static void note_signal(int number)
{
	interrupted = number;
}

/*
 * Reads a line as getline() does, but restores the terminal's echo before a signal ends the
 * program. Signals are unblocked only in ppoll(), which waits for the line, so a signal that
 * arrived before the wait ends the wait.
 */
static ssize_t read_hidden(const char *name, char **line, size_t *size, const struct termios *shown)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
	struct pollfd terminal = {STDIN_FILENO, POLLIN, 0};
	struct sigaction before[ARRAY_SIZE(signals)];
	const struct sigaction note = {.sa_handler = note_signal};
	struct termios hidden = *shown;
	sigset_t held, free_mask;
	ssize_t n = -1;

	sigemptyset(&held);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaddset(&held, signals[i]);
	sigprocmask(SIG_BLOCK, &held, &free_mask);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &note, &before[i]);
	hidden.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
	fprintf(stderr, "Value of %s: ", name);
	/* getline() does not block after ppoll(), because the terminal delivers whole lines. */
	if (ppoll(&terminal, 1, NULL, &free_mask) > 0)
		n = getline(line, size, stdin);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, shown);
	fputc('\n', stderr);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &before[i], NULL);
	sigprocmask(SIG_SETMASK, &free_mask, NULL);
	if (interrupted)
		raise(interrupted);
	return n;
}

/* Reads one line from the terminal, without echo. */
static int ask(const char *name, struct buf *value, struct penstock_error *err)
{
	_cleanup_free_ char *line = NULL;
	struct termios shown;
	size_t size = 0;
	ssize_t n;

	if (tcgetattr(STDIN_FILENO, &shown) < 0)
		return error_errno(err, errno, "cannot read from the terminal");
	n = read_hidden(name, &line, &size, &shown);
	if (n > 0)
		buf_add(value, line, (size_t)n);
	if (line)
		explicit_bzero(line, size);
	return 0;
}

static int set(const struct cli *cli, const char *name, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	int r = isatty(STDIN_FILENO) ? ask(name, &value, err) : fs_read("/dev/stdin", &value, err);

	while (value.len &&
		(value.data[value.len - 1] == '\n' || value.data[value.len - 1] == '\r'))
		buf_truncate(&value, value.len - 1);
	if (r == 0 && !value.len)
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot store secret '%s': standard input is empty", name);
	if (r == 0 && memchr(value.data, '\0', value.len))
		r = error_set(err, PENSTOCK_E_INVALID,
			"cannot store secret '%s': its value contains a NUL byte; encode binary "
			"data, such as with base64",
			name);
	if (r == 0) {
		log_redact(buf_str(&value));
		r = secret_set(name, buf_str(&value), cli_has(cli, "keyring"), err);
	}
	if (value.data)
		explicit_bzero(value.data, value.len);
	return r;
}

static void print(void *cookie, const char *name, bool keyring)
{
	(void)cookie;
	printf("%s%s\n", name, keyring ? "  (keyring)" : "");
}

static int run_secret(const struct cli *cli)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	const char *what = cli_operand(cli, 0), *name = cli_operand(cli, 1);
	int r;

	if (strcmp(what, "list") == 0 && !name) {
		r = secret_list(print, NULL, &err);
	} else if (!name || (strcmp(what, "set") != 0 && strcmp(what, "rm") != 0)) {
		return cli_misuse(cli, "expected set NAME, list, or rm NAME");
	} else if (!secret_name_is_valid(name)) {
		return cli_misuse(cli,
			"invalid secret name '%s': use letters, digits and _, and no digit at "
			"the beginning",
			name);
	} else {
		r = *what == 's' ? set(cli, name, &err) : secret_remove(name, &err);
		if (r == 0)
			log_info("%s secret '%s'", *what == 's' ? "stored" : "removed", name);
	}
	return r < 0 ? cli_fail(cli, &err) : 0;
}

const struct command command_secret = {
	.name = "secret",
	.summary = "store the secrets that workflows refer to",
	.operands = "set NAME | list | rm NAME",
	.min_operands = 1,
	.max_operands = 2,
	.description =
		"Stores values for ${{ secrets.NAME }} of workflows, in secrets.json of "
		"penstock's home, which only this user can read, or in the desktop's keyring. "
		"The value is read from standard input, never from the command line. "
		"PENSTOCK_SECRET_NAME in the environment takes precedence over a stored value.",
	.options = OPTIONS({0, "keyring", NULL,
		"Keep the value in the desktop's keyring, through secret-tool"}),
	.examples = EXAMPLES(
		{"penstock secret set S3_KEY", "Ask for the value, without showing it"},
		{"penstock secret set S3_KEY < key.txt", "Read the value from a file"},
		{"penstock secret list", "List the names; values are never shown"},
		{"penstock secret rm S3_KEY", "Remove the value"}),
	.exits = EXITS({"66", "There is no such secret"}, {"69", "The keyring does not respond"}),
	.run = run_secret,
};
