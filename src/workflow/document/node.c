#include "workflow/document/document.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

struct workflow_place source_place(const struct document_source *from, size_t line, size_t column)
{
	if (from->option)
		return (struct workflow_place){.option = from->option};
	return (struct workflow_place){.line = (int)line, .column = (int)column};
}

void *source_fail(
	const struct document_source *from, struct workflow_place at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	diagnostics_vadd(from->found, DIAGNOSTIC_ERROR, from->file, &at, fmt, ap);
	va_end(ap);
	return NULL;
}

struct node *node_new(struct workflow_arena *arena, enum node_kind kind, struct workflow_place at)
{
	struct node *node = workflow_arena_new(arena, struct node);

	if (node) {
		node->kind = kind;
		node->at = at;
	}
	return node;
}

struct node *node_scalar(
	struct workflow_arena *arena, const char *text, bool quoted, struct workflow_place at)
{
	struct node *node = node_new(arena, NODE_SCALAR, at);

	if (node) {
		node->text = text;
		node->quoted = quoted;
	}
	return node;
}

int node_add(struct workflow_arena *arena, struct node *parent, const char *key,
	struct workflow_place key_at, struct node *value)
{
	if (parent->n == parent->cap) {
		size_t cap = parent->cap ? 2 * parent->cap : 4;
		struct node_entry *grown = workflow_arena_array(arena, cap, sizeof(*grown));

		if (!grown)
			return -1;
		if (parent->n)
			memcpy(grown, parent->entries, parent->n * sizeof(*grown));
		parent->entries = grown;
		parent->cap = cap;
	}
	parent->entries[parent->n++] = (struct node_entry){key, key_at, value};
	return 0;
}

void node_remove(struct node *parent, size_t index)
{
	memmove(&parent->entries[index], &parent->entries[index + 1],
		(parent->n - index - 1) * sizeof(parent->entries[0]));
	parent->n--;
}

struct node_entry *node_find(const struct node *map, const char *key)
{
	if (!map || map->kind != NODE_MAP)
		return NULL;
	for (size_t i = 0; i < map->n; i++) {
		if (strcmp(map->entries[i].key, key) == 0)
			return &map->entries[i];
	}
	return NULL;
}

struct node *node_get(const struct node *map, const char *key)
{
	const struct node_entry *entry = node_find(map, key);

	return entry && !node_is_null(entry->value) ? entry->value : NULL;
}

struct node *node_variable(struct workflow_arena *arena, const char *name, struct workflow_place at,
	struct node *value)
{
	struct node *map = node_new(arena, NODE_MAP, at);
	struct node *key = node_scalar(arena, name, true, at);

	if (!map || !key || !value || node_add(arena, map, "key", at, key) < 0 ||
		node_add(arena, map, "value", value->at, value) < 0)
		return NULL;
	return map;
}

void node_forget(
	struct workflow_arena *arena, struct node *map, const char *key, const char *option)
{
	struct node_removed *removed = workflow_arena_new(arena, struct node_removed);

	if (!removed)
		return; /* the arena has recorded the failure */
	*removed = (struct node_removed){key, option, map->removed};
	map->removed = removed;
}

static int by_key(const void *left, const void *right)
{
	const struct node_entry *const *a = left;
	const struct node_entry *const *b = right;
	int order = strcmp((*a)->key, (*b)->key);

	if (order)
		return order;
	return *a < *b ? -1 : *a > *b;
}

void node_check_duplicates(const struct node *map, const char *file, struct diagnostics *found)
{
	_cleanup_free_ const struct node_entry **sorted = NULL;

	if (map->n < 2)
		return;
	sorted = calloc(map->n, sizeof(const struct node_entry *));
	if (!sorted) {
		found->no_memory = true;
		return;
	}
	for (size_t i = 0; i < map->n; i++)
		sorted[i] = &map->entries[i];
	qsort(sorted, map->n, sizeof(const struct node_entry *), by_key);
	for (size_t i = 1; i < map->n; i++) {
		if (strcmp(sorted[i]->key, sorted[i - 1]->key) != 0)
			continue;
		diagnostics_add(found, DIAGNOSTIC_ERROR, file, &sorted[i]->key_at,
			"duplicate key %s in this map, first on line %d; remove one",
			quote(sorted[i]->key), sorted[i - 1]->key_at.line);
	}
}

struct node *node_copy(struct workflow_arena *arena, const struct node *node, size_t *left)
{
	struct node *copy;

	if (*left == 0)
		return NULL;
	--*left;
	copy = workflow_arena_new(arena, struct node);
	if (!copy)
		return NULL;
	*copy = *node;
	copy->entries = NULL;
	copy->n = copy->cap = 0;
	for (size_t i = 0; i < node->n; i++) {
		struct node *value = node_copy(arena, node->entries[i].value, left);

		if (!value || node_add(arena, copy, node->entries[i].key, node->entries[i].key_at,
				      value) < 0)
			return NULL;
	}
	return copy;
}

