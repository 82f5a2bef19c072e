/*
 * YAML through libyaml's events, which have positions. Aliases are expanded into copies (so that an
 * override of one copy does not change another) and counted against the limit on values, which
 * stops alias bombs.
 */
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/document.h"

struct anchor {
	const char *name;
	struct node *node; /* NULL while it is being read */
};

struct yaml {
	const struct document_source *from;
	const char *data;
	size_t len;
	yaml_parser_t parser;
	struct anchor *anchors;
	size_t n_anchors;
	size_t left; /* values that may still be read */
	size_t depth;
	size_t stray; /* offset of a comma that stopped the reading; 0 if there is none */
};

static struct workflow_place place_of(const struct yaml *y, const yaml_mark_t *mark)
{
	return source_place(y->from, mark->line + 1, mark->column + 1);
}

static void *fail_at(struct yaml *y, const yaml_mark_t *mark, const char *message)
{
	return source_fail(y->from, place_of(y, mark), "%s", message);
}

/* Returns the offset in bytes of the character `index`, as libyaml counts characters; the length of
 * the text if `index` is its end. */
static size_t byte_at(const struct yaml *y, size_t index)
{
	size_t i = 0;

	while (i < y->len && (((unsigned char)y->data[i] & 0xc0) == 0x80 || index-- != 0))
		i++;
	return i;
}

/* Returns true for the comma of `key: "value",`: the last character of its line, after a quoted
 * value. Such a comma has no meaning. */
static bool is_stray_comma(const struct yaml *y, size_t at)
{
	size_t before = at;

	if (at == 0 || at >= y->len || y->data[at] != ',')
		return false;
	while (before > 0 && y->data[before - 1] == ' ')
		before--;
	if (before == 0 || !strchr("\"'", y->data[before - 1]))
		return false;
	at++;
	while (at < y->len && strchr(" \r", y->data[at]) && y->data[at])
		at++;
	return at == y->len || y->data[at] == '\n';
}

/* Returns a better message than libyaml's if the text shows the cause, else NULL. */
static const char *explain(const struct yaml *y, const char *problem, size_t at)
{
	int c = at < y->len ? (unsigned char)y->data[at] : -1;

	if (c == '\t')
		return "a tab cannot indent YAML; use spaces";
	if (strstr(problem, "expected key") || strstr(problem, "block end") ||
		strstr(problem, "document start")) {
		if (c == ',')
			return "YAML needs no `,` after a value outside of { } and [ ]; remove it";
		return "this line continues neither the preceding nor the enclosing map or list; "
		       "check the indentation and the line before";
	}
	if (strstr(problem, "mapping values are not allowed"))
		return "a value without quotes cannot contain `: `; put the value in quotes, or check "
		       "the indentation";
	if (strstr(problem, "could not find expected ':'"))
		return "a `:` is missing after this key, or the line before is incomplete";
	if (strstr(problem, "cannot start any token"))
		return "no value without quotes begins with this character; put the value in quotes";
	return NULL;
}

/* Reads the next event, which the caller deletes. Returns false after a mistake, which is
 * reported. */
static bool next_event(struct yaml *y, yaml_event_t *event)
{
	const yaml_parser_t *p = &y->parser;
	struct workflow_place at;
	const char *problem, *better;
	size_t byte;

	if (yaml_parser_parse(&y->parser, event))
		return true;
	if (p->error == YAML_MEMORY_ERROR) {
		y->from->arena->no_memory = true;
		return false;
	}
	problem = p->problem ? p->problem : "the text is not valid YAML";
	byte = byte_at(y, p->problem_mark.index);
	better = explain(y, problem, byte);
	at = place_of(y, &p->problem_mark);
	if (!y->from->option && is_stray_comma(y, byte)) {
		y->stray = byte;
		diagnostics_add(y->from->found, DIAGNOSTIC_NOTE, y->from->file, &at,
			"a `,` after a value has no meaning in YAML and is ignored");
		return false;
	}
	/* Report the place where the quote was opened, not the end of the file. */
	if (p->context && strstr(p->context, "quoted scalar") && strstr(problem, "end of stream")) {
		at = place_of(y, &p->context_mark);
		better = "the quoted text that begins here never ends";
	}
	if (better)
		source_fail(y->from, at, "%s", better);
	else
		source_fail(y->from, at, "%s%s%s", p->context ? p->context : "",
			p->context ? " " : "", problem);
	return false;
}

static struct node *read_node(struct yaml *y, const yaml_event_t *event);

