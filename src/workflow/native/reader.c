#include "workflow/native/reader.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <strings.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "workflow/document/reference.h"
#include "workflow/document/secrets.h"

void reader_report(struct reader *rd, enum diagnostic_severity severity,
	const struct workflow_place *at, const char *field, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	va_list ap;

	if (field)
		buf_printf(&text, "`%s` ", field);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (buf_failed(&text))
		rd->arena->no_memory = true;
	diagnostics_add(rd->found, severity, rd->workflow->file, at, "%s", buf_str(&text));
}

/* Returns true if the value comes from the environment alone, and not from a secret. */
static bool is_from_env(const struct workflow_text *text)
{
	const char *rest = text->shown ? text->shown : "";
	struct reference ref;
	int found;

	while ((found = reference_find(rest, &ref)) == 1 && ref.source == WORKFLOW_FROM_ENV)
		rest = ref.end;
	return found == 0 && text->shown && rest != text->shown;
}

const char *reader_quoted(struct reader *rd, const struct workflow_text *text)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_STRING);
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	const char *quoted;

	if (is_from_env(text)) {
		/* log_redact_into() masks a value that may be a secret: such a value was passed to
		 * log_redact(). */
		secret_mask_url(text->value, &masked);
		log_redact_into(&value, buf_str(&masked));
		quoted = workflow_arena_printf(rd->arena, "%s (the value of %s)",
			quote(buf_str(&value)), quote(text->shown));
	} else {
		quoted = workflow_arena_printf(rd->arena, "%s", quote(workflow_shown(text)));
	}
	return quoted ? quoted : "";
}

void reader_refuse(struct reader *rd, const struct workflow_text *text, const char *key,
	const char *expected, ...)
{
	_cleanup_(buf_release) struct buf what = BUF_INIT(LIMIT_STRING);
	va_list ap;

	va_start(ap, expected);
	buf_vprintf(&what, expected, ap);
	va_end(ap);
	if (buf_failed(&what))
		rd->arena->no_memory = true;
	reader_error_of(
		rd, &text->at, key, "must %s, not %s", buf_str(&what), reader_quoted(rd, text));
}

size_t reader_enter(struct reader *rd, const char *key, size_t index)
{
	size_t saved = rd->path.len;

	field_append(&rd->path, key, index);
	return saved;
}

void reader_leave(struct reader *rd, size_t saved)
{
	buf_truncate(&rd->path, saved);
}

const char *reader_field(struct reader *rd, const char *key)
{
	const char *field;
	size_t saved;

	if (!key)
		return buf_str(&rd->path);
	saved = reader_enter(rd, key, 0);
	field = workflow_arena_copy(rd->arena, buf_str(&rd->path), rd->path.len);
	reader_leave(rd, saved);
	return field ? field : key;
}

const char *reader_unknown(
	struct reader *rd, const struct node_entry *entry, const struct schema *schema)
{
	_cleanup_(buf_release) struct buf keys = BUF_INIT(LIMIT_STRING);
	const char *nearest = schema_nearest(schema, entry->key);

	if (nearest) {
		reader_error(rd, &entry->key_at, "unknown key %s in %s, did you mean `%s`?",
			quote(entry->key), schema->what, nearest);
		return nearest;
	}
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *key = &schema->keys[i];

		if (!(key->flags & KEY_LEGACY) && !schema_refuses(key))
			buf_printf(&keys, "%s%s", keys.len ? ", " : "", key->name);
	}
	if (buf_failed(&keys))
		rd->arena->no_memory = true;
	reader_error(rd, &entry->key_at, "unknown key %s in %s, whose keys are %s",
		quote(entry->key), schema->what, buf_str(&keys));
	return NULL;
}

bool reader_check_map(struct reader *rd, const struct node *node, const struct schema *schema)
{
	if (node->kind != NODE_MAP) {
		reader_error_of(rd, &node->at, NULL, "must be a map, not %s", node_kind_name(node));
		return false;
	}
	for (size_t i = 0; i < node->n; i++) {
		if (!schema_find(schema, node->entries[i].key))
			reader_unknown(rd, &node->entries[i], schema);
	}
	return true;
}

