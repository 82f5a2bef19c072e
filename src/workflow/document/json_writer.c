#include "workflow/document/json_writer.h"

#include "workflow/document/canonical.h"
#include "base/banned.h"

static void next_line(struct json_writer *w)
{
	if (w->filled)
		buf_add_char(w->out, ',');
	w->filled = true;
	buf_add_char(w->out, '\n');
	for (unsigned i = 0; i < w->depth; i++)
		buf_add_str(w->out, "  ");
}

static void add_key(struct json_writer *w, const char *key)
{
	if (w->depth)
		next_line(w);
	if (key) {
		json_add_text(w->out, key);
		buf_add_str(w->out, ": ");
	}
}

void json_write_open(struct json_writer *w, const char *key, char bracket)
{
	add_key(w, key);
	buf_add_char(w->out, bracket);
	w->depth++;
	w->filled = false;
}

void json_write_close(struct json_writer *w, char bracket)
{
	bool filled = w->filled;

	w->depth--;
	w->filled = false;
	if (filled)
		next_line(w);
	w->filled = true;
	buf_add_char(w->out, bracket);
}

void json_write_string(struct json_writer *w, const char *key, const char *value)
{
	add_key(w, key);
	if (value)
		json_add_text(w->out, value);
	else
		buf_add_str(w->out, "null");
}

void json_write_number(struct json_writer *w, const char *key, int64_t value)
{
	add_key(w, key);
	buf_printf(w->out, "%lld", (long long)value);
}

void json_write_bool(struct json_writer *w, const char *key, bool value)
{
	add_key(w, key);
	buf_add_str(w->out, value ? "true" : "false");
}
