#include "workflow/document/canonical.h"

#include <openssl/evp.h>
#include <penstock/error.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "workflow/document/secrets.h"

void json_add_text(struct buf *out, const char *s)
{
	buf_add_char(out, '"');
	while (*s) {
		unsigned c;
		size_t control = text_control(s, &c);

		if (c == '\n')
			buf_add_str(out, "\\n");
		else if (control)
			buf_printf(out, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			buf_printf(out, "\\%c", *s);
		else
			buf_add_char(out, *s);
		s += control ? control : 1;
	}
	buf_add_char(out, '"');
}

/* Returns true for a whole number as in RFC 8259: without a sign `+`, leading zeros or a base. */
static bool is_json_number(const char *s)
{
	s += *s == '-';
	return (s[0] == '0' && !s[1]) || (*s >= '1' && *s <= '9' && !s[strspn(s, "0123456789")]);
}

/* Writes a scalar so that it reads back as the same text and type. */
static void add_scalar(const struct node *node, struct buf *out)
{
	enum scalar_type type = scalar_type(node);

	if (type == SCALAR_NULL)
		buf_add_str(out, "null");
	else if (type == SCALAR_BOOL)
		buf_add_str(out, strcasecmp(node->text, "true") == 0 ? "true" : "false");
	else if (type == SCALAR_INT && is_json_number(node->text))
		buf_add_str(out, node->text);
	else
		json_add_text(out, node->text);
}

static int by_key(const void *left, const void *right)
{
	const struct node_entry *const *a = left;
	const struct node_entry *const *b = right;

	return strcmp((*a)->key, (*b)->key);
}

static int write_value(const struct node *node, const char *key, struct buf *out);

static int write_map(const struct node *map, const char *key, struct buf *out)
{
	_cleanup_free_ const struct node_entry **sorted = NULL;
	size_t n = 0;

	sorted = calloc(map->n + 1, sizeof(const struct node_entry *));
	if (!sorted)
		return -1;
	for (size_t i = 0; i < map->n; i++) {
		const struct node_entry *entry = &map->entries[i];

		if (!node_is_null(entry->value) &&
			secret_kind_of(map, entry, key) != SECRET_CREDENTIAL)
			sorted[n++] = entry;
	}
	qsort(sorted, n, sizeof(const struct node_entry *), by_key);
	buf_add_char(out, '{');
	for (size_t i = 0; i < n; i++) {
		_cleanup_(buf_release) struct buf masked = BUF_INIT(LIMIT_WORKFLOW_FILE);
		enum secret_kind kind = secret_kind_of(map, sorted[i], key);

		if (i)
			buf_add_char(out, ',');
		json_add_text(out, sorted[i]->key);
		buf_add_char(out, ':');
		if (kind == SECRET_NONE && write_value(sorted[i]->value, sorted[i]->key, out) < 0)
			return -1;
		if (kind == SECRET_URL) {
			secret_mask_url(sorted[i]->value->text, &masked);
			json_add_text(out, buf_str(&masked));
		} else if (kind != SECRET_NONE) {
			buf_add_str(out, "null");
		}
		if (buf_failed(&masked))
			return -1;
	}
	return buf_add_char(out, '}');
}

static int write_value(const struct node *node, const char *key, struct buf *out)
{
	if (node->kind == NODE_MAP)
		return write_map(node, key, out);
	if (node->kind == NODE_SCALAR) {
		add_scalar(node, out);
		return buf_failed(out) ? -1 : 0;
	}
	buf_add_char(out, '[');
	for (size_t i = 0; i < node->n; i++) {
		if (i)
			buf_add_char(out, ',');
		if (write_value(node->entries[i].value, NULL, out) < 0)
			return -1;
	}
	return buf_add_char(out, ']');
}

int canonical_digest(const struct node *job, char digest[static 65])
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_WORKFLOW_CANONICAL);
	unsigned char sum[32];
	int r = write_value(job, NULL, &text);

	if (text.failure == BUF_OVER_LIMIT)
		return -PENSTOCK_E_LIMIT;
	if (r < 0 || buf_failed(&text) ||
		EVP_Digest(buf_str(&text), text.len, sum, NULL, EVP_sha256(), NULL) != 1)
		return -PENSTOCK_E_MEMORY;
	str_hex(sum, sizeof(sum), digest);
	return 0;
}

