#include <inttypes.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "dataset/format/internal.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/litdata/internal.h"

static const struct {
	const char *name;
	enum litdata_kind kind;
	enum format_dtype dtype;
} serializers[] = {
	{"bytes", LITDATA_BYTES, DTYPE_NONE},
	{"jpeg", LITDATA_BYTES, DTYPE_NONE},
	{"image", LITDATA_BYTES, DTYPE_NONE},
	{"tifffile", LITDATA_BYTES, DTYPE_NONE},
	{"tiff", LITDATA_BYTES, DTYPE_NONE},
	{"file", LITDATA_BYTES, DTYPE_NONE},
	{"video", LITDATA_BYTES, DTYPE_NONE},
	{"audio", LITDATA_BYTES, DTYPE_NONE},
	{"nifti", LITDATA_BYTES, DTYPE_NONE},
	{"mesh", LITDATA_BYTES, DTYPE_NONE},
	{"pdf", LITDATA_BYTES, DTYPE_NONE},
	{"str", LITDATA_TEXT, DTYPE_NONE},
	{"string", LITDATA_TEXT, DTYPE_NONE},
	{"text", LITDATA_TEXT, DTYPE_NONE},
	{"bool", LITDATA_NUMBER, DTYPE_BOOL},
	{"int", LITDATA_NUMBER, DTYPE_I64},
	{"float", LITDATA_NUMBER, DTYPE_F64},
	{"no_header_numpy", LITDATA_VECTOR, DTYPE_NONE},
	{"numpy", LITDATA_NUMPY, DTYPE_NONE},
	{"no_header_tensor", LITDATA_VECTOR, DTYPE_NONE},
	{"tensor", LITDATA_TENSOR, DTYPE_NONE},
	{"pil", LITDATA_PIL, DTYPE_NONE},
	{"jpeg_array", LITDATA_JPEG_ARRAY, DTYPE_NONE},
};

/* Types by their numbers in headers; higher numbers differ between versions of litData. */
static const enum format_dtype numpy_types[] = {DTYPE_I8, DTYPE_I16, DTYPE_I32, DTYPE_I64, DTYPE_U8,
	DTYPE_U16, DTYPE_U32, DTYPE_U64, DTYPE_F16, DTYPE_F32, DTYPE_F64};
static const enum format_dtype tensor_types[] = {DTYPE_F32, DTYPE_F32, DTYPE_F64, DTYPE_F64,
	DTYPE_NONE, DTYPE_NONE, DTYPE_NONE, DTYPE_NONE, DTYPE_F16, DTYPE_F16, DTYPE_BF16, DTYPE_U8,
	DTYPE_I8, DTYPE_I16, DTYPE_I16, DTYPE_I32, DTYPE_I32, DTYPE_I64, DTYPE_I64, DTYPE_BOOL,
	DTYPE_U16};

static enum format_dtype dtype_of(bool tensor, uint64_t number)
{
	if (tensor)
		return number < ARRAY_SIZE(tensor_types) ? tensor_types[number] : DTYPE_NONE;
	return number < ARRAY_SIZE(numpy_types) ? numpy_types[number] : DTYPE_NONE;
}

const char *litdata_field_init(struct litdata_field *field, const char *serializer)
{
	size_t len = strcspn(serializer, ":");
	uint64_t number;

	for (size_t i = 0; i < ARRAY_SIZE(serializers); i++) {
		if (strlen(serializers[i].name) != len ||
			memcmp(serializers[i].name, serializer, len) != 0)
			continue;
		field->kind = serializers[i].kind;
		field->dtype = serializers[i].dtype;
		if (field->kind != LITDATA_VECTOR)
			return NULL;
		if (!serializer[len] || !str_to_u64(serializer + len + 1, 0, UINT32_MAX, &number))
			return "its array has no type";
		field->dtype = dtype_of(str_starts(serializer, "no_header_tensor"), number);
		return field->dtype ? NULL : "the type of its array is not supported";
	}
	if (str_starts(serializer, "pickle") || str_starts(serializer, "graph"))
		return "it is pickled, and loading it can run any code; write the data set with "
		       "other types";
	return "its serializer is unknown";
}

/* Reads the type, the number of dimensions and the dimensions of an array; each number is a u32.
 * Returns NULL, or the reason why the array is invalid. */
