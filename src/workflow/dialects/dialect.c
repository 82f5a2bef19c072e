/* Common parts of the dialects: checking a document by its tables, and reading values. */
#include "workflow/dialects/dialect.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/canonical.h"

/* ---- tables ---- */

/* Returns true if only one number is supported. */
static bool takes_one(const struct schema_key *field)
{
	return field->min && field->min == field->max;
}

/* Returns "text, a whole number from 1 to 4 or a list of texts" for a message. */
static const char *kinds_text(struct reader *rd, const struct schema_key *field)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);
	const char *names[8];
	size_t n = 0;

	if (field->kinds & KEY_WHOLE)
		names[n++] = field->min || field->max
				     ? takes_one(field)
					       ? workflow_arena_printf(
							 rd->arena, "%lld", (long long)field->min)
					       : workflow_arena_printf(rd->arena,
							 "a whole number from %lld to %lld",
							 (long long)field->min,
							 (long long)field->max)
				     : "a whole number";
	if (field->kinds & KEY_FLAG)
		names[n++] = "true or false";
	if (field->kinds & (KEY_TEXT | KEY_EMPTY))
		names[n++] = "text";
	if (field->kinds & (KEY_MAP | KEY_FREE))
		names[n++] = "a map";
	if (field->kinds & KEY_TEXTS)
		names[n++] = "a list of texts";
	if (field->kinds & KEY_LIST)
		names[n++] = "a list of maps";
	for (size_t i = 0; i < n; i++)
		buf_printf(&out, "%s%s",
			i == 0	     ? ""
			: i + 1 == n ? " or "
				     : ", ",
			names[i] ? names[i] : "");
	return workflow_arena_copy(rd->arena, buf_str(&out), out.len);
}

static bool scalar_fits(const struct node *node, const struct schema_key *field)
{
	int64_t value;

	if (field->kinds & KEY_EMPTY)
		return true;
	if ((field->kinds & KEY_TEXT) && node->text[strspn(node->text, " \t\r\n")])
		return true;
	if ((field->kinds & KEY_FLAG) && flag_of_text(node->text, strlen(node->text)) >= 0)
		return true;
	return (field->kinds & KEY_WHOLE) && node_whole(node, &value) &&
	       ((!field->min && !field->max) || (value >= field->min && value <= field->max));
}

void dialect_remove(struct reader *rd, struct node *node, size_t i)
{
	if (node->entries[i].key)
		node_forget(rd->arena, node, node->entries[i].key, NULL);
	node_remove(node, i);
}

bool dialect_was_invalid(const struct node *map, const char *key)
{
	for (const struct node_removed *r = map->removed; r; r = r->next) {
		if (strcmp(r->key, key) == 0)
			return true;
	}
	return false;
}

bool dialect_is_missing(const struct node *map, const char *key)
{
	return !node_get(map, key) && !dialect_was_invalid(map, key);
}

static bool has_required(const struct node *map, const struct schema *schema)
{
	for (size_t i = 0; i < schema->n; i++) {
		if ((schema->keys[i].flags & KEY_REQUIRED) && !node_get(map, schema->keys[i].name))
			return false;
	}
	return true;
}

/* Checks the members of a list: texts, or maps of `below`. */
static bool check_list(struct reader *rd, struct node *list, const struct schema_key *field)
{
	bool good = true;

	for (size_t i = 0, index = 0; i < list->n; index++) {
		struct node *item = list->entries[i].value;
		size_t saved = reader_enter(rd, NULL, index);
		bool usable = true;

		if (item->kind == NODE_MAP && (field->kinds & KEY_LIST)) {
			good = dialect_check(rd, item, field->below) && good;
			usable = has_required(item, field->below);
		} else if (item->kind != NODE_SCALAR || !(field->kinds & KEY_TEXTS) ||
			   node_is_null(item)) {
			reader_error(rd, &item->at, "`%s` must be %s, not %s", buf_str(&rd->path),
				field->kinds & KEY_LIST
					? field->kinds & KEY_TEXTS ? "text or a map" : "a map"
					: "text",
				node_kind_name(item));
			good = usable = false;
		}
		reader_leave(rd, saved);
		if (usable)
			i++;
		else
			dialect_remove(rd, list, i);
	}
	return good;
}

static bool check_value(struct reader *rd, struct node *node, const struct schema_key *field)
{
	bool fits = field->kinds & KEY_ANY;

	if (node->kind == NODE_SCALAR)
		fits = fits || scalar_fits(node, field);
	else if (node->kind == NODE_MAP && (field->kinds & KEY_MAP))
		return dialect_check(rd, node, field->below);
	else if (node->kind == NODE_MAP)
		fits = fits || field->kinds & KEY_FREE;
	else if (field->kinds & (KEY_TEXTS | KEY_LIST))
		return check_list(rd, node, field);
	if (fits)
		return true;
	reader_error(rd, &node->at, "`%s` must be %s, not %s%s%s", buf_str(&rd->path),
		kinds_text(rd, field),
		node->kind == NODE_SCALAR && *node->text && !node->field ? quote(node->text)
		: node->kind == NODE_SCALAR				 ? "empty"
									 : node_kind_name(node),
		takes_one(field) && field->refused ? ": " : "",
		takes_one(field) && field->refused ? field->refused : "");
	return false;
}

