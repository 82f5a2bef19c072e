/* Prints diagnostics of a workflow file on stderr. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/print/util.h"
#include "cli/workflow/load.h"
#include "workflow/document/diagnostics.h"

enum { MARGIN = 9 }; /* "    5 | " */

/* Returns line `number` of the text; NULL if the text has fewer lines. */
static char *line_of(const struct buf *text, int number)
{
	const char *at = buf_str(text);

	for (; number > 1 && at; number--) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	return at ? strndup(at, strcspn(at, "\r\n")) : NULL;
}

/* Returns true if the line may hold a secret, even under a mistyped key. */
static bool may_hold_secret(const char *line)
{
	static const char *const words[] = {"key", "token", "secret", "pass", "pwd", "credential",
		"connection", "auth", "value", "env", "@"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcasestr(line, words[i]))
			return true;
	}
	return false;
}

/* Prints the line of the file, with a mark below the place of the diagnostic, unless the line may
 * hold a secret or does not fit. */
static void print_line_of(const struct diagnostic *d, const struct buf *text)
{
	_cleanup_(buf_release) struct buf shown = BUF_INIT(LIMIT_STRING);
	_cleanup_free_ char *line = line_of(text, d->line);

	if (!line || may_hold_secret(line) || strlen(line) + MARGIN > show_width(STDERR_FILENO))
		return;
	for (char *p = line; *p; p++)
		*p = *p == '\t' ? ' ' : *p;
	log_redact_into(&shown, line);
	fprintf(stderr, "%5d | ", d->line);
	show_name(stderr, buf_str(&shown));
	fprintf(stderr, "\n      | %*s\n", d->column, "^");
}

void load_print_found(const struct diagnostics *found, const char *file, const struct buf *text)
{
	for (size_t i = 0; i < found->n; i++) {
		const struct diagnostic *d = &found->items[i];
		bool error = d->severity == DIAGNOSTIC_ERROR;
		_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_STRING);

		diagnostic_format(d, &line);
		fprintf(stderr, "%s%.*s%s%s\n", log_colour(error ? LOG_ERROR : LOG_WARN),
			(int)(line.len - strlen(d->message)), buf_str(&line), log_colour_end(),
			d->message);
		if (text && d->line && strcmp(d->file, file) == 0 && isatty(STDERR_FILENO))
			print_line_of(d, text);
	}
}

void load_print_total(const struct diagnostics *found, const char *file)
{
	size_t notes = 0;

	for (size_t i = 0; i < found->n; i++)
		notes += found->items[i].severity == DIAGNOSTIC_NOTE;
	if (found->n && isatty(STDERR_FILENO))
		fprintf(stderr, "%s: %zu error%s, %zu note%s\n", file, found->errors,
			found->errors == 1 ? "" : "s", notes, notes == 1 ? "" : "s");
}
