#include "workflow/document/diagnostics.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/banned.h"

static void diagnostic_release(struct diagnostic *d)
{
	free(d->file);
	free(d->option);
	free(d->message);
}

void diagnostics_release(struct diagnostics *list)
{
	for (size_t i = 0; i < list->n; i++)
		diagnostic_release(&list->items[i]);
	free(list->items);
	*list = (struct diagnostics){0};
}

/* Mistakes and notes have separate limits, so that notes cannot displace a mistake. */
static bool has_room(const struct diagnostics *list, enum diagnostic_severity severity)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
		n += list->items[i].severity == severity;
	return n < LIMIT_WORKFLOW_ERRORS;
}

/* A message is one line, even if it quotes line breaks. */
static void flatten(char *text)
{
	for (; text && *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
	}
}

static int diagnostic_fill(
	struct diagnostic *d, const char *file, const struct workflow_place *at, const char *text)
{
	struct buf redacted = BUF_INIT(LIMIT_STRING);

	log_redact_into(&redacted, text);
	d->message = buf_take(&redacted);
	buf_release(&redacted);
	flatten(d->message);
	d->file = strdup(at && at->file ? at->file : file);
	if (at) {
		d->line = at->line;
		d->column = at->column;
		if (at->option) {
			d->option = strdup(at->option);
			if (!d->option)
				return -1;
			flatten(d->option);
		}
	}
	return d->message && d->file ? 0 : -1;
}

void diagnostics_add(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	struct diagnostic d = {.severity = severity};
	struct diagnostic *grown;
	va_list ap;

	if (severity == DIAGNOSTIC_ERROR)
		list->errors++;
	if (!has_room(list, severity))
		return;
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
	if (grown)
		list->items = grown;
	if (!grown || text.failure == BUF_NO_MEMORY ||
		diagnostic_fill(&d, file, at, buf_str(&text)) < 0) {
		diagnostic_release(&d);
		list->no_memory = true;
		return;
	}
	list->items[list->n++] = d;
}

static bool has_same(const struct diagnostics *list, const struct diagnostic *d)
{
	for (size_t i = 0; i < list->n; i++) {
		if (list->items[i].severity == d->severity && list->items[i].line == d->line &&
			list->items[i].column == d->column &&
			strcmp(list->items[i].file, d->file) == 0 &&
			strcmp(list->items[i].message, d->message) == 0 &&
			strcmp(list->items[i].option ? list->items[i].option : "",
				d->option ? d->option : "") == 0)
			return true;
	}
	return false;
}

void diagnostics_take(struct diagnostics *list, struct diagnostics *from)
{
	list->errors += from->errors;
	list->no_memory |= from->no_memory;
	for (size_t i = 0; i < from->n; i++) {
		struct diagnostic *d = &from->items[i];
		struct diagnostic *grown;
		bool same = has_same(list, d);

		if (same && d->severity == DIAGNOSTIC_ERROR)
			list->errors--;
		if (same || !has_room(list, d->severity))
			continue;
		grown = realloc(list->items, (list->n + 1) * sizeof(*grown));
		if (!grown) {
			list->no_memory = true;
			break;
		}
		list->items = grown;
		list->items[list->n++] = *d;
		*d = (struct diagnostic){0};
	}
	diagnostics_release(from);
	diagnostics_sort(list);
}

bool diagnostics_all_of(const struct diagnostics *list, const char *file)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct diagnostic *d = &list->items[i];

		if (d->severity == DIAGNOSTIC_ERROR &&
			(d->option || !file || strcmp(d->file, file) != 0))
			return false;
	}
	return list->errors > 0;
}

static int by_position(const void *left, const void *right)
{
	const struct diagnostic *a = left;
	const struct diagnostic *b = right;
	int line_a = a->line ? a->line : INT_MAX;
	int line_b = b->line ? b->line : INT_MAX;

	if (line_a != line_b)
		return line_a < line_b ? -1 : 1;
	if (a->column != b->column)
		return a->column < b->column ? -1 : 1;
	return 0;
}

/* Insertion sort: stable, and the list is short and nearly in order. */
void diagnostics_sort(struct diagnostics *list)
{
	for (size_t i = 1; i < list->n; i++) {
		struct diagnostic d = list->items[i];
		size_t j = i;

		for (; j > 0 && by_position(&list->items[j - 1], &d) > 0; j--)
			list->items[j] = list->items[j - 1];
		list->items[j] = d;
	}
}

int diagnostic_format(const struct diagnostic *d, struct buf *out)
{
	if (d->option)
		buf_printf(out, "%s: ", d->option);
	else if (d->line)
		buf_printf(out, "%s:%d:%d: ", d->file, d->line, d->column);
	else
		buf_printf(out, "%s: ", d->file);
	if (d->severity == DIAGNOSTIC_NOTE)
		buf_add_str(out, "note: ");
	return buf_add_str(out, d->message);
}
