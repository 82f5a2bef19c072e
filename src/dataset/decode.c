/* Samples that are decoded images. */
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

int dataset_set_decoding(
	struct dataset *set, const struct dataset_options *options, struct penstock_error *err)
{
	static const char *const formats[] = {"objects", "tar", "mds", "litdata"};
	uint32_t height = options->decode_height, width = options->decode_width;
	bool known = false;

	if (!height && !width)
		return options->decode_column ? error_set(err, PENSTOCK_E_INVALID,
							"column '%s' without a size of images",
							options->decode_column)
					      : 0;
	if (!height || !width || height > LIMIT_JPEG_SIDE || width > LIMIT_JPEG_SIDE)
		return error_set(err, PENSTOCK_E_INVALID,
			"invalid size of images %" PRIu32 " x %" PRIu32
			"; expected 1 to %u pixels each",
			height, width, LIMIT_JPEG_SIDE);
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		known |= strcmp(set->name, formats[i]) == 0;
	if (!known || (options->decode_column && !set->shards))
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot decode %s of '%s': samples of format '%s' have none",
			known ? "a column" : "JPEG images", source_url(set->source), set->name);
	set->image = (struct jpeg_size){.height = height, .width = width};
	if (!options->decode_column)
		return 0;
	set->column = strdup(options->decode_column);
	return set->column ? 0 : error_memory(err);
}

static int split(const struct dataset *set, const struct dataset_place *at, const void *data,
	struct columns *c, struct penstock_error *err)
{
	const struct format *format = set->shards[at->shard].format;
	const struct format_piece piece = {.shard = source_name(set->source, at->shard),
		.offset = at->offset,
		.data = data,
		.size = (size_t)at->size};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	size_t needed;

	c->fields.n = c->fields.scratch_used = 0;
	if (format->split(format, &piece, &c->fields, &own) == 0)
		return 0;
	needed = c->fields.scratch_used;
	if (own.code != PENSTOCK_E_LIMIT || needed <= c->fields.scratch_size ||
		needed > FORMAT_SCRATCH(at->size))
		return error_move(err, &own);
	free(c->scratch);
	c->scratch = malloc(needed);
	c->fields.scratch = c->scratch;
	c->fields.scratch_size = c->scratch ? needed : 0;
	c->fields.scratch_used = 0;
	return c->scratch ? format->split(format, &piece, &c->fields, err) : error_memory(err);
}

/* The field with the image. Returns NULL if there is none. */
static const struct format_field *find_image(const struct dataset *set, const struct columns *c)
{
	for (size_t i = 0; i < c->fields.n; i++) {
		const struct format_field *f = &c->fields.items[i];

		if (set->column ? f->name_len == strlen(set->column) &&
					  memcmp(f->name, set->column, f->name_len) == 0
				: f->type == FORMAT_BYTES && jpeg_is(f->data, f->size))
			return f;
	}
	return NULL;
}

static int decode_one(const struct dataset *set, const struct dataset_place *at, const char *stored,
	uint8_t *pixels, struct columns *c, struct penstock_error *err)
{
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	const struct format_field *f;
	int r;

	if (!set->shards) {
		r = jpeg_decode(stored, (size_t)at->size, &set->image, pixels, &own);
	} else {
		r = split(set, at, stored, c, err);
		if (r < 0)
			return r;
		f = find_image(set, c);
		r = f ? jpeg_decode(f->data, f->size, &set->image, pixels, &own)
		      : error_set(&own, PENSTOCK_E_CORRUPT, "the sample has no %s%s",
				set->column ? "column " : "JPEG image",
				set->column ? set->column : "");
	}
	if (r == 0)
		return 0;
	error_prefix(&own, "cannot read '%s' of '%s' at byte %" PRIu64,
		source_name(set->source, at->shard), source_url(set->source), at->offset);
	return error_move(err, &own);
}

int dataset_decode(const struct dataset *set, const struct dataset_place *places, size_t n,
	const char *stored, uint8_t *pixels, const atomic_int *cancel, struct penstock_error *err)
{
	_cleanup_(columns_free) struct columns *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		r = decode_one(set, &places[i], stored, pixels, c, err);
		stored += places[i].size;
		pixels += jpeg_bytes(&set->image);
	}
	return r;
}

void dataset_image_field(
	const struct dataset *set, const void *data, size_t size, struct format_fields *out)
{
	out->n = 1;
	out->items[0] = (struct format_field){.name = "image",
		.name_len = 5,
		.data = data,
		.size = size,
		.type = FORMAT_ARRAY,
		.dtype = DTYPE_U8,
		.ndim = 3,
		.dims = {set->image.height, set->image.width, 3},
		.mode = "RGB",
		.mode_len = 3};
}