static struct node *read_alias(struct yaml *y, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.alias.anchor;

	/* The last anchor of a name is used. */
	for (size_t i = y->n_anchors; i-- > 0;) {
		struct node *copy;

		if (strcmp(y->anchors[i].name, name) != 0)
			continue;
		if (!y->anchors[i].node)
			return fail_at(
				y, &event->start_mark, "this alias is inside its own anchor");
		copy = node_copy(y->from->arena, y->anchors[i].node, &y->left);
		if (!copy && !y->from->arena->no_memory)
			return fail_at(y, &event->start_mark,
				"with its aliases the workflow has too many values");
		return copy;
	}
	return source_fail(y->from, place_of(y, &event->start_mark),
		"there is no anchor &%s before this alias", quote(name));
}

/* Returns true if there is no tag, or a tag of the core schema; sets `quoted` for text. */
static bool tag_is_known(const char *tag, bool *quoted)
{
	static const char *const plain[] = {"int", "float", "bool", "null", "map", "seq"};

	if (!tag)
		return true;
	if (strcmp(tag, "!") == 0 || strcmp(tag, YAML_STR_TAG) == 0) {
		*quoted = true;
		return true;
	}
	return str_starts(tag, "tag:yaml.org,2002:") &&
	       is_one_of(tag + strlen("tag:yaml.org,2002:"), plain, ARRAY_SIZE(plain));
}

static struct node *read_scalar(struct yaml *y, const yaml_event_t *event)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t len = event->data.scalar.length;
	bool quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	char *text;

	if (memchr(value, 0, len))
		return fail_at(
			y, &event->start_mark, "a workflow cannot contain the character U+0000");
	if (!tag_is_known((const char *)event->data.scalar.tag, &quoted))
		return fail_at(y, &event->start_mark, "this tag is not supported; remove the tag");
	text = workflow_arena_copy(y->from->arena, value, len);
	return text ? node_scalar(y->from->arena, text, quoted, place_of(y, &event->start_mark))
		    : NULL;
}

/* Returns the key of a map; NULL after a mistake, which is reported. */
static const char *read_key(struct yaml *y, const yaml_event_t *event)
{
	const struct node *key;

	if (event->type == YAML_ALIAS_EVENT)
		return fail_at(y, &event->start_mark, "an alias cannot be a key");
	if (event->type != YAML_SCALAR_EVENT)
		return fail_at(
			y, &event->start_mark, "a key must be a plain word, not a map or a list");
	key = read_scalar(y, event);
	if (key && strcmp(key->text, "<<") == 0 && !key->quoted)
		return fail_at(y, &event->start_mark,
			"the merge key `<<` is not part of YAML 1.2; write the keys out");
	return key ? key->text : NULL;
}

/* Reads to the end of the map or list `node`. Returns false if the end was not reached. */
static bool read_members(struct yaml *y, struct node *node, yaml_event_type_t end)
{
	for (;;) {
		__attribute__((cleanup(yaml_event_delete))) yaml_event_t event = {0};
		__attribute__((cleanup(yaml_event_delete))) yaml_event_t behind_key = {0};
		struct workflow_place key_at = {0};
		const char *key = NULL;
		struct node *value;

		if (!next_event(y, &event))
			return false;
		if (event.type == end)
			return true;
		if (node->kind == NODE_MAP) {
			key_at = place_of(y, &event.start_mark);
			key = read_key(y, &event);
			if (!key || !next_event(y, &behind_key))
				return false;
			value = read_node(y, &behind_key);
		} else {
			value = read_node(y, &event);
		}
		if (!value || node_add(y->from->arena, node, key, key_at, value) < 0)
			return false;
	}
}

static struct node *read_container(struct yaml *y, const yaml_event_t *event)
{
	bool is_map = event->type == YAML_MAPPING_START_EVENT;
	const yaml_char_t *tag = is_map ? event->data.mapping_start.tag
					: event->data.sequence_start.tag;
	struct node *node = node_new(
		y->from->arena, is_map ? NODE_MAP : NODE_LIST, place_of(y, &event->start_mark));
	bool quoted = false;

	if (!node)
		return NULL;
	if (y->depth == LIMIT_WORKFLOW_DEPTH)
		return fail_at(y, &event->start_mark,
			"maps and lists nest too deep here (the limit is " TEXT_OF(
				LIMIT_WORKFLOW_DEPTH) ")");
	if (!tag_is_known((const char *)tag, &quoted))
		return fail_at(y, &event->start_mark, "this tag is not supported; remove the tag");
	y->depth++;
	if (!read_members(y, node, is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT))
		return NULL;
	y->depth--;
	if (is_map)
		node_check_duplicates(node, y->from->file, y->from->found);
	return node;
}

