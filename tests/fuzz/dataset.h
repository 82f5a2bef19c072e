/* Properties of every format, for the targets of src/dataset/format. */
#ifndef FUZZ_DATASET_H
#define FUZZ_DATASET_H

#include "fuzz.h"

#include "../support/memory_shard.h"

/* Returns true if the bytes are inside the memory. */
static inline bool inside(const void *p, size_t size, const void *memory, size_t total)
{
	const char *a = p, *b = memory;

	return a >= b && a <= b + total && size <= total - (size_t)(a - b);
}

/* Fields are in the sample or in the scratch memory; arrays are complete; lists are in order. */
static inline void require_fields(const struct format_fields *f, const struct format_piece *piece)
{
	for (size_t i = 0; i < f->n; i++) {
		const struct format_field *field = &f->items[i];
		size_t size;

		require(field->name && field->name_len <= LIMIT_STRING);
		require(inside(field->data, field->size, piece->data, piece->size) ||
			inside(field->data, field->size, f->scratch, f->scratch_size));
		require(field->ndim <= LIMIT_FORMAT_DIMS);
		require(field->count == 0 || field->index < field->count);
		if (field->type == FORMAT_ARRAY || field->type == FORMAT_NUMBER) {
			require(format_array_size(field->dtype, field->ndim, field->dims, &size));
			require(size == field->size && dtype_size(field->dtype) > 0);
		} else {
			require(field->dtype == DTYPE_NONE && field->ndim == 0);
		}
	}
}

/* Splits a sample with enough scratch memory, and with none. */
static inline int fuzz_split(
	const struct format *format, const struct format_piece *piece, struct format_fields *f)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT,
					      none_err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ struct format_fields *none = calloc(1, sizeof(*none));
	int r, r_none;

	require(none);
	f->scratch_size = (size_t)FORMAT_SCRATCH(piece->size);
	f->scratch = malloc(f->scratch_size);
	require(f->scratch);
	r = format->split(format, piece, f, &err);
	require_error(r, &err);
	require(f->scratch_used <= f->scratch_size || r < 0);
	r_none = format->split(format, piece, none, &none_err);
	require_error(r_none, &none_err);
	if (r == 0) {
		require_fields(f, piece);
		require(none->scratch_used == f->scratch_used);
		require(r_none == (f->scratch_used ? -(int)PENSTOCK_E_LIMIT : 0));
	}
	free(f->scratch);
	f->scratch = NULL;
	return r;
}

struct fuzz_scan {
	const struct format *format;
	const struct memory_shard *m;
	uint64_t last; /* offset of the last sample */
	size_t n, split; /* samples, and those of them that could be split */
};

static inline int fuzz_scan_sample(
	void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	struct fuzz_scan *scan = cookie;
	struct format_piece piece = {.shard = "shard", .offset = s->offset};
	_cleanup_free_ struct format_fields *f = calloc(1, sizeof(*f));
	_cleanup_free_ char *copy = NULL;

	(void)err;
	require(f && s->offset >= scan->last);
	require(s->offset <= scan->m->size && s->size <= scan->m->size - s->offset);
	scan->last = s->offset;
	copy = fuzz_bytes((const uint8_t *)scan->m->data + s->offset, (size_t)s->size);
	piece.data = copy;
	piece.size = (size_t)s->size;
	if (scan->n++ < 64)
		scan->split += fuzz_split(scan->format, &piece, f) == 0;
	return 0;
}

/* Scans a shard and splits its samples. Returns the result of the scan. */
static inline int fuzz_format(
	const struct format *format, const uint8_t *data, size_t size, struct fuzz_scan *scan)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m = {.data = data, .size = size};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	int r;

	*scan = (struct fuzz_scan){.format = format, .m = &m};
	r = format->scan(format, &shard, fuzz_scan_sample, scan, &err);
	require_error(r, &err);
	scan->m = NULL;
	return r;
}

#endif
