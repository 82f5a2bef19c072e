/* Reading values by the rows of a schema. */
#include "workflow/native/reader.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/native/native.h"

static void *member_of(const struct schema_key *key, void *out)
{
	return key->member && out ? (char *)out + key->member - 1 : NULL;
}

static size_t *length_of(const struct schema_key *key, void *out)
{
	return (size_t *)((char *)out + key->length - 1);
}

bool reader_word(struct reader *rd, const struct workflow_text *text, const char *field,
	const struct schema_key *key, size_t *index)
{
	const char *const *words = key->words;
	_cleanup_(buf_release) struct buf list = BUF_INIT(LIMIT_STRING);

	for (size_t i = 0; words[i]; i++) {
		if (strcmp(text->value, words[i]) == 0) {
			*index = i;
			return true;
		}
		/* "none, pmix_v4 or pmi2" */
		buf_printf(&list, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
	}
	if (buf_failed(&list))
		rd->arena->no_memory = true;
	reader_error(rd, &text->at, "`%s` must be %s, not %s%s%s", field, buf_str(&list),
		reader_quoted(rd, text), key->refused ? "; " : "",
		key->refused ? key->refused : "");
	return false;
}

static void read_word(
	struct reader *rd, const struct node *map, const struct schema_key *key, void *member)
{
	struct workflow_text text = {0};
	size_t index = (size_t)key->preset;

	if (reader_text(rd, map, key->name, &text) && !reader_is_open(rd, &text) &&
		!reader_word(rd, &text, reader_field(rd, key->name), key, &index))
		return;
	if (key->size == sizeof(text))
		*(struct workflow_text *)member = text;
	else if (key->size == sizeof(bool))
		*(bool *)member = index > 0;
	else if (member)
		*(unsigned *)member = (unsigned)index;
}

/* Reads a list, which must not be empty: an empty list would allow nothing, and a missing list
 * allows everything. Returns false if the list is missing. */
static bool read_members(struct reader *rd, const struct node *map, const struct schema_key *key,
	bool numbers, struct workflow_texts *out)
{
	const struct node *node = node_get(map, key->name);

	if (!node)
		return false;
	reader_texts(rd, map, key->name, numbers, out);
	if (node->kind == NODE_LIST && node->n == 0)
		reader_error_of(rd, &node->at, key->name,
			"is empty; leave it out, or list at least one member");
	return true;
}

static void read_words(
	struct reader *rd, const struct node *map, const struct schema_key *key, unsigned *member)
{
	struct workflow_texts texts = {0};

	*member = (unsigned)key->preset;
	if (!read_members(rd, map, key, false, &texts))
		return;
	*member = 0;
	for (size_t i = 0; i < texts.n; i++) {
		size_t saved = reader_enter(rd, key->name, 0), index;
		size_t at_list = reader_enter(rd, NULL, i);

		if (reader_word(rd, &texts.items[i], buf_str(&rd->path), key, &index))
			*member |= 1U << index;
		reader_leave(rd, at_list);
		reader_leave(rd, saved);
	}
}

static void read_wholes(
	struct reader *rd, const struct node *map, const struct schema_key *key, void *out)
{
	struct workflow_texts texts = {0};
	int **items = member_of(key, out);
	size_t *n = length_of(key, out);
	int64_t number;

	if (!read_members(rd, map, key, true, &texts))
		return;
	*items = workflow_arena_array(rd->arena, texts.n + 1, sizeof(**items));
	for (size_t i = 0; *items && i < texts.n; i++) {
		if (str_to_i64(texts.items[i].value, key->min, key->max, &number))
			(*items)[(*n)++] = (int)number;
		else
			reader_error(rd, &texts.items[i].at,
				"members of `%s` must be whole numbers from %lld to %lld, not %s",
				reader_field(rd, key->name), (long long)key->min,
				(long long)key->max, reader_quoted(rd, &texts.items[i]));
	}
}

void *reader_each(struct reader *rd, const struct node *map, const char *key, size_t size,
	size_t *n, bool (*read)(struct reader *rd, struct node *item, void *out))
{
	struct node *list = reader_list(rd, map, key);
	char *items = NULL;
	size_t saved;

	*n = 0;
	if (list)
		items = workflow_arena_array(rd->arena, list->n + 1, size);
	if (!items)
		return NULL;
	saved = reader_enter(rd, key, 0);
	for (size_t i = 0; i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		rd->index = i;
		*n += read(rd, list->entries[i].value, items + *n * size);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	return items;
}

static void read_keys(struct reader *rd, const struct node *map, const struct schema *schema,
	void *out, bool given);

static void read_list(
	struct reader *rd, const struct node *map, const struct schema_key *key, void *out)
{
	struct node *list = reader_list(rd, map, key->name);
	size_t saved = reader_enter(rd, key->name, 0);
	char *items = list ? workflow_arena_array(rd->arena, list->n + 1, key->below->size) : NULL;

	/* `check` of a member may examine the members before it. */
	if (items) {
		*(void **)member_of(key, out) = items;
		*length_of(key, out) = list->n;
	}
	for (size_t i = 0; items && i < list->n; i++) {
		size_t at_list = reader_enter(rd, NULL, i);

		reader_read(rd, list->entries[i].value, key->below, items + i * key->below->size);
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
}

static void read_map(
	struct reader *rd, const struct node *map, const struct schema_key *key, void *member)
{
	const struct workflow_place *at = (const void *)((char *)member + key->below->at - 1);
	const struct node nothing = {.kind = NODE_MAP, .at = map->at};
	struct node *node = node_get(map, key->name), *scalar = node;
	size_t saved;

	/* A scalar that is short for the map becomes {FIRST_KEY: SCALAR}. */
	if (node && node->kind == NODE_SCALAR && (key->flags & KEY_SHORT)) {
		node = node_new(rd->arena, NODE_MAP, scalar->at);
		if (!node ||
			node_add(rd->arena, node, key->below->keys[0].name, scalar->at, scalar) < 0)
			return;
		node_find(map, key->name)->value = node;
	}
	node = reader_map(rd, map, key->name);
	if (!node) {
		/* `s3` and `gs` are read into the same member: keep the value that was read. */
		if (!key->below->at || (!at->line && !at->option))
			read_keys(rd, &nothing, key->below, member, false);
		return;
	}
	saved = reader_enter(rd, key->name, 0);
	reader_read(rd, node, key->below, member);
	reader_leave(rd, saved);
}

void reader_key(struct reader *rd, const struct node *map, const struct schema_key *key, void *out)
{
	void *member = member_of(key, out);
	struct node *node = node_get(map, key->name);

	if (node && (key->flags & KEY_NO_SECRET) &&
		!reader_refuse_secret(rd, node, reader_field(rd, key->name)))
		return;
	if (node && (key->flags & KEY_NUMBERS) && node->kind == NODE_SCALAR)
		node->literal = false;
	if (key->kinds & KEY_WORD)
		read_word(rd, map, key, member);
	else if (key->kinds & KEY_FLAG) {
		struct workflow_flag ignored = {0}, *flag = member ? member : &ignored;

		if (key->preset)
			flag->value = true;
		if (reader_flag(rd, map, key->name, flag) && flag->value && key->note)
			reader_note_of(rd, &flag->at, key->name, "%s", key->note);
	} else if (!member)
		return;
	else if (key->kinds & KEY_MAP)
		read_map(rd, map, key, member);
	else if (key->kinds & KEY_LIST)
		read_list(rd, map, key, out);
	else if (key->kinds & KEY_TEXTS)
		reader_texts(rd, map, key->name, key->flags & KEY_NUMBERS, member);
	else if (key->kinds & KEY_VARIABLES)
		read_variables(rd, map, key->name, member);
	else if (key->kinds & KEY_WORDS)
		read_words(rd, map, key, member);
	else if (key->kinds & KEY_WHOLES)
		read_wholes(rd, map, key, out);
	else if (key->kinds & KEY_CREDENTIAL)
		reader_credential(rd, map, key->name, member);
	else if (key->kinds & (KEY_WHOLE | KEY_DURATION)) {
		struct workflow_number *number = member;

		if (!number->given && key->preset)
			number->value = key->preset;
		reader_number(rd, map, key, number);
	} else {
		struct workflow_text *text = member;

		if (reader_text(rd, map, key->name, text) || !key->preset_text)
			return;
		text->value = key->preset_text;
		text->shown = NULL;
	}
}

static void read_keys(struct reader *rd, const struct node *map, const struct schema *schema,
	void *out, bool given)
{
	if (schema->at)
		*(struct workflow_place *)((char *)out + schema->at - 1) = map->at;
	if (schema->given && given)
		*((bool *)((char *)out + schema->given - 1)) = true;
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		if (given && (key->flags & KEY_REQUIRED) && !node_get(map, key->name))
			reader_missing(rd, map, schema, key->name);
		if (!(key->flags & KEY_OWN))
			reader_key(rd, map, key, out);
	}
}

bool reader_read(struct reader *rd, const struct node *map, const struct schema *schema, void *out)
{
	if (schema->at)
		*(struct workflow_place *)((char *)out + schema->at - 1) = map->at;
	if (!reader_check_map(rd, map, schema))
		return false;
	read_keys(rd, map, schema, out, true);
	if (schema->check)
		schema->check(rd, map, out);
	return true;
}
