/* Samples as they are delivered: as they are stored, or with decoded images. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/internal.h"

/* Memory for the fields of one sample after the other. */
struct columns {
	struct format_fields fields;
	void *scratch;
};

static void columns_free(struct columns **c)
{
	if (*c)
		free((*c)->scratch);
	free(*c);
}

static int split(const struct dataset *set, uint64_t id, const char *data, size_t size,
	struct columns *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	size_t needed;

	c->fields.n = c->fields.scratch_used = 0;
	if (dataset_split_stored(set, id, data, size, &c->fields, &own) == 0)
		return 0;
	needed = c->fields.scratch_used;
	if (own.code != PENSTOCK_E_LIMIT || needed <= c->fields.scratch_size ||
		needed > FORMAT_SCRATCH(size))
		return error_move(err, &own);
	free(c->scratch);
	c->scratch = malloc(needed);
	c->fields.scratch = c->scratch;
	c->fields.scratch_size = c->scratch ? needed : 0;
	c->fields.n = c->fields.scratch_used = 0;
	return c->scratch ? dataset_split_stored(set, id, data, size, &c->fields, err)
			  : error_memory(err);
}

/* The field with the image. Returns NULL if there is none. */
static struct format_field *find_image(const struct dataset *set, struct format_fields *fields)
{
	for (size_t i = 0; i < fields->n; i++) {
		struct format_field *f = &fields->items[i];

		if (!set->shards ||
			(set->column ? f->name_len == strlen(set->column) &&
						memcmp(f->name, set->column, f->name_len) == 0
				     : f->type == FORMAT_BYTES && jpeg_is(f->data, f->size)))
			return f;
	}
	return NULL;
}

static int decode_one(const struct dataset *set, uint64_t id, const char *stored, size_t size,
	char *pixels, struct columns *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const struct dataset_place at = dataset_find(set, id);
	const struct format_field *f;
	int r;

	r = split(set, id, stored, size, c, err);
	if (r < 0)
		return r;
	f = find_image(set, &c->fields);
	r = f ? jpeg_decode(f->data, f->size, &set->image, (uint8_t *)pixels, &own)
	      : error_set(&own, PENSTOCK_E_CORRUPT, "the sample has no %s%s",
			set->column ? "column " : "JPEG image", set->column ? set->column : "");
	if (r == 0)
		return 0;
	error_prefix(&own, "cannot read '%s' of '%s' at byte %" PRIu64,
		source_name(set->source, at.shard), source_url(set->source), at.offset);
	return error_move(err, &own);
}

/* Without other fields the samples as they are stored have memory of their own. */
static int read_apart(struct dataset *set, const uint64_t *ids, size_t n, char **stored,
	const atomic_int *cancel, struct penstock_error *err)
{
	uint64_t size = 1;

	for (size_t i = 0; i < n && size <= LIMIT_DATASET_BYTES; i++) {
		/* dataset_read_stored() refuses other numbers. */
		if (ids[i] < set->count)
			size += dataset_find(set, ids[i]).size;
	}
	if (size > LIMIT_DATASET_BYTES)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot read %zu samples of '%s' at a time: they have more than %zu GiB; "
			"make the batch smaller",
			n, source_url(set->source), LIMIT_DATASET_BYTES / GIB);
	*stored = malloc(size);
	if (!*stored)
		return error_memory(err);
	return dataset_read_stored(set, ids, n, 0, *stored, cancel, err);
}

static int read_decoded(struct dataset *set, const uint64_t *ids, size_t n, char *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(columns_free) struct columns *c = calloc(1, sizeof(*c));
	const size_t pixels = dataset_pixels(set);
	_cleanup_free_ char *apart = NULL;
	const char *stored;
	int r;

	if (!c)
		return error_memory(err);
	r = set->shards ? dataset_read_stored(set, ids, n, pixels, data, cancel, err)
			: read_apart(set, ids, n, &apart, cancel, err);
	stored = apart;
	for (size_t i = 0; r == 0 && i < n; i++) {
		size_t size = (size_t)dataset_find(set, ids[i]).size;

		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (!apart)
			stored = data + pixels;
		r = decode_one(set, ids[i], stored, size, data, c, err);
		stored += size;
		data += apart ? pixels : pixels + size;
	}
	return r;
}

static int split_decoded(const struct dataset *set, uint64_t id, const char *data, size_t size,
	struct format_fields *out, struct penstock_error *err)
{
	const size_t pixels = dataset_pixels(set);
	struct format_field *f;
	int r;

	if (size < pixels)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot split sample %" PRIu64
			" of '%s': %zu bytes are less than its image",
			id, source_url(set->source), size);
	r = dataset_split_stored(set, id, data + pixels, size - pixels, out, err);
	if (r < 0)
		return r;
	f = find_image(set, out);
	if (!f)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot split sample %" PRIu64 " of '%s': it has no image", id,
			source_url(set->source));
	f->data = data;
	f->size = pixels;
	f->type = FORMAT_ARRAY;
	f->dtype = DTYPE_U8;
	f->big_endian = false;
	f->ndim = 3;
	f->dims[0] = set->image.height;
	f->dims[1] = set->image.width;
	f->dims[2] = 3;
	f->mode = "RGB";
	f->mode_len = 3;
	return 0;
}

int dataset_read(struct dataset *set, const uint64_t *ids, size_t n, void *data,
	const atomic_int *cancel, struct penstock_error *err)
{
	return set->image.height ? read_decoded(set, ids, n, data, cancel, err)
				 : dataset_read_stored(set, ids, n, 0, data, cancel, err);
}

int dataset_split(const struct dataset *set, uint64_t id, const void *data, size_t size,
	struct format_fields *out, struct penstock_error *err)
{
	if (id >= set->count)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot split sample %" PRIu64 " of '%s': it has %" PRIu64, id,
			source_url(set->source), set->count);
	if (set->image.height)
		return split_decoded(set, id, data, size, out, err);
	return dataset_split_stored(set, id, data, size, out, err);
}
