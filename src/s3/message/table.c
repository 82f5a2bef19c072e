#include "s3/message/table.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/ascii.h"
#include "s3/date.h"
#include "s3/message/xml.h"
#include "base/banned.h"

#define AT(base, offset, type) (*(type *)(void *)((base) + (offset)))

static char *current_item(const struct parse *p)
{
	size_t n = AT(p->out, p->table->count, size_t);

	return AT(p->out, p->table->array, char *) + (n - 1) * p->table->item_size;
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
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %zu entries", p->what,
			t->max_items);
	array = grown_array(p, AT(p->out, t->array, void *), *n, &p->item_cap, t->item_size);
	if (!array)
		return error_memory(err);
	AT(p->out, t->array, void *) = array;
	(*n)++;
	memset(current_item(p), 0, t->item_size);
	return 0;
}

int table_on_start(void *cookie, const char *path, struct penstock_error *err)
{
	struct parse *p = cookie;
	const struct table *t = p->table;

	if (p->root_len == 0) {
		p->root_len = strlen(path);
		if ((t->root && strcmp(path + 1, t->root) != 0) || p->root_len >= sizeof(p->root))
			return error_set(err, PENSTOCK_E_PROTOCOL, "%s is a <%.60s> document",
				p->what, path + 1);
		memcpy(p->root, path + 1, p->root_len);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(t->items) && t->items[i]; i++) {
		if (strcmp(path + p->root_len, t->items[i]) == 0) {
			p->item_path = t->items[i];
			return add_item(p, err);
		}
	}
	return 0;
}

static int bad_value(
	const struct parse *p, const char *path, const char *text, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has '%.40s' in %s", p->what, text, path);
}

/* Strips the white space around a number or boolean. */
static const char *trimmed(const char *text, size_t len, char *out, size_t size)
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
	return out;
}

int table_set_text(struct parse *p, const char **field, const char *text, size_t len,
	struct penstock_error *err)
{
	*field = arena_copy(p->arena, text, len);
	return *field ? 0 : error_memory(err);
}

static int add_prefix(struct parse *p, const char *text, size_t len, struct penstock_error *err)
{
	size_t *n = &AT(p->out, p->table->n_prefixes, size_t);
	const char **array = AT(p->out, p->table->prefixes, const char **);

	if (*n >= LIMIT_S3_LIST_KEYS)
		return error_set(err, PENSTOCK_E_PROTOCOL, "%s has more than %d common prefixes",
			p->what, LIMIT_S3_LIST_KEYS);
	array = grown_array(p, array, *n, &p->prefix_cap, sizeof(*array));
	if (!array)
		return error_memory(err);
	AT(p->out, p->table->prefixes, const char **) = array;
	return table_set_text(p, &array[(*n)++], text, len, err);
}

static int set_field(struct parse *p, const struct field *f, char *base, const char *text,
	size_t len, struct penstock_error *err)
{
	char small[48] = "";
	uint64_t number;
	int64_t date;

	switch (f->type) {
	case TEXT:
	case URL_TEXT:
		return table_set_text(p, &AT(base, f->offset, const char *), text, len, err);
	case NUMBER:
		if (!str_to_u64(trimmed(text, len, small, sizeof(small)), 0, UINT64_MAX, &number))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, uint64_t) = number;
		return 0;
	case SMALL:
		if (!str_to_u64(trimmed(text, len, small, sizeof(small)), 0, UINT32_MAX, &number))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, unsigned) = (unsigned)number;
		return 0;
	case BOOLEAN:
		trimmed(text, len, small, sizeof(small));
		if (!ascii_equal(small, strlen(small), "true") &&
			!ascii_equal(small, strlen(small), "false"))
			return bad_value(p, f->path, small, err);
		AT(base, f->offset, bool) = ascii_lower(small[0]) == 't';
		return 0;
	case DATE:
		if (date_parse_iso(trimmed(text, len, small, sizeof(small)), &date))
			AT(base, f->offset, int64_t) = date;
		return 0;
	case PREFIX:
		return add_prefix(p, text, len, err);
	case URL_ENCODING:
		trimmed(text, len, small, sizeof(small));
		p->url_encoded = ascii_equal(small, strlen(small), "url");
		return 0;
	case VERSION_2:
		AT(base, p->table->version, int) = 2;
		return 0;
	}
	return 0;
}

static int set_fields(struct parse *p, const struct field *f, char *base, const char *path,
	const char *text, size_t len, struct penstock_error *err)
{
	for (; f->path; f++) {
		if (strcmp(path, f->path) != 0)
			continue;
		int rc = set_field(p, f, base, text, len, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int table_on_end(
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
			return set_fields(p, p->table->item_fields, current_item(p), below + n,
				text, len, err);
	}
	return set_fields(p, p->table->fields, p->out, below, text, len, err);
}

/* Decodes in place: decoded text is never longer. */
static int url_decode(const struct parse *p, const char *text, struct penstock_error *err)
{
	char *in = (char *)(uintptr_t)text; /* in the arena, hence writable */
	char *out = in = in ? in + strcspn(in, "%+") : NULL;

	for (; in && *in; in++) {
		char c = *in;

		if (c == '%') {
			int value = ascii_hex_byte(in + 1);

			if (value <= 0)
				return bad_value(p, "a URL-encoded name", text, err);
			c = (char)value;
			in += 2;
		} else if (c == '+') {
			c = ' ';
		}
		*out++ = c;
	}
	if (out)
		*out = '\0';
	return 0;
}

static int url_decode_fields(
	const struct parse *p, const struct field *f, char *base, struct penstock_error *err)
{
	int rc = 0;

	for (; f && f->path && rc == 0; f++) {
		if (f->type == URL_TEXT)
			rc = url_decode(p, AT(base, f->offset, const char *), err);
	}
	return rc;
}

int table_url_decode(const struct parse *p, struct penstock_error *err)
{
	const struct table *t = p->table;
	int rc = url_decode_fields(p, t->fields, p->out, err);

	for (size_t i = 0; t->item_size && i < AT(p->out, t->count, size_t) && rc == 0; i++)
		rc = url_decode_fields(
			p, t->item_fields, AT(p->out, t->array, char *) + i * t->item_size, err);
	for (size_t i = 0; t->prefixes && i < AT(p->out, t->n_prefixes, size_t) && rc == 0; i++)
		rc = url_decode(p, AT(p->out, t->prefixes, const char **)[i], err);
	return rc;
}

int table_parse(struct parse *p, const char *xml, size_t len, struct penstock_error *err)
{
	const struct xml_events events = {
		.start = table_on_start, .end = table_on_end, .cookie = p};
	int rc = xml_parse(xml, len, &events, p->what, err);

	return rc == 0 && p->url_encoded ? table_url_decode(p, err) : rc;
}
