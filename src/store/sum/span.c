#include "store/sum/span.h"

#include <string.h>

#include "base/str.h"
#include "store/store.h"

static bool is_md5(const char *etag)
{
	return strspn(etag, "0123456789abcdef") == 32 && !etag[32];
}

static struct store_span whole_span(const struct store_object *object)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	struct store_span span = {.length = object->size};

	if (kind && object->checksum.value[0] &&
		strcmp(object->checksum.type, "FULL_OBJECT") == 0) {
		span.kind = kind;
		span.expected = object->checksum.value;
	} else if (!object->n_parts && is_md5(object->etag)) {
		span.kind = CHECKSUM_MD5;
		span.expected = object->etag;
		span.is_etag = true;
	}
	return span;
}

static struct store_span part_span(const struct store_object *object, const struct store_part *part)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	struct store_span span = {.length = part->size, .part = part->number};

	if (kind && part->checksum[0]) {
		span.kind = kind;
		span.expected = part->checksum;
	} else if (is_md5(part->etag)) {
		span.kind = CHECKSUM_MD5;
		span.expected = part->etag;
		span.is_etag = true;
	}
	return span;
}

/* Returns true if the parts of an object cover all of it. */
static bool parts_cover(const struct store_object *object)
{
	uint64_t size = 0;

	for (size_t i = 0; i < object->n_parts; i++)
		size += object->parts[i].size;
	return object->n_parts && size == object->size;
}

bool store_span_next(const struct store_object *object, struct store_span *span)
{
	uint64_t offset = span->offset + span->length;
	size_t i = span->next;
	struct store_span whole = whole_span(object);

	if (i == 0 && (whole.kind || !parts_cover(object))) {
		*span = whole;
		span->next = SIZE_MAX;
		return true;
	}
	if (i >= object->n_parts)
		return false;
	*span = part_span(object, &object->parts[i]);
	span->offset = offset;
	span->next = i + 1;
	return true;
}

bool store_span_matches(const struct store_span *span, struct checksum *sum)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	checksum_final(sum, digest);
	if (span->is_etag)
		str_hex(digest, 16, text);
	else
		checksum_format(span->kind, digest, text);
	return strcmp(text, span->expected) == 0;
}
