#include "s3/message/table.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"
#include "s3/message/xml.h"

#define AT(base, offset, type) (*(type *)(void *)((base) + (offset)))

struct parse {
	const struct table *table;
	char *out; /* the struct */
	struct arena *arena;
	size_t root_len; /* length of "/Root" */
	size_t item_cap, prefix_cap;
	const char *item_path; /* the repeated element that is open */
	bool url_encoded;
};

static char *item_at(const struct table *t, char *out, size_t i)
{
	return AT(out, t->array, char *) + i * t->item_size;
}

static size_t count_items(const struct table *t, char *out)
{
	return t->item_size ? AT(out, t->count, size_t) : 0;
}

/* Makes room for one more element in an array of the arena; the old array stays in the arena. */
static void *grown_array(struct parse *p, void *array, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	size_t more = *cap ? *cap * 2 : 16;
	void *bigger = arena_alloc(p->arena, more * size);

	if (!bigger)
		return NULL;
	if (n > 0)
		memcpy(bigger, array, n * size);
	*cap = more;
	return bigger;
}

static int add_item(struct parse *p, struct penstock_error *err)
{
	const struct table *t = p->table;
	size_t *n = &AT(p->out, t->count, size_t);
	void *array;

	if (*n >= t->max_items)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %zu entries", t->what,
			t->max_items);
	array = grown_array(p, AT(p->out, t->array, void *), *n, &p->item_cap, t->item_size);
	if (!array)
		return error_memory(err);
	AT(p->out, t->array, void *) = array;
	memset(item_at(t, p->out, (*n)++), 0, t->item_size);
	return 0;
}

/* Returns the field with the path of an element, or the first field whose path is inside the
 * element. */
static const struct field *find_field(const struct field *f, const char *path)
{
	size_t n = strlen(path);

	for (; f && f->path; f++)
		if (strncmp(f->path, path, n) == 0 && (!f->path[n] || f->path[n] == '/'))
			return f;
	return NULL;
}

/* Refuses an element that is neither an item nor a part of the path of an item or field. */
static int check_known(const struct parse *p, const char *path, struct penstock_error *err)
{
	const struct table *t = p->table;
	const struct field *f;
	size_t n;

	if (!t->strict)
		return 0;
	if (p->item_path)
		path += strlen(p->item_path);
	n = strlen(path);
	for (size_t i = 0; !p->item_path && i < ARRAY_SIZE(t->items) && t->items[i]; i++)
		if (strncmp(t->items[i], path, n) == 0 && t->items[i][n] == '/')
			return 0;
	f = find_field(p->item_path ? t->item_fields : t->fields, path);
	if (!f)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has the unknown element <%.60s>",
			t->what, strrchr(path, '/') + 1);
	if (f->type == REFUSED && !f->path[n])
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"This store does not implement the element %.60s", strrchr(path, '/') + 1);
	return 0;
}

static int on_start(void *cookie, const char *path, struct penstock_error *err)
{
	struct parse *p = cookie;
	const struct table *t = p->table;

	if (p->root_len == 0) {
		size_t kind = 0;

		p->root_len = strlen(path);
		while (kind < ARRAY_SIZE(t->roots) && t->roots[kind] &&
			strcmp(path + 1, t->roots[kind]) != 0)
			kind++;
		if (kind == ARRAY_SIZE(t->roots) || !t->roots[kind])
			return error_set(err, PENSTOCK_E_PROTOCOL,
				"%s has the unexpected root element <%.60s>", t->what, path + 1);
		if (t->kind)
			AT(p->out, t->kind, enum s3_reply_kind) = (enum s3_reply_kind)kind;
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(t->items) && t->items[i]; i++) {
		if (strcmp(path + p->root_len, t->items[i]) == 0) {
			p->item_path = t->items[i];
			return add_item(p, err);
		}
	}
	return check_known(p, path + p->root_len, err);
}

static int bad_value(
	const struct table *t, const char *path, const char *text, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has the invalid value '%.40s' in %s",
		t->what, text, path);
}

