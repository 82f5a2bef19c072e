#include "run/step/env_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "workflow/document/secrets.h"

struct line {
	const char *text;
	size_t len;
};

static bool next_line(const char **p, const char *end, struct line *line)
{
	const char *newline;

	if (*p >= end)
		return false;
	newline = memchr(*p, '\n', (size_t)(end - *p));
	line->text = *p;
	line->len = (size_t)((newline ? newline : end) - *p);
	*p = newline ? newline + 1 : end;
	return true;
}

/* Returns the length of the name at the beginning of the line; 0 if there is none. */
static size_t name_length(const struct line *line)
{
	size_t n = 0;

	while (n < line->len) {
		char c = line->text[n];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

		if (!letter && !(n > 0 && c >= '0' && c <= '9'))
			break;
		n++;
	}
	return n;
}

/* Returns true for the variables that a workflow's `env` cannot set either. */
static bool is_refused(const char *key, size_t len)
{
	return (len == 4 && memcmp(key, "PATH", 4) == 0) ||
	       (len == 15 && memcmp(key, "LD_LIBRARY_PATH", 15) == 0);
}

static int set_value(struct strlist *env, const char *key, const char *value, size_t len,
	struct penstock_error *err)
{
	_cleanup_free_ char *copy = strndup(value, len);

	if (!copy)
		return error_memory(err);
	if (is_refused(key, strlen(key)))
		return 0;
	/* A later step may print the value, so it is masked like any other secret. */
	if (secret_variable(key, copy) && log_redact(copy) < 0)
		return error_memory(err);
	return strlist_set(env, key, copy) < 0 ? error_memory(err) : 0;
}

/* Collects the lines of KEY<<MARK; `*p` is after that line. */
static int read_block(const char **p, const char *end, const char *key, const char *mark,
	struct strlist *env, struct penstock_error *err)
{
	const char *begin = *p;
	struct line line;

	if (!*mark)
		return error_set(
			err, PENSTOCK_E_INVALID, "$DEEPSQUARE_ENV: '%s<<' has no end mark", key);
	while (next_line(p, end, &line)) {
		if (line.len == strlen(mark) && memcmp(line.text, mark, line.len) == 0)
			return set_value(env, key, begin,
				line.text > begin ? (size_t)(line.text - begin) - 1 : 0, err);
	}
	return error_set(err, PENSTOCK_E_INVALID,
		"$DEEPSQUARE_ENV: '%s<<%s' has no line '%s' that ends it", key, mark, mark);
}

int env_file_parse(const char *text, size_t len, struct strlist *env, struct penstock_error *err)
{
	const char *p = text;
	const char *end = text + len;
	struct line line;

	if (memchr(text, '\0', len))
		return error_set(err, PENSTOCK_E_INVALID, "$DEEPSQUARE_ENV contains a NUL byte");
	while (next_line(&p, end, &line)) {
		size_t n = name_length(&line);
		_cleanup_free_ char *key = strndup(line.text, n);
		int r = 0;

		if (!key)
			return error_memory(err);
		if (n && n < line.len && line.text[n] == '=') {
			r = set_value(env, key, line.text + n + 1, line.len - n - 1, err);
		} else if (n && n + 1 < line.len && line.text[n] == '<' &&
			   line.text[n + 1] == '<') {
			_cleanup_free_ char *mark = strndup(line.text + n + 2, line.len - n - 2);

			r = mark ? read_block(&p, end, key, mark, env, err) : error_memory(err);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Moves `*p` after the block that begins with `first`. Returns the number of lines after `first`, 0
 * if the block has no end. */
static unsigned skip_block(const char **p, const char *end, const struct line *first, size_t name)
{
	const char *mark = first->text + name + 2;
	size_t len = first->len - name - 2;
	unsigned n = 0;
	struct line line;

	while (len && next_line(p, end, &line)) {
		n++;
		if (line.len == len && memcmp(line.text, mark, len) == 0)
			return n;
	}
	return 0;
}

/* Shortens a line for a message. */
static void show_beginning(const struct line *line, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)(line->len < size ? line->len : size), line->text);
	for (; *out; out++) {
		if ((unsigned char)*out < 0x20 || *out == 0x7f)
			*out = '?';
	}
}

static bool is_passed_on(const struct line *line, size_t name)
{
	if (!line->len || *line->text == '#')
		return true; /* an empty line or a comment */
	return name && name < line->len && line->text[name] == '=' && !is_refused(line->text, name);
}

void env_file_check(const char *text, size_t len, size_t from, struct env_file_odd *out)
{
	const char *p = text;
	const char *end = text + len;
	struct line line;

	*out = (struct env_file_odd){0};
	for (unsigned number = 1; next_line(&p, end, &line); number++) {
		size_t name = name_length(&line);
		bool whole = line.text + line.len < end;

		if (whole)
			out->whole = (size_t)(p - text);
		if (name && name + 1 < line.len && memcmp(line.text + name, "<<", 2) == 0) {
			unsigned lines = skip_block(&p, end, &line, name);

			if (!lines) {
				out->whole = (size_t)(line.text - text);
				show_beginning(&line, out->block, sizeof(out->block));
				return;
			}
			number += lines;
			out->whole = (size_t)(p - text);
		} else if (line.text >= text + from && !is_passed_on(&line, name)) {
			if (out->n < ARRAY_SIZE(out->lines))
				out->lines[out->n] = number;
			out->n++;
		}
	}
}

int env_file_read(const char *path, struct strlist *env, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_ENV_FILE);

	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (fs_read_plain(path, &text, err) < 0)
		return error_prefix(err, "$DEEPSQUARE_ENV");
	return env_file_parse(buf_str(&text), text.len, env, err);
}