struct node *reader_of_kind(
	struct reader *rd, const struct node *map, const char *key, enum node_kind kind)
{
	struct node *node = node_get(map, key);

	if (!node || node->kind == kind)
		return node;
	reader_error_of(rd, &node->at, key, "must be %s, not %s",
		kind == NODE_MAP ? "a map" : "a list", node_kind_name(node));
	return NULL;
}

void reader_missing(
	struct reader *rd, const struct node *map, const struct schema *schema, const char *key)
{
	const struct schema_key *row = schema_find(schema, key);
	struct workflow_place at = map->at;
	int hint = row && row->says ? (int)strcspn(row->says, ";") : 0;

	if (rd->partial)
		return;
	for (size_t i = 0; i < map->n; i++) {
		const char *name = map->entries[i].key;
		const char *nearest = schema_find(schema, name) ? NULL
								: schema_nearest(schema, name);

		if (nearest && strcmp(nearest, key) == 0)
			return;
	}
	for (const struct node_removed *r = map->removed; r; r = r->next) {
		if (strcmp(r->key, key) == 0)
			at = (struct workflow_place){.option = r->option};
	}
	reader_error_of(
		rd, &at, key, "is missing%s%.*s", hint ? ": " : "", hint, hint ? row->says : "");
}

/* Looks up a reference in the process environment. */
static bool resolve_from_environment(
	struct reader *rd, enum workflow_source source, const char *name, struct buf *value)
{
	const char *variable, *found;

	if (source != WORKFLOW_FROM_ENV && source != WORKFLOW_FROM_SECRET)
		return false;
	variable = workflow_arena_printf(
		rd->arena, "%s%s", source == WORKFLOW_FROM_SECRET ? "PENSTOCK_SECRET_" : "", name);
	found = variable ? getenv(variable) : NULL;
	if (found)
		buf_add_str(value, found);
	return found != NULL;
}

static void report_unresolved(struct reader *rd, const struct node *node, const char *field,
	const struct reference *ref, const char *name)
{
	bool settable;

	switch (ref->source) {
	case WORKFLOW_FROM_ENV:
		/* The verb may lack --set, and --set changes no file of a module. */
		settable = rd->options->sets && !node->at.file && !node->at.option;
		reader_error(rd, &node->at,
			"`%s`: the variable `%s` is not set in the environment%s%s%s", field, name,
			settable ? "; set it, or give --set " : "", settable ? field : "",
			settable ? "=VALUE" : "");
		break;
	case WORKFLOW_FROM_SECRET:
		reader_error(rd, &node->at,
			"`%s`: there is no secret `%s`; store it with 'penstock secret set %s', or "
			"put it into the environment as PENSTOCK_SECRET_%s",
			field, name, name, name);
		break;
	case WORKFLOW_FROM_OPTION:
		reader_error(rd, &node->at,
			"`%s` was given as --set %s and is recorded nowhere; give it again", field,
			name);
		break;
	default:
		reader_error(
			rd, &node->at, "`%s`: the workflow file no longer holds `%s`", field, name);
		break;
	}
}

/* Appends the value of `ref`. If `ref` has no value and `places_only` is set, appends the reference
 * itself, except in the inputs and the output. Otherwise returns false if `ref` has no value, or if
 * the value is not text, which is reported. */
static bool resolve(struct reader *rd, const struct node *node, const char *field,
	const struct reference *ref, struct buf *out)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_STRING);
	const char *name = workflow_arena_copy(rd->arena, ref->name, ref->name_len);
	bool of_place = str_starts(field, "output.") || str_starts(field, "input.") ||
			str_starts(field, "inputs[");
	bool found;

	if (!name)
		return false;
	if (rd->options->resolve)
		found = rd->options->resolve(rd->options->cookie, ref->source, name, &value);
	else
		found = resolve_from_environment(rd, ref->source, name, &value);
	if (value.failure == BUF_NO_MEMORY) {
		rd->arena->no_memory = true;
		return false;
	}
	if (!found && rd->options->places_only && !of_place) {
		buf_add(out, ref->start, (size_t)(ref->end - ref->start));
		return true;
	}
	if (!found) {
		report_unresolved(rd, node, field, ref, name);
		return false;
	}
	if (buf_failed(&value) || memchr(buf_str(&value), 0, value.len)) {
		reader_error(rd, &node->at, "`%s`: the value of `%s` is too long or not text",
			field, name);
		return false;
	}
	if (ref->source != WORKFLOW_FROM_ENV || secret_variable(name, buf_str(&value)))
		log_redact(buf_str(&value));
	buf_add(out, buf_str(&value), value.len);
	return true;
}

