#include "transfer/get/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "s3/message/messages.h"

void get_parts_release(struct get_parts *parts)
{
	free(parts->parts);
	*parts = (struct get_parts){0};
}

/* Requests one page of the parts; `marker` is the last part number that is known. */
static int ask(struct object_ref at, const char *etag, unsigned marker, const atomic_int *cancel,
	struct s3_parts *out, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	char text[16];
	int r;

	s3_op_init(&op, "GET", at);
	snprintf(text, sizeof(text), "%u", marker);
	s3_op_query(&op, "attributes", NULL);
	s3_op_header(&op, "x-amz-object-attributes", "ETag,ObjectParts");
	s3_op_header(&op, "x-amz-part-number-marker", marker ? text : NULL);
	s3_op_cancel(&op, cancel);
	op.request.max_attempts = 2;
	op.request.resend_ms = LIMIT_HTTP_RESEND_MS;
	r = s3_op_read(&op, s3_object_parts_parse, out, err);
	/* This reply has the ETag without quotes. */
	if (r == 0 && (strlen(etag) < 2 || !out->etag ||
			      strncmp(out->etag, etag + 1, strlen(etag) - 2) != 0 ||
			      strlen(out->etag) != strlen(etag) - 2))
		r = error_set(err, PENSTOCK_E_CHANGED, "the object was replaced meanwhile");
	return r;
}

/* Adds a page. Returns false if the page is unusable. */
static bool add(struct get_parts *parts, const struct s3_parts *page, uint64_t *end,
	enum checksum_kind kind)
{
	struct get_part_sum *grown;

	if (!page->n || parts->n + page->n > LIMIT_S3_PARTS)
		return false;
	grown = realloc(parts->parts, (parts->n + page->n) * sizeof(*grown));
	if (!grown)
		return false;
	parts->parts = grown;
	for (size_t i = 0; i < page->n; i++) {
		const struct s3_part *from = &page->parts[i];
		struct get_part_sum *to = &parts->parts[parts->n];
		uint8_t digest[CHECKSUM_MAX_SIZE] = {0};

		if (!from->checksums[kind] || from->size > LIMIT_S3_PART_MAX ||
			!checksum_parse(kind, from->checksums[kind], digest))
			return false;
		*to = (struct get_part_sum){.offset = *end, .length = from->size};
		memcpy(to->digest, digest, sizeof(to->digest));
		*end += from->size;
		parts->n++;
	}
	return true;
}

void get_parts_learn(struct get_parts *parts, struct object_ref at, uint64_t size, const char *etag,
	enum checksum_kind kind, const atomic_int *cancel)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned marker = 0;
	uint64_t end = 0;
	bool good = true, more = true;

	*parts = (struct get_parts){0};
	while (good && more) {
		struct s3_parts page = {0};

		good = ask(at, etag, marker, cancel, &page, &err) == 0 &&
		       add(parts, &page, &end, kind);
		more = page.truncated && page.next_marker > marker;
		marker = page.next_marker;
		s3_parts_release(&page);
	}
	/* The parts must cover the whole object. */
	if (good && end == size)
		return;
	log_debug("%s://%s/%s: no checksums of its parts%s%s", object_client_scheme(at.client),
		at.bucket, at.key, err.message ? ": " : "", err.message ? err.message : "");
	get_parts_release(parts);
}

int get_part_damaged(const struct get_part_sum *part, unsigned number, enum checksum_kind kind,
	struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_CORRUPT,
		"the %" PRIu64 " bytes from %" PRIu64
		" do not match the stored checksum of part %u (%s)",
		part->length, part->offset, number, checksum_name(kind));
}

int get_parts_check(struct object_ref at, uint64_t size, const char *etag, enum checksum_kind kind,
	int fd, const char *data, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(get_parts_release) struct get_parts parts = {0};
	int r = 0;

	get_parts_learn(&parts, at, size, etag, kind, cancel);
	for (unsigned i = 0; r == 0 && i < parts.n; i++) {
		const struct get_part_sum *part = &parts.parts[i];
		uint8_t got[CHECKSUM_MAX_SIZE];

		r = data ? checksum_of(kind, data + part->offset, part->length, got, err)
			 : checksum_of_file(fd, kind, part->offset, part->length, cancel, got, err);
		if (r == 0 && memcmp(got, part->digest, checksum_size(kind)) != 0)
			r = get_part_damaged(part, i + 1, kind, err);
	}
	return r == 0 ? parts.n > 0 : r;
}

const struct get_part_sum *get_parts_within(
	const struct get_parts *parts, unsigned *i, uint64_t offset, uint64_t length)
{
	unsigned low = *i, high = parts->n;

	/* Find the first part at or after `offset`. */
	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (parts->parts[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == parts->n ||
		parts->parts[low].offset + parts->parts[low].length > offset + length)
		return NULL;
	*i = low + 1;
	return &parts->parts[low];
}