/* Copies a number or boolean without the white space around it. */
static void trimmed(const char *text, size_t len, char *out, size_t size)
{
	while (len > 0 && ascii_space(*text)) {
		text++;
		len--;
	}
	while (len > 0 && ascii_space(text[len - 1]))
		len--;
	if (len >= size)
		len = size - 1;
	memcpy(out, text, len);
	out[len] = '\0';
}

static int set_text(struct parse *p, const char **field, const char *text, size_t len,
	struct penstock_error *err)
{
	*field = arena_copy(p->arena, text, len);
	return *field ? 0 : error_memory(err);
}

/* The array is full at 16, 32, 64, … texts, and then doubles. */
static int add_text(struct parse *p, struct s3_texts *texts, const char *text, size_t len,
	struct penstock_error *err)
{
	if (!texts->n || (texts->n >= 16 && (texts->n & (texts->n - 1)) == 0)) {
		size_t cap = texts->n;
		const char **array = grown_array(
			p, texts->items, texts->n, &cap, sizeof(*texts->items));

		if (!array)
			return error_memory(err);
		texts->items = array;
	}
	return set_text(p, &texts->items[texts->n++], text, len, err);
}

static int add_prefix(struct parse *p, const char *text, size_t len, struct penstock_error *err)
{
	size_t *n = &AT(p->out, p->table->n_prefixes, size_t);
	const char **array = AT(p->out, p->table->prefixes, const char **);

	if (*n >= LIMIT_S3_LIST_KEYS)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %d common prefixes",
			p->table->what, LIMIT_S3_LIST_KEYS);
	array = grown_array(p, array, *n, &p->prefix_cap, sizeof(*array));
	if (!array)
		return error_memory(err);
	AT(p->out, p->table->prefixes, const char **) = array;
	return set_text(p, &array[(*n)++], text, len, err);
}

static int set_field(struct parse *p, const struct field *f, char *base, const char *text,
	size_t len, struct penstock_error *err)
{
	bool part = f->type == PART_NUMBER;
	char small[48];
	uint64_t number;
	int64_t date;

	trimmed(text, len, small, sizeof(small));
	switch (f->type) {
	case TEXT:
	case URL_TEXT:
		return set_text(p, &AT(base, f->offset, const char *), text, len, err);
	case TEXTS:
		return add_text(p, &AT(base, f->offset, struct s3_texts), text, len, err);
	case NUMBER:
		if (!str_to_u64(small, 0, UINT64_MAX, &AT(base, f->offset, uint64_t)))
			return bad_value(p->table, f->path, small, err);
		return 0;
	case SMALL:
	case PART_NUMBER:
		if (!str_to_u64(small, part, part ? LIMIT_S3_PARTS : UINT32_MAX, &number))
			return bad_value(p->table, f->path, small, err);
		AT(base, f->offset, unsigned) = (unsigned)number;
		return 0;
	case BOOLEAN:
		AT(base, f->offset, bool) = ascii_equal(small, strlen(small), "true");
		if (!AT(base, f->offset, bool) && !ascii_equal(small, strlen(small), "false"))
			return bad_value(p->table, f->path, small, err);
		return 0;
	case DATE:
		if (date_parse_iso(small, &date))
			AT(base, f->offset, int64_t) = date;
		return 0;
	case PREFIX:
		return add_prefix(p, text, len, err);
	case URL_ENCODING:
		p->url_encoded = ascii_equal(small, strlen(small), "url");
		AT(base, f->offset, bool) = p->url_encoded;
		return 0;
	case VERSION_2:
		AT(base, f->offset, int) = 2;
		return 0;
	case UNUSED:
	case REFUSED:
		return 0;
	}
	return 0;
}

static bool is_set(const struct field *f, char *base)
{
	return f->type == PART_NUMBER ? AT(base, f->offset, unsigned) != 0
				      : AT(base, f->offset, const char *) != NULL;
}