static bool check_entry(struct reader *rd, struct node *map, const struct node_entry *entry,
	const struct schema *schema)
{
	const struct schema_key *field = schema_find(schema, entry->key);
	bool good;
	size_t saved;

	if (!field) {
		const char *nearest = reader_unknown(rd, entry, schema);

		if (nearest) /* the user probably meant this key: do not report it as missing */
			node_forget(rd->arena, map, nearest, NULL);
		return false;
	}
	if (node_is_null(entry->value))
		return true;
	if (schema_refuses(field)) {
		reader_error(rd, &entry->key_at, "`%s` is not supported: %s",
			reader_field(rd, entry->key), field->refused);
		return false;
	}
	saved = reader_enter(rd, entry->key, 0);
	good = check_value(rd, entry->value, field);
	reader_leave(rd, saved);
	if (good && field->note)
		reader_note(
			rd, &entry->key_at, "`%s` %s", reader_field(rd, entry->key), field->note);
	return good;
}

bool dialect_check(struct reader *rd, struct node *node, const struct schema *schema)
{
	bool good = true;

	if (node->kind != NODE_MAP) {
		reader_error(rd, &node->at, "%s must be a map, not %s", schema->what,
			node_kind_name(node));
		return false;
	}
	for (size_t i = 0; i < node->n;) {
		const struct node_entry *entry = &node->entries[i];
		const struct schema_key *field = schema_find(schema, entry->key);
		const struct node *value = entry->value;
		unsigned kinds;

		if (check_entry(rd, node, entry, schema)) {
			i++;
			continue;
		}
		good = false;
		/* The invalid parts of the value were removed; the other parts may be usable. */
		kinds = field ? field->kinds : 0;
		if ((value->kind == NODE_MAP && (kinds & KEY_MAP) &&
			    has_required(value, field->below)) ||
			(value->kind == NODE_LIST && (kinds & (KEY_TEXTS | KEY_LIST))))
			i++;
		else
			dialect_remove(rd, node, i);
	}
	for (size_t i = 0; i < schema->n; i++) {
		const struct schema_key *field = &schema->keys[i];

		if (!(field->flags & KEY_REQUIRED) || !dialect_is_missing(node, field->name))
			continue;
		reader_error(rd, &node->at, "`%s` is missing", reader_field(rd, field->name));
		good = false;
	}
	return good;
}

/* ---- values ---- */

const char *dialect_text(const struct node *map, const char *key)
{
	const struct node *node = node_get(map, key);

	return node && node->kind == NODE_SCALAR ? node->text : NULL;
}

int64_t dialect_whole(const struct node *map, const char *key, int64_t fallback)
{
	int64_t value;

	return node_whole(node_get(map, key), &value) ? value : fallback;
}

bool dialect_flag(const struct node *map, const char *key, bool fallback)
{
	const char *text = dialect_text(map, key);
	int flag = text ? flag_of_text(text, strlen(text)) : -1;

	return flag < 0 ? fallback : flag > 0;
}

const char *dialect_home_path(struct reader *rd, const char *path)
{
	const char *home = getenv("HOME");

	if (*path != '~' || (path[1] && path[1] != '/') || !home)
		return path;
	return workflow_arena_printf(rd->arena, "%s%s", home, path + 1);
}

int64_t dialect_set(const struct reader *rd, const char *field, int64_t value)
{
	const struct strlist *sets = rd->options->sets;
	const char *given = sets ? strlist_get(sets, field) : NULL;
	uint64_t number;

	/* An invalid number is reported when --set is applied. */
	return given && str_to_u64(given, 0, INT32_MAX, &number) ? (int64_t)number : value;
}

int64_t dialect_cpus(const struct reader *rd)
{
	return rd->site.cpus ? rd->site.cpus : 1;
}

bool dialect_other_device(struct reader *rd, const struct node *at, const char *kind)
{
	static const char *const others[] = {"tpu", "v2-", "v3-", "v4-", "v5", "v6e", "inferentia",
		"trainium", "gaudi", "tt-", "n150", "n300", "tenstorrent", "google", "intel"};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (strncasecmp(kind, others[i], strlen(others[i])) != 0)
			continue;
		reader_note(rd, &at->at,
			"no GPU is claimed for %s: every step sees the devices of this machine "
			"that are not GPUs",
			quote(kind));
		return true;
	}
	return false;
}

const char *dialect_quoted(struct reader *rd, const char *text)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	if (*text && !text[strspn(text, LETTERS_AND_DIGITS "_./:=@%+,-")])
		return text;
	buf_add_char(&out, '\'');
	for (; *text; text++) {
		if (*text == '\'')
			buf_add_str(&out, "'\\''");
		else
			buf_add_char(&out, *text);
	}
	buf_add_char(&out, '\'');
	return workflow_arena_take(rd->arena, &out);
}

