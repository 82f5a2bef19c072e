#include "workflow/document/diagnostics.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"

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

/* Moves the message into the list. */
static void append(struct diagnostics *list, struct diagnostic *d)
{
	struct diagnostic *grown = array_grow(list->items, list->n, sizeof(*grown));

	if (!grown) {
		list->no_memory = true;
		return;
	}
	list->items = grown;
	list->items[list->n++] = *d;
	*d = (struct diagnostic){0};
}

void diagnostics_vadd(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, va_list ap)
{
	static const struct workflow_place nowhere;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf redacted = BUF_INIT(LIMIT_STRING);
	_cleanup_(diagnostic_release) struct diagnostic d = {.severity = severity};

	if (severity == DIAGNOSTIC_ERROR)
		list->errors++;
	if (!has_room(list, severity))
		return;
	at = at ? at : &nowhere;
	buf_vprintf(&text, fmt, ap);
	log_redact_into(&redacted, buf_str(&text));
	d.message = text.failure == BUF_NO_MEMORY ? NULL : buf_take(&redacted);
	d.file = strdup(at->file ? at->file : file);
	d.option = at->option ? strdup(at->option) : NULL;
	d.line = at->line;
	d.column = at->column;
	flatten(d.message);
	flatten(d.option);
	if (d.message && d.file && !d.option == !at->option)
		append(list, &d);
	else
		list->no_memory = true;
}

void diagnostics_add(struct diagnostics *list, enum diagnostic_severity severity, const char *file,
	const struct workflow_place *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diagnostics_vadd(list, severity, file, at, fmt, ap);
	va_end(ap);
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
		bool same = has_same(list, d);

		if (same && d->severity == DIAGNOSTIC_ERROR)
			list->errors--;
		if (!same && has_room(list, d->severity))
			append(list, d);
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

static bool is_after(const struct diagnostic *a, const struct diagnostic *b)
{
	int line_a = a->line ? a->line : INT_MAX;
	int line_b = b->line ? b->line : INT_MAX;

	return line_a > line_b || (line_a == line_b && a->column > b->column);
}

/* Insertion sort: stable, and the list is short and nearly in order. */
void diagnostics_sort(struct diagnostics *list)
{
	for (size_t i = 1; i < list->n; i++) {
		struct diagnostic d = list->items[i];
		size_t j = i;

		for (; j > 0 && is_after(&list->items[j - 1], &d); j--)
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

void diagnostics_be_strict(struct diagnostics *list)
{
	for (size_t i = 0; i < list->n; i++) {
		if (list->items[i].severity == DIAGNOSTIC_NOTE)
			list->errors++;
		list->items[i].severity = DIAGNOSTIC_ERROR;
	}
}