static int set_fields(struct parse *p, const struct field *f, char *base, const char *path,
	const char *text, size_t len, struct penstock_error *err)
{
	for (; f && f->path; f++) {
		if (strcmp(path, f->path) != 0)
			continue;
		if (p->table->strict && (f->type == TEXT || f->type == PART_NUMBER) &&
			is_set(f, base))
			return error_set(err, PENSTOCK_E_PROTOCOL, "%s repeats the element <%s>",
				p->table->what, strrchr(f->path, '/') + 1);
		int rc = set_field(p, f, base, text, len, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int on_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err)
{
	struct parse *p = cookie;
	const char *below = path + p->root_len;

	if (p->item_path) {
		size_t n = strlen(p->item_path);

		if (strcmp(below, p->item_path) == 0) {
			p->item_path = NULL;
			return 0;
		}
		if (str_starts(below, p->item_path))
			return set_fields(p, p->table->item_fields,
				item_at(p->table, p->out, count_items(p->table, p->out) - 1),
				below + n, text, len, err);
	}
	return set_fields(p, p->table->fields, p->out, below, text, len, err);
}

/* Decodes in place: decoded text is never longer. */
static int url_decode(const struct table *t, const char *text, struct penstock_error *err)
{
	char *in = (char *)(uintptr_t)text; /* in the arena, hence writable */
	char *out = in = in ? in + strcspn(in, "%+") : NULL;

	while (in && *in) {
		/* ascii_decode_byte() stops at the final NUL, because a NUL is not a digit. */
		size_t used = ascii_decode_byte(in, 3, true, out);

		if (!used || *out++ == '\0')
			return bad_value(t, "a URL-encoded name", text, err);
		in += used;
	}
	if (out)
		*out = '\0';
	return 0;
}

static int url_decode_fields(
	const struct table *t, const struct field *f, char *base, struct penstock_error *err)
{
	int rc = 0;

	for (; f && f->path && rc == 0; f++) {
		if (f->type == URL_TEXT)
			rc = url_decode(t, AT(base, f->offset, const char *), err);
	}
	return rc;
}

static int url_decode_all(const struct table *t, char *out, struct penstock_error *err)
{
	int rc = url_decode_fields(t, t->fields, out, err);

	for (size_t i = 0; i < count_items(t, out) && rc == 0; i++)
		rc = url_decode_fields(t, t->item_fields, item_at(t, out, i), err);
	for (size_t i = 0; t->prefixes && i < AT(out, t->n_prefixes, size_t) && rc == 0; i++)
		rc = url_decode(t, AT(out, t->prefixes, const char **)[i], err);
	return rc;
}

static int check_item(const struct table *t, char *item, struct penstock_error *err)
{
	for (const struct field *f = t->item_fields; f->path; f++) {
		if (f->needed && !is_set(f, item))
			return error_set(err, PENSTOCK_E_PROTOCOL, "%s has an entry without <%s>",
				t->what, f->path + 1);
	}
	return 0;
}

int table_finish(const struct table *t, void *out, bool url_encoded, struct penstock_error *err)
{
	size_t n = count_items(t, out);
	int rc = url_encoded ? url_decode_all(t, out, err) : 0;

	if (rc == 0 && t->not_empty && n == 0)
		rc = error_set(err, PENSTOCK_E_PROTOCOL, "%s has no entries", t->what);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = check_item(t, item_at(t, out, i), err);
	if (rc < 0) {
		arena_release(out);
		memset(out, 0, t->size);
	}
	return rc;
}

int table_parse(
	const struct table *t, void *out, const char *xml, size_t len, struct penstock_error *err)
{
	struct parse p = {.table = t, .out = out, .arena = out};
	const struct xml_events events = {.start = on_start, .end = on_end, .cookie = &p};
	int rc = xml_parse(xml, len, &events, t->what, err);

	if (rc == 0)
		return table_finish(t, out, p.url_encoded, err);
	arena_release(p.arena);
	memset(out, 0, t->size);
	return rc;
}