static const char *array(const struct litdata_field *f, struct format_field *field)
{
	bool tensor = f->kind == LITDATA_TENSOR;
	uint32_t (*get)(const void *) = tensor ? get_be32 : get_le32;
	const unsigned char *p = field->data;
	size_t size;

	if (field->size < 8)
		return "an array ends within its header";
	field->dtype = dtype_of(tensor, get(p));
	if (field->dtype == DTYPE_NONE)
		return "unknown type of an array";
	field->ndim = get(p + 4);
	if (field->ndim > LIMIT_FORMAT_DIMS)
		return "too many dimensions of an array";
	if (field->size < 8 + 4 * (size_t)field->ndim)
		return "an array ends within its header";
	for (unsigned i = 0; i < field->ndim; i++)
		field->dims[i] = get(p + 8 + (size_t)4 * i);
	field->type = field->ndim ? FORMAT_ARRAY : FORMAT_NUMBER;
	field->data = p + 8 + (size_t)4 * field->ndim;
	field->size -= 8 + 4 * (size_t)field->ndim;
	if (!format_array_size(field->dtype, field->ndim, field->dims, &size) ||
		size != field->size)
		return "the shape of an array does not match its size";
	return NULL;
}

static const char *vector(const struct litdata_field *f, struct format_field *field)
{
	size_t width = dtype_size(f->dtype);

	if (field->size % width)
		return "an array ends within a value";
	field->type = FORMAT_ARRAY;
	field->dtype = f->dtype;
	field->ndim = 1;
	field->dims[0] = field->size / width;
	return NULL;
}

static const char *number(const struct litdata_field *f, struct format_field *field)
{
	if (field->size != dtype_size(f->dtype))
		return "the size of a number does not match its type";
	field->type = FORMAT_NUMBER;
	field->dtype = f->dtype;
	return NULL;
}

/* Sets the type of a value. Returns NULL, or the reason why the value is invalid. */
static const char *value(const struct litdata_field *f, struct format_field *field)
{
	switch (f->kind) {
	case LITDATA_TEXT:
		field->type = FORMAT_TEXT;
		return NULL;
	case LITDATA_NUMBER:
		return number(f, field);
	case LITDATA_VECTOR:
		return vector(f, field);
	case LITDATA_NUMPY:
	case LITDATA_TENSOR:
		return array(f, field);
	case LITDATA_PIL:
		return pil_field(field);
	default:
		return NULL;
	}
}

static int split(const struct format *f, const struct format_piece *piece,
	struct format_fields *out, struct penstock_error *err)
{
	const struct litdata_fields *fields = ((const struct litdata_chunk *)f)->fields;
	const unsigned char *p = piece->data;
	const char *fault = NULL;
	size_t rest;
	int r = 0;

	fields_begin(out);
	if (piece->size < 4 * fields->n)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"an item of %zu bytes is too short for the sizes of its fields",
			piece->size);
	rest = piece->size - 4 * fields->n;
	for (size_t i = 0; r == 0 && i < fields->n; i++) {
		const struct litdata_field *item = &fields->items[i];
		struct format_field field = {.name = item->name,
			.name_len = strlen(item->name),
			.data = p + piece->size - rest,
			.size = get_le32(p + 4 * i)};
		size_t size = field.size;

		if (size > rest)
			fault = "its bytes are outside of the item";
		else if (item->kind == LITDATA_JPEG_ARRAY)
			fault = images_list(&field, 0, false, out);
		else
			fault = value(item, &field);
		if (fault)
			return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
				"field '%s': %s", item->name, fault);
		rest -= size;
		if (item->kind != LITDATA_JPEG_ARRAY)
			r = fields_add(out, piece, &field, err);
	}
	if (r == 0 && rest)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"%zu bytes follow the last field of an item", rest);
	return r;
}

static int scan(const struct format *f, const struct shard_reader *reader, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	const struct litdata_chunk *chunk = (const struct litdata_chunk *)f;

	return scan_offsets(reader, chunk->samples, sample, cookie, err);
}

void litdata_chunk_init(struct litdata_chunk *chunk, const struct litdata_fields *fields)
{
	*chunk = (struct litdata_chunk){
		.format = {.name = "litdata", .scan = scan, .split = split}, .fields = fields};
}

int litdata_find_tokens(
	const struct shard_reader *shard, uint64_t *offset, struct penstock_error *err)
{
	_cleanup_(window_release) struct window w = {.shard = shard};
	const unsigned char *p;
	uint64_t items;
	int r = window_get(&w, 0, 8, &p, err);

	if (r < 0)
		return r;
	items = get_le32(p);
	*offset = get_le32(p + 4);
	if (*offset != 4 * (items + 2))
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 4,
			"the first item is at byte %" PRIu64 ", but the offsets end at %" PRIu64,
			*offset, 4 * (items + 2));
	return 0;
}