/* Returns the text of `node` with its references resolved, or unchanged with `keep_references`;
 * NULL if a reference is invalid or has no value, which is reported. */
static const char *expand(struct reader *rd, const struct node *node, const char *field)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *rest = node->text;
	struct reference ref;
	bool good = true;
	int found;

	while ((found = reference_find(rest, &ref)) == 1) {
		buf_add(&out, rest, (size_t)(ref.start - rest));
		if (!rd->options->keep_references)
			good = resolve(rd, node, field, &ref, &out) && good;
		rest = ref.end;
	}
	if (found < 0) {
		reader_error(rd, &node->at,
			"`%s`: only ${{ env.NAME }} and ${{ secrets.NAME }} are allowed in a text",
			field);
		return NULL;
	}
	if (rd->options->keep_references)
		return node->text;
	buf_add_str(&out, rest);
	if (out.failure == BUF_NO_MEMORY) {
		rd->arena->no_memory = true;
		return NULL;
	}
	if (buf_failed(&out)) {
		reader_error(rd, &node->at, "`%s` is longer than %zu bytes", field,
			(size_t)LIMIT_STRING);
		return NULL;
	}
	return good ? workflow_arena_take(rd->arena, &out) : NULL;
}

bool reader_text_of(
	struct reader *rd, struct node *node, const char *field, struct workflow_text *out)
{
	out->at = node->at;
	if (node->kind != NODE_SCALAR) {
		reader_error(
			rd, &node->at, "`%s` must be text, not %s", field, node_kind_name(node));
		return false;
	}
	/* A plain YAML scalar gets the type of its field; a JSON literal has its own type. */
	if (node->literal) {
		reader_error(rd, &node->at, "`%s` must be text, not %s; put it in quotes", field,
			node_kind_name(node));
		return false;
	}
	if (strlen(node->text) > LIMIT_STRING) {
		reader_error(rd, &node->at, "`%s` is longer than %zu bytes", field,
			(size_t)LIMIT_STRING);
		return false;
	}
	node->quoted = true;
	if (!strstr(node->text, "${{")) {
		out->value = node->text;
		return true;
	}
	out->value = expand(rd, node, field);
	out->shown = node->text;
	return out->value != NULL;
}

bool reader_text(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out)
{
	struct node *node = node_get(map, key);

	out->at = map->at;
	return node && reader_text_of(rd, node, reader_field(rd, key), out);
}

bool reader_is_open(const struct reader *rd, const struct workflow_text *text)
{
	return (rd->options->keep_references || rd->options->places_only) && text->value &&
	       strstr(text->value, "${{");
}

static const struct {
	const char *name;
	int64_t ms;
} units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};

/* Returns the milliseconds of "90s", "500ms", "1.5h", "2d" or bare seconds; max + 1 if there are
 * more than `max`; -1 if the text is not a duration. */
static int64_t duration_ms(const char *text, int64_t max)
{
	char *end = NULL;
	double number = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;

	if (!end || number < 0 || text[strspn(text, "0123456789.msinhd")])
		return -1;
	if (!*end)
		end = (char *)"s";
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strcmp(end, units[i].name) == 0)
			return number * (double)units[i].ms > (double)max
				       ? max + 1
				       : (int64_t)(number * (double)units[i].ms);
	}
	return -1;
}

/* Returns a duration in the largest unit that divides it, such as "1d". */
static const char *duration_text(struct reader *rd, int64_t ms)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(units) && ms % units[i].ms)
		i++;
	return workflow_arena_printf(
		rd->arena, "%lld%s", (long long)(ms / units[i].ms), units[i].name);
}

