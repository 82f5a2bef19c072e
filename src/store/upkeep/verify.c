#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/sum/checksum.h"
#include "store/sum/span.h"
#include "store/upkeep/internal.h"

#define BLOCK ((size_t)MIB)

static int compare(const struct store_span *span, struct checksum *sum, struct penstock_error *err)
{
	if (!span->kind || store_span_matches(span, sum))
		return 0;
	if (span->part)
		return error_set(err, PENSTOCK_E_CORRUPT,
			"the bytes of part %u do not match its %s", span->part,
			checksum_name(span->kind));
	return error_set(err, PENSTOCK_E_CORRUPT, "the bytes do not match their %s",
		checksum_name(span->kind));
}

static int verify_span(struct store_reader *reader, const struct store_span *span,
	struct verify_sink *sink, void *block, struct penstock_error *err)
{
	_cleanup_(checksum_release) struct checksum sum = {0};
	int rc = span->kind ? checksum_init(&sum, span->kind, err) : 0;

	for (uint64_t done = 0; rc == 0 && done < span->length;) {
		size_t want = span->length - done < BLOCK ? (size_t)(span->length - done) : BLOCK;
		ssize_t n = store_reader_read(reader, span->offset + done, block, want, err);

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
	struct store_span span = {0};
	struct store_reader *reader;
	bool all = true;
	int rc;

	if (object->encryption == STORE_CUSTOMER_KEY)
		return VERIFY_NOTHING;
	rc = block ? store_reader_new(object, &reader, err) : error_memory(err);
	if (rc < 0)
		return VERIFY_FAILED;
	drop_cached(object);
	while (rc == 0 && store_span_next(object, &span)) {
		all = all && span.kind;
		rc = verify_span(reader, &span, sink, block, err);
	}
	store_reader_free(reader);
	if (rc == 0)
		return all ? VERIFY_GOOD : VERIFY_NOTHING;
	return rc == -PENSTOCK_E_CORRUPT ? VERIFY_DAMAGED : VERIFY_FAILED;
}
