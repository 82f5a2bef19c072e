/*
 * A strict JSON reader (RFC 8259) that knows the position of every value. The reader stops at the
 * first syntax error, because later errors would be guesses.
 */
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/document.h"

struct json {
	const struct document_source *from;
	const char *p;
	const char *end;
	size_t line;
	const char *line_start;
	const char *mark; /* columns are counted up to here, so that long lines take linear time */
	size_t mark_column;
	size_t nodes;
	size_t depth;
};

/* Returns the position of `p`, which is on the current line. */
static struct workflow_place place_at(struct json *j, const char *p)
{
	if (j->mark < j->line_start || j->mark > p) {
		j->mark = j->line_start;
		j->mark_column = 1;
	}
	for (; j->mark < p; j->mark++)
		j->mark_column += ((unsigned char)*j->mark & 0xc0) != 0x80;
	return source_place(j->from, j->line, j->mark_column);
}

static void *fail_at(struct json *j, const char *p, const char *message)
{
	return source_fail(j->from, place_at(j, p), "%s", message);
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

/* Reports a character that cannot begin a value. */
static void *fail_value(struct json *j, const char *expected)
{
	int c = peek(j);

	if (c < 0)
		return fail_at(j, j->p,
			j->from->option
				? "the value ends in the middle; a `}` or `]` is missing"
				: "the file ends in the middle of the workflow; a `}` is missing");
	if (starts(j, "//") || starts(j, "/*") || c == '#')
		return fail_at(j, j->p,
			"JSON has no comments; remove this one, or write the workflow as YAML");
	if (c == '\'')
		return fail_at(j, j->p, "JSON strings are in double quotes");
	if (starts(j, "\xe2\x80\x9c") || starts(j, "\xe2\x80\x9d"))
		return fail_at(
			j, j->p, "this is a typographic quote; JSON strings are in \" quotes");
	return source_fail(j->from, place_at(j, j->p),
		"%s expected (a file that begins with `{` is read as JSON)", expected);
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
	static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
	unsigned more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;

	buf_add_char(out, (char)(first[more] | c >> 6 * more));
	while (more--)
		buf_add_char(out, (char)(0x80 | (c >> 6 * more & 0x3f)));
}

/* Reads the digits after `\u`. Returns NULL, or the mistake. */
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

/* Reads an escape after its backslash. Returns NULL, or the mistake. */
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

/* Reads a text from its opening quote. Returns NULL after a mistake, which is reported. */
static const char *read_text(struct json *j)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_FILE);
	const char *start = j->p++;

	while (j->p < j->end && *j->p != '"') {
		const char *here = j->p;

		if (*here == '\n' || *here == '\r')
			return fail_at(j, start,
				"the text that begins here has no closing `\"` on its line");
		if (*here == '\t')
			return fail_at(j, here, "a tab in a string must be written \\t");
		j->p++;
		if (*here == '\\') {
			const char *wrong = read_escape(j, &text);

			if (wrong)
				return fail_at(j, here, wrong);
		} else {
			buf_add_char(&text, *here);
		}
	}
	if (j->p == j->end)
		return fail_at(j, start, "the text that begins here has no closing `\"`");
	j->p++;
	return workflow_arena_take(j->from->arena, &text);
}

/* Returns true for a JSON number (RFC 8259) and for true, false and null. */
static bool is_json_literal(const char *s)
{
	static const char digits[] = "0123456789";
	size_t n;

	if (strcmp(s, "true") == 0 || strcmp(s, "false") == 0 || strcmp(s, "null") == 0)
		return true;
	s += *s == '-';
	n = *s == '0' ? 1 : strspn(s, digits);
	s += n;
	if (n && *s == '.') {
		n = strspn(++s, digits);
		s += n;
	}
	if (n && (*s == 'e' || *s == 'E')) {
		s++;
		s += *s == '-' || *s == '+';
		n = strspn(s, digits);
		s += n;
	}
	return n && !*s;
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
	text = workflow_arena_copy(j->from->arena, start, (size_t)(j->p - start));
	if (!text)
		return NULL;
	if (!is_json_literal(text)) {
		j->p = start;
		if (strchr("/#'", *start) || (unsigned char)*start >= 0x80)
			return fail_value(j, "a value");
		return source_fail(j->from, at,
			"%s is not a JSON value: true, false, null, a number without leading "
			"zeros, or a text in double quotes",
			quote(text));
	}
	node = node_scalar(j->from->arena, text, false, at);
	if (node)
		node->literal = true;
	return node;
}

static struct node *read_value(struct json *j);

/* Reads the separator after a member. Returns true if another member follows, false at the end of
 * the map or list, or after a mistake, which is reported and sets `*bad`. */
static bool next_member(struct json *j, char close, bool *bad)
{
	struct workflow_place behind = place_at(j, j->p);

	skip_space(j);
	if (peek(j) == close) {
		j->p++;
		return false;
	}
	if (peek(j) == ',') {
		struct workflow_place comma = place_at(j, j->p++);

		skip_space(j);
		if (peek(j) != '}' && peek(j) != ']')
			return true;
		source_fail(j->from, comma, "JSON allows no `,` after the last value; remove it");
	} else if (peek(j) < 0) {
		fail_value(j, "`,`");
	} else if (peek(j) == '}' || peek(j) == ']') {
		fail_at(j, j->p,
			close == '}' ? "`}` expected, to close the map"
				     : "`]` expected, to close the list");
	} else if (peek(j) == '"' || peek(j) == '{' || peek(j) == '[') {
		source_fail(j->from, behind, "a `,` is missing after this value");
	} else {
		fail_value(j, "`,`");
	}
	*bad = true;
	return false;
}

static struct node *read_container(struct json *j)
{
	bool is_map = *j->p == '{', bad = false;
	char close = is_map ? '}' : ']';
	struct node *node = node_new(
		j->from->arena, is_map ? NODE_MAP : NODE_LIST, place_at(j, j->p));

	if (!node)
		return NULL;
	if (j->depth == LIMIT_WORKFLOW_DEPTH)
		return fail_at(j, j->p,
			"maps and lists nest too deep here (the limit is " TEXT_OF(
				LIMIT_WORKFLOW_DEPTH) ")");
	j->p++;
	skip_space(j);
	if (peek(j) == close) {
		j->p++;
		return node;
	}
	j->depth++;
	do {
		struct workflow_place key_at = {0};
		const char *key = NULL;
		struct node *value;

		skip_space(j);
		if (is_map) {
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
		}
		value = read_value(j);
		if (!value || node_add(j->from->arena, node, key, key_at, value) < 0)
			return NULL;
	} while (next_member(j, close, &bad));
	j->depth--;
	if (is_map && !bad)
		node_check_duplicates(node, j->from->file, j->from->found);
	return bad ? NULL : node;
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
		return text ? node_scalar(j->from->arena, text, true, at) : NULL;
	default:
		return read_literal(j);
	}
}

struct node *json_read(const struct document_source *from, const char *data, size_t len)
{
	struct json j = {
		.from = from,
		.p = data,
		.end = data + len,
		.line = 1,
		.line_start = data,
		.mark = data,
		.mark_column = 1,
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
