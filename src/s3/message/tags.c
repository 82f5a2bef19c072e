#include "s3/message/tags.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/message/table.h"
#include "s3/message/xml.h"
#include "s3/uri.h"

/* Maximum lengths in UTF-16 code units, which AWS counts. */
#define KEY_MAX	  128
#define VALUE_MAX 256

static const struct field tagging_fields[] = {D("/TagSet", TEXT, s3_tagging, set), END};
const struct field tag_fields[] = {
	NEEDED("/Key", TEXT, s3_tag, key), NEEDED("/Value", TEXT, s3_tag, value), END};
static const struct table tagging_table = {.what = "the Tagging document",
	.roots = {"Tagging"},
	.items = {"/TagSet/Tag"},
	.fields = tagging_fields,
	.item_fields = tag_fields,
	ITEMS(s3_tagging, tags, n, S3_TAGS_MAX)};

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct s3_tag *)a)->key, ((const struct s3_tag *)b)->key);
}

static void sort(struct s3_tagging *tagging)
{
	if (tagging->n)
		qsort(tagging->tags, tagging->n, sizeof(*tagging->tags), by_key);
}

static int parse(const struct table *table, const char *xml, size_t len, struct s3_tagging *out,
	struct penstock_error *err)
{
	int rc = table_parse(table, out, xml, len, err);

	if (rc < 0)
		return rc;
	sort(out);
	if (out->set)
		return 0;
	s3_tagging_release(out);
	return error_set(err, PENSTOCK_E_PROTOCOL, "%s has no <TagSet>", tagging_table.what);
}

int s3_tagging_parse(
	const char *xml, size_t len, struct s3_tagging *out, struct penstock_error *err)
{
	struct table strict = tagging_table;

	strict.strict = true;
	return parse(&strict, xml, len, out, err);
}

int s3_tagging_parse_reply(
	const char *xml, size_t len, struct s3_tagging *out, struct penstock_error *err)
{
	return parse(&tagging_table, xml, len, out, err);
}

RELEASE(tagging)

void s3_tagging_write(struct buf *out, const struct s3_tagging *tagging)
{
	xml_declaration(out);
	xml_open_root(out, "Tagging");
	xml_open(out, "TagSet");
	for (size_t i = 0; i < tagging->n; i++) {
		xml_open(out, "Tag");
		xml_element(out, "Key", tagging->tags[i].key);
		xml_element(out, "Value", tagging->tags[i].value);
		xml_close(out, "Tag");
	}
	xml_close(out, "TagSet");
	xml_close(out, "Tagging");
}

/* --- the query ------------------------------------------------------------------------------- */

/* Returns the decoded text, or NULL with `err` set if the text is malformed, or if out of
 * memory. */
static const char *decoded(struct arena *arena, struct span text, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf plain = BUF_INIT(LIMIT_HTTP_HEADERS);
	const char *copy;

	if (text.p && uri_decode(&plain, text.p, text.n, URI_PLUS_SPACE) < 0 &&
		plain.failure != BUF_NO_MEMORY) {
		error_set(err, PENSTOCK_E_PROTOCOL, "a tag has an invalid percent-encoding");
		return NULL;
	}
	if (!str_is_utf8(buf_str(&plain), plain.len)) {
		error_set(err, PENSTOCK_E_PROTOCOL, "a tag is not UTF-8");
		return NULL;
	}
	copy = buf_failed(&plain) ? NULL : arena_copy(arena, buf_str(&plain), plain.len);
	if (!copy)
		error_memory(err);
	return copy;
}

int s3_tagging_parse_query(const char *query, struct s3_tagging *out, struct penstock_error *err)
{
	struct penstock_error problem = PENSTOCK_ERROR_INIT;
	struct span key, value;
	size_t most = 0;

	for (const char *at = query; uri_query_next(&at, &key, &value);)
		most++;
	if (most > S3_TAGS_MAX)
		return error_set(
			err, PENSTOCK_E_PROTOCOL, "invalid tags: more than %d", S3_TAGS_MAX);
	out->tags = arena_alloc(&out->arena, (most + 1) * sizeof(*out->tags));
	if (!out->tags)
		return error_memory(err);
	for (const char *at = query; uri_query_next(&at, &key, &value);) {
		struct s3_tag *tag = &out->tags[out->n++];

		tag->key = decoded(&out->arena, key, &problem);
		tag->value = tag->key ? decoded(&out->arena, value, &problem) : NULL;
		if (!tag->value) {
			s3_tagging_release(out);
			return error_move(err, &problem);
		}
	}
	sort(out);
	return 0;
}

void s3_tagging_write_query(struct buf *out, const struct s3_tagging *tagging)
{
	for (size_t i = 0; i < tagging->n; i++)
		uri_query_add(out, tagging->tags[i].key, tagging->tags[i].value);
}

/* --- the rules ------------------------------------------------------------------------------- */

/* Checks the characters and their number. Outside of ASCII all characters except control characters
 * count as letters, digits or spaces. */
static bool is_text(const char *text, size_t most)
{
	size_t n = 0;

	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p < 0x80 && !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					 "0123456789 +-=._:/@",
					 *p))
			return false;
		if (*p == 0xC2 && p[1] < 0xA0)
			return false;
		n += (*p & 0xC0) != 0x80;
		n += *p >= 0xF0; /* two units */
	}
	return n <= most;
}

bool s3_tagging_repeats(const struct s3_tagging *tagging)
{
	for (size_t i = 0; i < tagging->n; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(tagging->tags[i].key, tagging->tags[k].key) == 0)
				return true;
	return false;
}

enum s3_error s3_tagging_check(const struct s3_tagging *tagging, size_t most, const char **message)
{
	*message = NULL;
	for (size_t i = 0; i < tagging->n && !*message; i++) {
		const struct s3_tag *tag = &tagging->tags[i];

		if (!*tag->key || !is_text(tag->key, KEY_MAX))
			*message = "The TagKey you have provided is invalid";
		else if (!is_text(tag->value, VALUE_MAX))
			*message = "The TagValue you have provided is invalid";
		else if (strncmp(tag->key, "aws:", 4) == 0)
			*message = "System tags cannot be added/updated by requester";
	}
	if (!*message && s3_tagging_repeats(tagging))
		*message = "Cannot provide multiple Tags with the same key";
	if (*message)
		return S3_E_INVALID_TAG;
	if (tagging->n <= most)
		return S3_OK;
	*message = most == S3_OBJECT_TAGS ? "Object tags cannot be greater than 10"
					  : "Bucket tag count cannot be greater than 50";
	return S3_E_BAD_REQUEST;
}
