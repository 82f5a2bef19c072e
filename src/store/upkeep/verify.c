#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "store/upkeep/internal.h"

#define BLOCK ((size_t)MIB)

/* One run of bytes with a checksum of its own. */
struct span {
	uint64_t length;
	enum checksum_kind kind; /* CHECKSUM_NONE if there is no checksum */
	const char *expected; /* base64 */
	bool is_etag; /* `expected` is hexadecimal digits */
	unsigned part; /* 0 for the whole object */
};

static bool is_md5(const char *etag)
{
	return strspn(etag, "0123456789abcdef") == 32 && !etag[32];
}

static struct span whole_span(const struct store_object *object)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	struct span span = {.length = object->size};

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

static struct span part_span(const struct store_object *object, const struct store_part *part)
{
	enum checksum_kind kind = checksum_find(object->checksum.algorithm);
	struct span span = {.length = part->size, .part = part->number};

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

static bool matches(const struct span *span, struct checksum *sum)
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

static int compare(const struct span *span, struct checksum *sum, struct penstock_error *err)
{
	if (!span->kind || matches(span, sum))
		return 0;
	if (span->part)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the bytes of part %u do not match its %s", span->part,
			checksum_name(span->kind));
	return error_set(err, PENSTOCK_E_CORRUPT, "the bytes do not match their %s",
		checksum_name(span->kind));
}

static int verify_span(struct store_reader *reader, uint64_t offset, const struct span *span,
	struct verify_sink *sink, void *block, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum sum = {0};
	int rc = span->kind ? checksum_init(&sum, span->kind, err) : 0;

	for (uint64_t done = 0; rc == 0 && done < span->length;) {
		size_t want = span->length - done < BLOCK ? (size_t)(span->length - done) : BLOCK;
		ssize_t n = store_reader_read(reader, offset + done, block, want, err);

		if (n <= 0)
			return n < 0 ? -(int)err->code
				     : error_set(err, PENSTOCK_E_CORRUPT, "the object ends early");
		if (span->kind)
			checksum_update(&sum, block, (size_t)n);
		if (sink && sink->write)
			rc = sink->write(sink, block, (size_t)n, err);
		done += (uint64_t)n;
	}
	return rc < 0 ? rc : compare(span, &sum, err);
}

/* Returns true if the parts of an object cover all of it. */
static bool parts_cover(const struct store_object *object)
{
	uint64_t size = 0;

	for (size_t i = 0; i < object->n_parts; i++)
		size += object->parts[i].size;
	return object->n_parts && size == object->size;
}

/* Drops cached pages, which would otherwise be verified instead of the bytes on the disk. */
static void drop_cached(const struct store_object *object)
{
	for (size_t i = 0; i < object->n_pieces; i++) {
		_cleanup_close_ int fd = blob_open(object->store, object->pieces[i].blob, NULL);

		if (fd >= 0)
			(void)posix_fadvise(fd, (off_t)object->pieces[i].offset,
				(off_t)object->pieces[i].length, POSIX_FADV_DONTNEED);
	}
}

enum verify_result verify_object(
	struct store_object *object, struct verify_sink *sink, struct penstock_error *err)
{
	_cleanup_free_ void *block = malloc(BLOCK);
	struct span span = whole_span(object);
	struct store_reader *reader;
	bool all = true;
	int rc;

	if (object->encryption == STORE_CUSTOMER_KEY)
		return VERIFY_NOTHING;
	rc = block ? store_reader_new(object, &reader, err) : error_memory(err);
	if (rc < 0)
		return VERIFY_FAILED;
	drop_cached(object);
	if (span.kind || !parts_cover(object)) {
		all = span.kind != CHECKSUM_NONE;
		rc = verify_span(reader, 0, &span, sink, block, err);
	} else {
		uint64_t offset = 0;

		for (size_t i = 0; rc == 0 && i < object->n_parts; i++) {
			span = part_span(object, &object->parts[i]);
			all = all && span.kind;
			rc = verify_span(reader, offset, &span, sink, block, err);
			offset += span.length;
		}
	}
	store_reader_free(reader);
	if (rc == 0)
		return all ? VERIFY_GOOD : VERIFY_NOTHING;
	return rc == -PENSTOCK_E_CORRUPT ? VERIFY_DAMAGED : VERIFY_FAILED;
}