void json_add_tree(struct buf *out, const struct node *node, const char *key, bool mask,
	void (*scalar)(struct buf *out, const struct node *node))
{
	if (node->kind == NODE_SCALAR) {
		scalar(out, node);
		return;
	}
	buf_add_char(out, node->kind == NODE_MAP ? '{' : '[');
	for (size_t i = 0; i < node->n; i++) {
		const struct node_entry *entry = &node->entries[i];
		bool is_map = node->kind == NODE_MAP;

		if (i)
			buf_add_str(out, ", ");
		if (is_map) {
			json_add_text(out, entry->key);
			buf_add_str(out, ": ");
		}
		if (mask && is_map && secret_kind_of(node, entry, key) != SECRET_NONE)
			buf_add_str(out, "null");
		else
			json_add_tree(out, entry->value, entry->key, mask, scalar);
	}
	buf_add_char(out, node->kind == NODE_MAP ? '}' : ']');
}

void json_add_line(struct buf *out, size_t depth)
{
	buf_add_char(out, '\n');
	for (size_t i = 0; i < depth; i++)
		buf_add_str(out, "  ");
}

static void record_node(
	const struct node *node, const char *key, size_t depth, struct buf *path, struct buf *out);

/* Appends a member of a map; an inline secret becomes a reference to its place. */
static void record_member(const struct node *map, const struct node_entry *entry,
	const char *map_key, size_t depth, struct buf *path, struct buf *out)
{
	const struct node *value = entry->value;
	_cleanup_(buf_release) struct buf reference = BUF_INIT(LIMIT_WORKFLOW_FILE);

	json_add_text(out, entry->key);
	buf_add_str(out, ": ");
	if (secret_kind_of(map, entry, map_key) == SECRET_NONE || strstr(value->text, "${{")) {
		record_node(value, entry->key, depth, path, out);
		return;
	}
	if (value->at.option)
		buf_printf(&reference, "${{ option.%s }}", buf_str(path));
	else
		buf_printf(
			&reference, "${{ file.%s }}", value->field ? value->field : buf_str(path));
	/* An empty text in the record would be read back as the secret's value. */
	if (buf_failed(&reference))
		out->failure = reference.failure;
	json_add_text(out, buf_str(&reference));
}

static void record_node(
	const struct node *node, const char *key, size_t depth, struct buf *path, struct buf *out)
{
	if (node->kind == NODE_SCALAR) {
		add_scalar(node, out);
		return;
	}
	buf_add_char(out, node->kind == NODE_MAP ? '{' : '[');
	for (size_t i = 0; i < node->n; i++) {
		const struct node_entry *entry = &node->entries[i];
		size_t saved = path->len;

		if (i)
			buf_add_char(out, ',');
		json_add_line(out, depth + 1);
		field_append(path, entry->key, i);
		if (node->kind == NODE_MAP)
			record_member(node, entry, key, depth + 1, path, out);
		else
			record_node(entry->value, NULL, depth + 1, path, out);
		buf_truncate(path, saved);
	}
	if (node->n)
		json_add_line(out, depth);
	buf_add_char(out, node->kind == NODE_MAP ? '}' : ']');
}

int record_write(const struct node *job, struct buf *out)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(LIMIT_WORKFLOW_FILE);

	record_node(job, NULL, 0, &path, out);
	buf_add_char(out, '\n');
	if (buf_failed(&path))
		out->failure = path.failure;
	return buf_failed(out) ? -1 : 0;
}