static bool read_duration(struct reader *rd, const struct node *map, const struct schema_key *key,
	struct workflow_number *out)
{
	struct node *node = node_get(map, key->name);
	struct workflow_text text = {0};
	int64_t ms;

	if (node && node->kind == NODE_SCALAR)
		node->literal = false; /* a JSON number: seconds */
	if (!reader_text(rd, map, key->name, &text) || reader_is_open(rd, &text))
		return false;
	ms = duration_ms(text.value, key->max);
	if (ms < key->min || ms > key->max) {
		reader_refuse(rd, &text, key->name,
			"be a duration from %s to %s, such as 90s, 30m, 12h or 2d",
			duration_text(rd, key->min), duration_text(rd, key->max));
		return false;
	}
	out->value = ms;
	out->given = true;
	return true;
}

static bool read_whole(struct reader *rd, struct node *node, const struct schema_key *key,
	struct workflow_number *out)
{
	const char *field = reader_field(rd, key->name);
	int64_t value;

	if (node->kind != NODE_SCALAR) {
		reader_error(rd, &node->at, "`%s` must be a whole number, not %s%s%s", field,
			node_kind_name(node), key->refused ? "; " : "",
			key->refused ? key->refused : "");
		return false;
	}
	if (!node_whole(node, &value)) {
		reader_error(rd, &node->at, "`%s` must be a whole number from %lld to %lld, not %s",
			field, (long long)key->min, (long long)key->max, quote(node->text));
		return false;
	}
	if (value < key->min || value > key->max) {
		reader_error(rd, &node->at, "`%s` must be from %lld to %lld, not %lld", field,
			(long long)key->min, (long long)key->max, (long long)value);
		return false;
	}
	if (node->quoted)
		reader_note(rd, &node->at, "`%s` is a number: the text %s is read as %lld", field,
			quote(node->text), (long long)value);
	node->text = workflow_arena_printf(rd->arena, "%lld", (long long)value);
	node->quoted = false;
	out->value = value;
	out->given = true;
	return node->text != NULL;
}

bool reader_number(struct reader *rd, const struct node *map, const struct schema_key *key,
	struct workflow_number *out)
{
	struct node *node = node_get(map, key->name);

	out->at = node ? node->at : map->at;
	if (!node)
		return false;
	return key->kinds & KEY_DURATION ? read_duration(rd, map, key, out)
					 : read_whole(rd, node, key, out);
}

bool reader_flag(
	struct reader *rd, const struct node *map, const char *key, struct workflow_flag *out)
{
	struct node *node = node_get(map, key);
	const char *text, *word;
	size_t len;
	int flag;

	out->at = node ? node->at : map->at;
	if (!node)
		return false;
	text = node->kind == NODE_SCALAR ? node->text : "";
	len = strlen(text);
	/* "true," may be left over from a line of JSON. */
	flag = flag_of_text(text, len && text[len - 1] == ',' ? len - 1 : len);
	if (flag < 0) {
		reader_error_of(rd, &node->at, key, "must be true or false, not %s",
			node->kind == NODE_SCALAR ? quote(text) : node_kind_name(node));
		return false;
	}
	word = flag ? "true" : "false";
	if (scalar_type(node) != SCALAR_BOOL)
		reader_note_of(rd, &node->at, key, "is true or false: %s is read as %s",
			quote(text), word);
	node->text = word;
	node->quoted = false;
	out->value = flag;
	out->given = true;
	return true;
}

/* Sets the source, name and reference of the credential. `ref` is NULL if the file or an option has
 * the value itself. */
static void credential_source(struct reader *rd, const struct node *node, const char *field,
	const struct reference *ref, struct workflow_credential *out)
{
	static const char *const kinds[] = {
		[WORKFLOW_FROM_NOWHERE] = "",
		[WORKFLOW_FROM_FILE] = "file",
		[WORKFLOW_FROM_OPTION] = "option",
		[WORKFLOW_FROM_SECRET] = "secret",
		[WORKFLOW_FROM_ENV] = "env",
	};

	if (ref) {
		out->source = ref->source;
		out->name = workflow_arena_copy(rd->arena, ref->name, ref->name_len);
	} else if (node->at.option) {
		out->source = WORKFLOW_FROM_OPTION;
		out->name = field;
	} else {
		out->source = WORKFLOW_FROM_FILE;
		out->name = node->field ? node->field : field;
	}
	out->reference = workflow_arena_printf(rd->arena, "%s:%s", kinds[out->source], out->name);
}