/* Returns the value that begins with `event`; NULL after a mistake, which is reported. */
static struct node *read_node(struct yaml *y, const yaml_event_t *event)
{
	const yaml_char_t *anchor = NULL;
	struct node *node = NULL;
	size_t index = y->n_anchors;

	if (event->type == YAML_ALIAS_EVENT)
		return read_alias(y, event);
	if (y->left == 0)
		return fail_at(y, &event->start_mark, "the workflow has too many values");
	y->left--;
	if (event->type == YAML_SCALAR_EVENT)
		anchor = event->data.scalar.anchor;
	else if (event->type == YAML_MAPPING_START_EVENT)
		anchor = event->data.mapping_start.anchor;
	else if (event->type == YAML_SEQUENCE_START_EVENT)
		anchor = event->data.sequence_start.anchor;
	else
		return fail_at(y, &event->start_mark, "a value is missing");
	if (anchor && y->n_anchors == LIMIT_WORKFLOW_ANCHORS)
		return fail_at(y, &event->start_mark, "the workflow has too many anchors");
	if (anchor) {
		const char *name = workflow_arena_printf(
			y->from->arena, "%s", (const char *)anchor);

		if (!y->anchors)
			y->anchors = workflow_arena_array(
				y->from->arena, LIMIT_WORKFLOW_ANCHORS, sizeof(*y->anchors));
		if (!name || !y->anchors)
			return NULL;
		y->anchors[y->n_anchors++] = (struct anchor){.name = name};
	}
	node = event->type == YAML_SCALAR_EVENT ? read_scalar(y, event) : read_container(y, event);
	if (node && anchor)
		y->anchors[index].node = node;
	return node;
}

/* Reads the only document of the stream. */
static struct node *read_stream(struct yaml *y)
{
	struct node *root = NULL;

	for (;;) {
		__attribute__((cleanup(yaml_event_delete))) yaml_event_t event = {0};

		if (!next_event(y, &event))
			return NULL;
		switch (event.type) {
		case YAML_STREAM_START_EVENT:
		case YAML_DOCUMENT_END_EVENT:
			break;
		case YAML_DOCUMENT_START_EVENT:
			if (root)
				return fail_at(y, &event.start_mark,
					"a second document begins here; a workflow is one "
					"document");
			break;
		case YAML_STREAM_END_EVENT:
			if (!root)
				diagnostics_add(y->from->found, DIAGNOSTIC_ERROR, y->from->file,
					NULL, "the workflow is empty");
			return root;
		default:
			root = read_node(y, &event);
			if (!root)
				return NULL;
		}
	}
}

/* Reads the document. Sets `stray` to the offset of a comma that must be removed before the next
 * try; 0 if there is none. */
static struct node *read_once(
	const struct document_source *from, const char *data, size_t len, size_t *stray)
{
	struct yaml y = {
		.from = from,
		.data = data,
		.len = len,
		.left = LIMIT_WORKFLOW_NODES,
	};
	struct node *root;

	if (!yaml_parser_initialize(&y.parser)) {
		from->arena->no_memory = true;
		return NULL;
	}
	yaml_parser_set_encoding(&y.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&y.parser, (const unsigned char *)data, len);
	root = read_stream(&y);
	yaml_parser_delete(&y.parser);
	*stray = y.stray;
	return root;
}

struct node *yaml_read(const struct document_source *from, const char *data, size_t len)
{
	size_t stray = 0;
	struct node *root = read_once(from, data, len, &stray);
	char *text = NULL;

	/* Each try reads everything before the comma again, so the number of tries is limited. */
	for (unsigned tries = 0; stray && tries < LIMIT_WORKFLOW_STRAY_COMMAS; tries++) {
		if (!text)
			text = workflow_arena_copy(from->arena, data, len);
		if (!text)
			return NULL;
		text[stray] = ' ';
		root = read_once(from, text, len, &stray);
	}
	if (stray)
		diagnostics_add(from->found, DIAGNOSTIC_ERROR, from->file, NULL,
			"more than %d lines end with a `,` that YAML does not allow",
			LIMIT_WORKFLOW_STRAY_COMMAS);
	return root;
}