const char *dialect_clone(struct reader *rd, const char *url, const char *ref)
{
	url = dialect_quoted(rd, url);
	ref = dialect_quoted(rd, ref ? ref : "HEAD");
	if (!url || !ref)
		return NULL;
	/* The shell fetches once in an attempt, first only `ref`. If the commit of `ref` is checked
	 * out already, the shell checks out nothing, and changes made by steps stay. */
	return workflow_arena_printf(rd->arena,
		"( flock 9 2>/dev/null\n"
		"[ \"$(cat \"$STORAGE_PATH/.clone\" 2>/dev/null)\" != \"$PENSTOCK_ATTEMPT\" ] || exit 0\n"
		"[ -d .git ] || git init -q || exit\n"
		"old=$(git rev-parse -q --verify HEAD)\n"
		"{ git fetch -q --depth 1 -- %s %s && new=$(git rev-parse FETCH_HEAD) &&\n"
		"\t{ [ \"$old\" = \"$new\" ] || git checkout -q -f FETCH_HEAD; }; } ||\n"
		"\t{ git fetch -q --tags -- %s '+refs/heads/*:refs/remotes/origin/*' && "
		"git checkout -q -f %s; } || exit\n"
		"if [ -n \"$old\" ] && [ \"$old\" != \"$(git rev-parse HEAD)\" ]; then echo \"the code has "
		"changed:\" $(git diff --name-only \"$old\" HEAD) >&2; fi\n"
		"echo \"$PENSTOCK_ATTEMPT\" >\"$STORAGE_PATH/.clone\"\n"
		") 9>\"$STORAGE_PATH/.clone-lock\" || exit\n",
		url, ref, url, ref);
}

bool dialect_memory(const char *text, int64_t *bytes)
{
	static const char letters[] = "KMGTP";
	char *end;
	double value = strtod(text, &end);
	double unit = 1;
	const char *letter;

	if (end == text || !(value > 0) || !isdigit((unsigned char)*text))
		return false;
	while (*end == ' ')
		end++;
	letter = *end ? strchr(letters, toupper((unsigned char)*end)) : NULL;
	if (letter && *letter) {
		bool binary = tolower((unsigned char)end[1]) == 'i';

		for (const char *l = letters; l <= letter; l++)
			unit *= binary ? 1024 : 1000;
		end += binary ? 2 : 1;
	}
	if (*end == 'b' || *end == 'B')
		end++;
	if (*end || value * unit > 1e17)
		return false;
	*bytes = (int64_t)llround(value * unit);
	return *bytes > 0;
}

/* Appends the shortest decimal form that reads back as the same number. `.inf` and the like become
 * text. */
static void json_number(struct buf *out, const struct node *node)
{
	double value = strtod(node->text, NULL);
	char text[40];

	if (!isfinite(value)) {
		json_add_text(out, node->text);
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (fabs(strtod(text, NULL) - value) <= 0)
			break;
	}
	/* Keep 1.0 a floating-point number. */
	buf_printf(out, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void json_scalar(struct buf *out, const struct node *node)
{
	enum scalar_type type = scalar_type(node);
	int64_t whole;

	/* In a list, a text with a `field` has the form "NAME=SECRET". */
	if (type == SCALAR_NULL || node->field)
		buf_add_str(out, "null");
	else if (type == SCALAR_BOOL)
		buf_add_str(out, strcasecmp(node->text, "true") == 0 ? "true" : "false");
	else if (type == SCALAR_INT && node_whole(node, &whole))
		buf_printf(out, "%lld", (long long)whole);
	else if (type == SCALAR_INT || type == SCALAR_FLOAT)
		json_number(out, node);
	else
		json_add_text(out, node->text);
}

const char *dialect_json(struct reader *rd, const struct node *node)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(LIMIT_STRING);

	json_add_tree(&out, node, NULL, true, json_scalar);
	if (out.failure == BUF_OVER_LIMIT)
		reader_error(rd, &node->at, "this value is longer than %zu bytes as JSON",
			(size_t)LIMIT_STRING);
	else if (buf_failed(&out))
		rd->arena->no_memory = true;
	return buf_failed(&out) ? "{}" : workflow_arena_copy(rd->arena, buf_str(&out), out.len);
}

const char *dialect_folder(struct reader *rd)
{
	const char *file = rd->workflow->file;
	const char *slash = strrchr(file, '/');
	char *folder;

	if (!slash)
		return strcmp(file, "<stdin>") == 0 ? NULL : ".";
	folder = workflow_arena_copy(rd->arena, file, (size_t)(slash - file));
	if (folder && str_ends(folder, ".dstack/workflows"))
		folder[strlen(folder) - strlen("/workflows")] = '\0';
	if (folder && str_ends(folder, "/.dstack"))
		folder[strlen(folder) - strlen("/.dstack")] = '\0';
	else if (folder && strcmp(folder, ".dstack") == 0)
		return ".";
	return folder && *folder ? folder : "/";
}
