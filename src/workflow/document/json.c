/*
 * A strict JSON reader (RFC 8259) that knows the position of every value. It stops at the first
 * syntax error, because later ones would be guesses.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/document.h"
#include "base/banned.h"

struct json {
	struct workflow_arena *arena;
	struct diagnostics *found;
	const char *file;
	const char *option;
	const char *p;
	const char *end;
	int line;
	const char *line_start;
	const char *mark; /* the last counted place, so that long lines take linear time */
	int mark_column;
	size_t nodes;
	size_t depth;
};

/* The position of `p`, which is on the current line. */
static struct workflow_place place_at(struct json *j, const char *p)
{
	if (j->option)
		return (struct workflow_place){0, 0, j->option};
	if (!j->mark || j->mark < j->line_start || j->mark > p) {
		j->mark = j->line_start;
		j->mark_column = 1;
	}
	for (; j->mark < p; j->mark++)
		j->mark_column += ((unsigned char)*j->mark & 0xc0) != 0x80;
	return (struct workflow_place){j->line, j->mark_column, NULL};
}

static struct node *fail_at(struct json *j, const char *p, const char *message)
{
	struct workflow_place at = place_at(j, p);

	diagnostics_add(j->found, DIAGNOSTIC_ERROR, j->file, &at, "%s", message);
	return NULL;
}

static int peek(const struct json *j)
{
	return j->p < j->end ? (unsigned char)*j->p : -1;
}

static void skip_space(struct json *j)
{
	for (; j->p < j->end; j->p++) {
		if (*j->p == '\n') {
			j->line++;
			j->line_start = j->p + 1;
		} else if (*j->p != ' ' && *j->p != '\t' && *j->p != '\r') {
			return;
		}
	}
}

static bool starts(const struct json *j, const char *word)
{
	size_t len = strlen(word);

	return (size_t)(j->end - j->p) >= len && memcmp(j->p, word, len) == 0;
}

/* Reports a character that begins no value. */
static struct node *fail_value(struct json *j, const char *expected)
{
	int c = peek(j);
	char message[160];

	if (c < 0)
		return fail_at(j, j->p,
			j->option
				? "the value ends in the middle; a `}` or `]` is missing"
				: "the file ends in the middle of the workflow; a `}` is missing");
	if (starts(j, "//") || starts(j, "/*") || c == '#')
		return fail_at(
			j, j->p, "JSON has no comments; remove it, or write the workflow as YAML");
	if (c == '\'')
		return fail_at(j, j->p, "JSON texts are in double quotes");
	if (starts(j, "\xe2\x80\x9c") || starts(j, "\xe2\x80\x9d"))
		return fail_at(j, j->p, "this is a typographic quote; JSON texts are in \" quotes");
	snprintf(message, sizeof(message),
		"%s expected (a file that begins with `{` is read as JSON)", expected);
	return fail_at(j, j->p, message);
}

static bool read_hex4(struct json *j, uint32_t *unit)
{
	unsigned char bytes[2];
	char digits[5] = {0};

	if (j->end - j->p < 4)
		return false;
	memcpy(digits, j->p, 4);
	if (str_unhex(digits, bytes, 2) < 0)
		return false;
	*unit = (uint32_t)(bytes[0] << 8 | bytes[1]);
	j->p += 4;
	return true;
}