bool reader_credential(
	struct reader *rd, const struct node *map, const char *key, struct workflow_credential *out)
{
	struct node *node = node_get(map, key);
	struct workflow_text text = {0};
	struct reference ref;
	const char *field;
	bool is_reference;

	out->at = map->at;
	if (!node)
		return false;
	out->at = node->at;
	field = reader_field(rd, key);
	if (node->kind == NODE_SCALAR && !strstr(node->text, "${{"))
		log_redact(node->text);
	if (node->kind != NODE_SCALAR) {
		reader_error(
			rd, &node->at, "`%s` must be text, not %s", field, node_kind_name(node));
		return false;
	}
	is_reference = reference_is_all(node->text, &ref);
	if (!is_reference && strstr(node->text, "${{")) {
		reader_error(rd, &node->at,
			"`%s` is either the value itself or one ${{ secrets.NAME }} or "
			"${{ env.NAME }}, not a mixture",
			field);
		return false;
	}
	if (is_reference) {
		if (!reader_text_of(rd, node, field, &text))
			return false;
		out->value = text.value;
		if (!rd->options->keep_references && strcmp(text.value, node->text) != 0)
			log_redact(text.value);
	} else {
		out->value = node->text;
		node->quoted = true;
	}
	credential_source(rd, node, field, is_reference ? &ref : NULL, out);
	if (!*out->value) {
		reader_error(rd, &node->at, "`%s` is empty", field);
		return false;
	}
	return true;
}

bool reader_texts(struct reader *rd, const struct node *map, const char *key, bool numbers,
	struct workflow_texts *out)
{
	struct node *node = node_get(map, key);
	size_t saved, n;

	out->at = map->at;
	if (!node)
		return false;
	out->at = node->at;
	if (node->kind == NODE_MAP) {
		reader_error_of(rd, &node->at, key, "must be a list, not %s", node_kind_name(node));
		return false;
	}
	n = node->kind == NODE_LIST ? node->n : 1;
	if (node->kind == NODE_SCALAR)
		reader_note_of(rd, &node->at, key, "is a list: the text is read as a list of one");
	out->items = workflow_arena_array(rd->arena, n + 1, sizeof(*out->items));
	if (!out->items)
		return false;
	saved = reader_enter(rd, key, 0);
	for (size_t i = 0; i < n; i++) {
		struct node *item = node->kind == NODE_LIST ? node->entries[i].value : node;
		size_t at_list = reader_enter(rd, NULL, i);

		if (numbers && item->kind == NODE_SCALAR && !node_is_null(item))
			item->literal = false;
		if (reader_text_of(rd, item, buf_str(&rd->path), &out->items[out->n]))
			out->n++;
		reader_leave(rd, at_list);
	}
	reader_leave(rd, saved);
	return out->n == n;
}

bool reader_refuse_secret(struct reader *rd, const struct node *node, const char *field)
{
	if (node->kind != NODE_SCALAR || !strstr(node->text, "${{") ||
		!strstr(node->text, "secrets."))
		return true;
	reader_error(rd, &node->at,
		"`%s` holds a secret, which every user of the machine could see in the list of "
		"processes; pass it in `env`",
		field);
	return false;
}

bool reader_has_dots(const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if ((len == 1 && path[0] == '.') || (len == 2 && path[0] == '.' && path[1] == '.'))
			return true;
		path += len + (path[len] == '/');
	}
	return false;
}

void reader_anchor(struct reader *rd, struct node *node, struct workflow_text *path)
{
	const char *file = rd->workflow->file;
	const char *slash = strrchr(file, '/');
	const char *absolute;

	if (*path->value == '/' || *file != '/' || reader_is_open(rd, path))
		return;
	absolute = workflow_arena_printf(
		rd->arena, "%.*s/%s", (int)(slash - file), file, path->value);
	if (!absolute)
		return;
	path->value = absolute;
	if (!path->shown)
		node->text = absolute;
}
