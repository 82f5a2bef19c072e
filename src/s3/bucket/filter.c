#include "s3/bucket/filter.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "s3/message/tags.h"
#include "s3/message/xml.h"
#include "s3/uri.h"

enum s3_error s3_filter_tags(struct arena *arena, const struct s3_texts *keys,
	const struct s3_texts *values, struct s3_texts *out, const char **message)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_XML_BODY);

	*message = "";
	if (!keys->n)
		return S3_OK;
	if (keys->n > S3_OBJECT_TAGS) {
		*message = "A filter can not have more than 10 tags, because an object can not.";
		return S3_E_INVALID_REQUEST;
	}
	out->items = arena_alloc(arena, keys->n * sizeof(*out->items));
	if (!out->items)
		return S3_E_SLOW_DOWN;
	for (size_t i = 0; i < keys->n; i++) {
		const struct s3_tag tag = {keys->items[i], values->items[i]};

		*message = "Duplicate Tag Keys are not allowed.";
		for (size_t k = 0; k < i; k++)
			if (strcmp(keys->items[k], tag.key) == 0)
				return S3_E_INVALID_REQUEST;
		if (s3_tagging_check(&(struct s3_tagging){.tags = (struct s3_tag[]){tag}, .n = 1},
			    1, message) != S3_OK)
			return S3_E_INVALID_TAG;
		*message = "";
		buf_clear(&text);
		uri_query_add(&text, tag.key, tag.value);
		out->items[i] = buf_failed(&text) ? NULL
						  : arena_copy(arena, buf_str(&text), text.len);
		if (!out->items[i])
			return S3_E_SLOW_DOWN;
	}
	out->n = keys->n;
	return S3_OK;
}

static bool has_tag(const char *tags, const char *tag)
{
	size_t len = strlen(tag);

	for (const char *p = tags; p; p = strchr(p, '&')) {
		p += *p == '&';
		if (strncmp(p, tag, len) == 0 && (p[len] == '&' || !p[len]))
			return true;
	}
	return false;
}

bool s3_filter_has(const struct s3_texts *wanted, const char *tags)
{
	for (size_t i = 0; i < wanted->n; i++)
		if (!has_tag(tags, wanted->items[i]))
			return false;
	return true;
}

void s3_filter_write_tags(
	struct buf *out, const struct s3_texts *keys, const struct s3_texts *values)
{
	for (size_t i = 0; i < keys->n; i++) {
		xml_open(out, "Tag");
		xml_element(out, "Key", keys->items[i]);
		xml_element(out, "Value", values->items[i]);
		xml_close(out, "Tag");
	}
}