static void add_utf8(struct buf *out, uint32_t c)
{
	if (c < 0x80) {
		buf_add_char(out, (char)c);
	} else if (c < 0x800) {
		buf_add_char(out, (char)(0xc0 | c >> 6));
		buf_add_char(out, (char)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		buf_add_char(out, (char)(0xe0 | c >> 12));
		buf_add_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(out, (char)(0x80 | (c & 0x3f)));
	} else {
		buf_add_char(out, (char)(0xf0 | c >> 18));
		buf_add_char(out, (char)(0x80 | (c >> 12 & 0x3f)));
		buf_add_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(out, (char)(0x80 | (c & 0x3f)));
	}
}

/* After `\u`. Returns NULL, or the mistake. */
static const char *read_unicode(struct json *j, struct buf *out)
{
	uint32_t c, low;

	if (!read_hex4(j, &c))
		return "`\\u` takes four hexadecimal digits";
	if (c == 0)
		return "a workflow cannot contain the character U+0000";
	if (c >= 0xdc00 && c < 0xe000)
		return "this is the second half of a surrogate pair without the first";
	if (c >= 0xd800 && c < 0xdc00) {
		if (!starts(j, "\\u"))
			return "the second half of this surrogate pair is missing";
		j->p += 2;
		if (!read_hex4(j, &low) || low < 0xdc00 || low >= 0xe000)
			return "the second half of this surrogate pair is missing";
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	add_utf8(out, c);
	return NULL;
}

/* After a backslash. Returns NULL, or the mistake. */
static const char *read_escape(struct json *j, struct buf *out)
{
	static const char names[] = "\"\\/bfnrt";
	static const char values[] = "\"\\/\b\f\n\r\t";
	int c = peek(j);
	const char *known = c > 0 ? strchr(names, c) : NULL;

	if (c == 'u') {
		j->p++;
		return read_unicode(j, out);
	}
	if (!known)
		return "no such escape; JSON has \\\" \\\\ \\/ \\b \\f \\n"
		       " \\r \\t and \\uXXXX";
	buf_add_char(out, values[known - names]);
	j->p++;
	return NULL;
}

/* At the opening quote. NULL if there is a mistake, which is reported. */
static const char *read_text(struct json *j)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	const char *start = j->p++;

	while (j->p < j->end && *j->p != '"') {
		const char *here = j->p;

		if (*here == '\n' || *here == '\r') {
			fail_at(j, start,
				"the text that begins here has no closing `\"` on its line");
			return NULL;
		}
		if (*here == '\t') {
			fail_at(j, here, "a tab in a text must be written \\t");
			return NULL;
		}
		j->p++;
		if (*here == '\\') {
			const char *wrong = read_escape(j, &text);

			if (wrong) {
				fail_at(j, here, wrong);
				return NULL;
			}
		} else {
			buf_add_char(&text, *here);
		}
	}
	if (j->p == j->end) {
		fail_at(j, start, "the text that begins here has no closing `\"`");
		return NULL;
	}
	j->p++;
	if (buf_failed(&text)) {
		j->arena->no_memory = true;
		return NULL;
	}
	return workflow_arena_copy(j->arena, buf_str(&text), text.len);
}

/* A number of RFC 8259, or true, false, null. */
static bool is_json_literal(const char *s)
{
	if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0 || strcmp(s, "null") == 0)
		return true;
	s += *s == '-';
	if (*s == '0')
		s++;
	else if (*s >= '1' && *s <= '9')
		s += strspn(s, "0123456789");
	else
		return false;
	if (*s == '.') {
		size_t n = strspn(s + 1, "0123456789");

		if (!n)
			return false;
		s += 1 + n;
	}
	if (*s == 'e' || *s == 'E') {
		size_t n;

		s++;
		s += *s == '-' || *s == '+';
		n = strspn(s, "0123456789");
		if (!n)
			return false;
		s += n;
	}
	return *s == '\0';
}

static struct node *read_literal(struct json *j)
{
	const char *start = j->p;
	struct workflow_place at = place_at(j, start);
	struct node *node;
	char *text;

	while (j->p < j->end && !strchr(" \t\r\n,:[]{}\"", *j->p))
		j->p++;
	if (j->p == start)
		return fail_value(j, "a value");
	text = workflow_arena_copy(j->arena, start, (size_t)(j->p - start));
	if (!text)
		return NULL;
	if (!is_json_literal(text)) {
		j->p = start;
		if (strchr("/#'", *start) || (unsigned char)*start >= 0x80)
			return fail_value(j, "a value");
		diagnostics_add(j->found, DIAGNOSTIC_ERROR, j->file, &at,
			"%s is not a JSON value: true, false, null, a number without leading "
			"zeros, or a text in double quotes",
			quote(text));
		return NULL;
	}
	node = node_scalar(j->arena, text, false, at);
	if (node)
		node->literal = true;
	return node;
}

static struct node *read_value(struct json *j);

/* After a member: true if another one follows, false at the end of the map or list, or after a
 * mistake, which is reported and sets `*bad`. */
