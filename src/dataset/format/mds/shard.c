#include <inttypes.h>

#include <penstock/error.h>

#include "dataset/format/internal.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/mds/internal.h"

static int scan(const struct format *f, const struct shard_reader *reader, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	const struct mds_shard *shard = (const struct mds_shard *)f;

	if (reader->size != shard->raw.bytes)
		return shard_error(err, PENSTOCK_E_CORRUPT, reader->name, reader->size,
			"the shard ends there, but its index declares %" PRIu64 " bytes",
			shard->raw.bytes);
	return scan_offsets(reader, shard->samples, sample, cookie, err);
}

/* Reads the type and the shape at the start of a value, unless the column has them. Returns NULL,
 * or the reason why the value is invalid. */
static const char *array_head(const struct mds_column *c, struct format_field *field)
{
	const unsigned char *p = field->data, *end = p + field->size;
	unsigned width, ndim;

	if (field->dtype == DTYPE_NONE) {
		if (p == end)
			return "missing type of an array";
		field->dtype = mds_dtype_of_code(*p++);
		if (field->dtype == DTYPE_NONE)
			return "unknown type of an array";
	}
	if (c->ndim == 0) {
		if (p == end)
			return "missing shape of an array";
		ndim = *p >> 2;
		width = 1u << (*p++ & 3);
		if (ndim > LIMIT_FORMAT_DIMS)
			return "too many dimensions of an array";
		if ((size_t)(end - p) < (size_t)ndim * width)
			return "missing shape of an array";
		for (unsigned i = 0; i < ndim; i++, p += width)
			field->dims[i] = width == 1   ? *p
					 : width == 2 ? get_le16(p)
					 : width == 4 ? get_le32(p)
						      : get_le64(p);
		field->ndim = ndim;
	}
	field->data = p;
	field->size = (size_t)(end - p);
	return NULL;
}

static const char *array(const struct mds_column *c, struct format_field *field)
{
	const char *fault;
	size_t size;

	field->type = FORMAT_ARRAY;
	field->dtype = c->dtype;
	field->ndim = c->ndim;
	memcpy(field->dims, c->dims, sizeof(field->dims));
	fault = array_head(c, field);
	if (fault)
		return fault;
	if (!format_array_size(field->dtype, field->ndim, field->dims, &size) ||
		size != field->size)
		return "the shape of an array does not match its size";
	return NULL;
}

/* Reads a list of values: their number, their sizes, then their bytes. */
static int list(const struct mds_column *c, const struct format_piece *piece,
	const struct format_field *whole, struct format_fields *out, struct penstock_error *err)
{
	const char *fault = images_list(
		whole, c->kind == MDS_JPEG_ARRAY ? 0 : 4, c->kind == MDS_LIST_PIL, out);

	if (fault)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"column '%s': %s", c->name, fault);
	return 0;
}

static int column(const struct mds_column *c, const struct format_piece *piece,
	struct format_field *field, struct format_fields *out, struct penstock_error *err)
{
	const char *fault = NULL;

	switch (c->kind) {
	case MDS_BYTES:
		break;
	case MDS_TEXT:
		field->type = FORMAT_TEXT;
		break;
	case MDS_JSON:
		field->type = FORMAT_JSON;
		break;
	case MDS_NUMBER:
		field->type = FORMAT_NUMBER;
		field->dtype = c->dtype;
		break;
	case MDS_NDARRAY:
		fault = array(c, field);
		break;
	case MDS_PIL:
		fault = pil_field(field);
		break;
	case MDS_JPEG_ARRAY:
	case MDS_LIST:
	case MDS_LIST_PIL:
		return list(c, piece, field, out, err);
	}
	if (fault)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"column '%s': %s", c->name, fault);
	return fields_add(out, piece, field, err);
}

static int split(const struct format *f, const struct format_piece *piece,
	struct format_fields *out, struct penstock_error *err)
{
	const struct mds_columns *columns = ((const struct mds_shard *)f)->columns;
	const unsigned char *p = piece->data;
	size_t head = 0, at = 0, rest;
	int r = 0;

	fields_begin(out);
	for (size_t i = 0; i < columns->n; i++)
		head += columns->items[i].size ? 0 : 4;
	if (head > piece->size)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"a sample of %zu bytes is too short for the sizes of its columns",
			piece->size);
	rest = piece->size - head;
	for (size_t i = 0; r == 0 && i < columns->n; i++) {
		const struct mds_column *c = &columns->items[i];
		struct format_field field = {.name = c->name,
			.name_len = strlen(c->name),
			.data = p + piece->size - rest,
			.size = c->size};

		if (c->size == 0) {
			field.size = get_le32(p + at);
			at += 4;
		}
		if (field.size > rest)
			return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
				"column '%s' of %zu bytes is outside of the sample", c->name,
				field.size);
		rest -= field.size;
		r = column(c, piece, &field, out, err);
	}
	if (r == 0 && rest)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"%zu bytes follow the last column of a sample", rest);
	return r;
}

void mds_shard_init(struct mds_shard *shard)
{
	*shard = (struct mds_shard){.format = {.name = "mds", .scan = scan, .split = split}};
}