bool is_one_of(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(text, words[i]) == 0)
			return true;
	}
	return false;
}

static bool all_digits(const char *s, const char *digits)
{
	return *s && s[strspn(s, digits)] == '\0';
}

static bool is_integer(const char *s)
{
	if (s[0] == '0' && s[1] == 'o')
		return all_digits(s + 2, "01234567");
	if (s[0] == '0' && s[1] == 'x')
		return all_digits(s + 2, "0123456789abcdefABCDEF");
	return all_digits(s + (*s == '-' || *s == '+'), "0123456789");
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?, .inf and .nan */
static bool is_float(const char *s)
{
	static const char *const words[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
	const char digits[] = "0123456789";
	size_t whole, fraction = 0;

	if (is_one_of(s, words, ARRAY_SIZE(words)))
		return true;
	s += *s == '-' || *s == '+';
	if (is_one_of(s, words, 3))
		return true;
	whole = strspn(s, digits);
	s += whole;
	if (*s == '.') {
		fraction = strspn(s + 1, digits);
		s += 1 + fraction;
	}
	if (whole + fraction == 0)
		return false;
	if (*s == 'e' || *s == 'E') {
		s++;
		s += *s == '-' || *s == '+';
		return all_digits(s, digits);
	}
	return *s == '\0';
}

enum scalar_type scalar_type(const struct node *node)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE"};

	if (node->quoted)
		return SCALAR_TEXT;
	if (is_one_of(node->text, nulls, ARRAY_SIZE(nulls)))
		return SCALAR_NULL;
	if (is_one_of(node->text, bools, ARRAY_SIZE(bools)))
		return SCALAR_BOOL;
	if (is_integer(node->text))
		return SCALAR_INT;
	return is_float(node->text) ? SCALAR_FLOAT : SCALAR_TEXT;
}

bool node_whole(const struct node *node, int64_t *out)
{
	const char *text = node && node->kind == NODE_SCALAR ? node->text : "";
	const char *characters = "+-0123456789";
	char *end;
	int base = 10;

	if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
		base = text[1] == 'o' ? 8 : 16;
		characters = base == 8 ? "01234567" : "0123456789abcdefABCDEF";
		text += 2;
	}
	if (text[strspn(text, characters)])
		return false;
	errno = 0;
	*out = strtoll(text, &end, base);
	return end != text && !*end && !errno;
}

int flag_of_text(const char *text, size_t len)
{
	static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strlen(words[i]) == len && strncasecmp(text, words[i], len) == 0)
			return i & 1;
	}
	return -1;
}

bool node_is_null(const struct node *node)
{
	return node->kind == NODE_SCALAR && scalar_type(node) == SCALAR_NULL;
}

const char *node_kind_name(const struct node *node)
{
	static const char *const scalars[] = {
		[SCALAR_NULL] = "null",
		[SCALAR_BOOL] = "true or false",
		[SCALAR_INT] = "a number",
		[SCALAR_FLOAT] = "a number",
		[SCALAR_TEXT] = "text",
	};

	if (node->kind == NODE_MAP)
		return "a map";
	if (node->kind == NODE_LIST)
		return "a list";
	return scalars[scalar_type(node)];
}

#define QUOTED_CHARACTERS 60

/* Allocates nothing: a message must not lose the text that it quotes. */
const char *quote_into(const char *text, char out[static QUOTE_SIZE])
{
	static const char cut[] = "…`";
	size_t characters = 0, n = 0;

	out[n++] = '`';
	while (*text) {
		size_t len = 1;

		while (((unsigned char)text[len] & 0xc0) == 0x80)
			len++;
		if (++characters > QUOTED_CHARACTERS || n + len + sizeof(cut) > QUOTE_SIZE) {
			memcpy(out + n, cut, sizeof(cut));
			return out;
		}
		for (; len; len--, text++)
			out[n++] = (unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text;
	}
	out[n++] = '`';
	out[n] = '\0';
	return out;
}

void field_append(struct buf *path, const char *key, size_t index)
{
	if (!key)
		buf_printf(path, "[%zu]", index);
	else if (!*key || strpbrk(key, ".[]\""))
		buf_printf(path, "[\"%s\"]", key);
	else
		buf_printf(path, "%s%s", path->len ? "." : "", key);
}

void node_set_file(struct node *node, const char *file)
{
	node->at.file = file;
	for (size_t i = 0; i < node->n; i++) {
		node->entries[i].key_at.file = file;
		node_set_file(node->entries[i].value, file);
	}
}