static bool next_member(struct json *j, char close, bool *bad)
{
	const char *behind = j->p;
	int line = j->line;
	const char *line_start = j->line_start;

	skip_space(j);
	if (peek(j) == close) {
		j->p++;
		return false;
	}
	if (peek(j) == ',') {
		const char *comma = j->p++;
		struct json at_comma = *j;

		skip_space(j);
		if (peek(j) != '}' && peek(j) != ']')
			return true;
		fail_at(&at_comma, comma, "JSON allows no `,` after the last value; remove it");
	} else if (peek(j) < 0) {
		fail_value(j, "`,`");
	} else if (peek(j) == '}' || peek(j) == ']') {
		fail_at(j, j->p,
			close == '}' ? "`}` expected, to close the map"
				     : "`]` expected, to close the list");
	} else if (peek(j) == '"' || peek(j) == '{' || peek(j) == '[') {
		struct json at_end = *j;

		at_end.line = line;
		at_end.line_start = line_start;
		fail_at(&at_end, behind, "a `,` is missing after this value");
	} else {
		fail_value(j, "`,`");
	}
	*bad = true;
	return false;
}

static struct node *read_map(struct json *j, struct node *map)
{
	bool bad = false;

	skip_space(j);
	if (peek(j) == '}') {
		j->p++;
		return map;
	}
	do {
		struct workflow_place key_at;
		struct node *value;
		const char *key;

		skip_space(j);
		if (peek(j) != '"')
			return fail_value(j, "a key in double quotes");
		key_at = place_at(j, j->p);
		key = read_text(j);
		if (!key)
			return NULL;
		skip_space(j);
		if (peek(j) != ':')
			return fail_value(j, "`:` after the key");
		j->p++;
		skip_space(j);
		value = read_value(j);
		if (!value || node_add(j->arena, map, key, key_at, value) < 0)
			return NULL;
	} while (next_member(j, '}', &bad));
	return bad ? NULL : map;
}

static struct node *read_list(struct json *j, struct node *list)
{
	struct workflow_place nowhere = {0};
	bool bad = false;

	skip_space(j);
	if (peek(j) == ']') {
		j->p++;
		return list;
	}
	do {
		struct node *value;

		skip_space(j);
		value = read_value(j);
		if (!value || node_add(j->arena, list, NULL, nowhere, value) < 0)
			return NULL;
	} while (next_member(j, ']', &bad));
	return bad ? NULL : list;
}

static struct node *read_container(struct json *j)
{
	bool is_map = *j->p == '{';
	struct node *node = node_new(j->arena, is_map ? NODE_MAP : NODE_LIST, place_at(j, j->p));

	if (!node)
		return NULL;
	if (j->depth == LIMIT_WORKFLOW_DEPTH)
		return fail_at(j, j->p,
			"maps and lists nest too deep here (the limit is " TEXT_OF(
				LIMIT_WORKFLOW_DEPTH) ")");
	j->depth++;
	j->p++;
	node = is_map ? read_map(j, node) : read_list(j, node);
	j->depth--;
	if (node && is_map)
		node_check_duplicates(node, j->file, j->found);
	return node;
}

static struct node *read_value(struct json *j)
{
	struct workflow_place at;
	const char *text;

	if (++j->nodes > LIMIT_WORKFLOW_NODES)
		return fail_at(j, j->p,
			"the workflow has too many values (the limit is " TEXT_OF(
				LIMIT_WORKFLOW_NODES) ")");
	switch (peek(j)) {
	case '{':
	case '[':
		return read_container(j);
	case '"':
		at = place_at(j, j->p);
		text = read_text(j);
		return text ? node_scalar(j->arena, text, true, at) : NULL;
	default:
		return read_literal(j);
	}
}

struct node *json_read(struct workflow_arena *arena, const char *file, const char *option,
	const char *data, size_t len, struct diagnostics *found)
{
	struct json j = {
		.arena = arena,
		.found = found,
		.file = file,
		.option = option,
		.p = data,
		.end = data + len,
		.line = 1,
		.line_start = data,
	};
	struct node *root;

	skip_space(&j);
	root = read_value(&j);
	if (!root)
		return NULL;
	skip_space(&j);
	if (j.p < j.end)
		return fail_at(&j, j.p,
			"nothing may follow the end of the workflow; is a `{` missing, or one "
			"`}` too many?");
	return root;
}
