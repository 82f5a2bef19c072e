#include "dataset/format/records.h"

#include <inttypes.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/internal.h"

int records_count(const struct records *r, const struct shard_reader *shard, uint64_t *count,
	struct penstock_error *err)
{
	uint64_t around = r->header + r->trailer, space, n, rest;

	if (shard->size < around)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, shard->size,
			"it ends before the %" PRIu64 " bytes of its header and trailer", around);
	space = shard->size - around;
	n = space < r->size ? 0 : (space - r->size) / r->stride + 1;
	rest = n ? space - (n - 1) * r->stride - r->size : space;
	if (r->ragged && rest % dtype_size(r->columns[0].dtype))
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, shard->size,
			"its size is not a multiple of the %zu bytes of a token",
			dtype_size(r->columns[0].dtype));
	if (rest && !r->ragged)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, shard->size - rest,
			"%" PRIu64 " bytes are left after records of %" PRIu64 " bytes", rest,
			r->size);
	if (r->count != UINT64_MAX && n != r->count)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, r->header,
			"%" PRIu64 " records of %" PRIu64
			" bytes, but its header declares %" PRIu64,
			n, r->size, r->count);
	*count = n;
	return 0;
}

static int scan(const struct format *f, const struct shard_reader *shard, format_sample_fn sample,
	void *cookie, struct penstock_error *err)
{
	const struct records *r = (const struct records *)f;
	uint64_t count = 0;
	int result = records_count(r, shard, &count, err);

	for (uint64_t i = 0; result == 0 && i < count; i++) {
		struct format_sample s = {.offset = r->header + i * r->stride, .size = r->size};

		result = sample(cookie, &s, err);
	}
	return result;
}

static int split(const struct format *f, const struct format_piece *piece,
	struct format_fields *out, struct penstock_error *err)
{
	const struct records *r = (const struct records *)f;
	int result = 0;

	fields_begin(out);
	if (piece->size != r->size)
		return shard_error(err, PENSTOCK_E_CORRUPT, piece->shard, piece->offset,
			"a record has %zu bytes instead of %" PRIu64, piece->size, r->size);
	for (unsigned i = 0; result == 0 && i < r->n_columns; i++) {
		const struct record_column *c = &r->columns[i];
		struct format_field field = {.name = c->name,
			.name_len = strlen(c->name),
			.data = (const char *)piece->data + c->offset,
			.size = c->size,
			.type = c->type,
			.dtype = c->dtype,
			.big_endian = c->big_endian,
			.ndim = c->ndim};

		memcpy(field.dims, c->dims, sizeof(field.dims));
		result = fields_add(out, piece, &field, err);
	}
	return result;
}

static void init(struct records *r, const char *name, uint64_t size)
{
	*r = (struct records){.format = {.name = name, .scan = scan, .split = split},
		.size = size,
		.stride = size,
		.count = UINT64_MAX};
}

int records_init(struct records *r, uint64_t header, uint64_t size, uint64_t trailer,
	struct penstock_error *err)
{
	if (size == 0 || size > LIMIT_S3_OBJECT_MAX || header > LIMIT_S3_OBJECT_MAX ||
		trailer > LIMIT_S3_OBJECT_MAX)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use records of %" PRIu64 " bytes after %" PRIu64
			" and before %" PRIu64 " bytes: a record has 1 to %" PRIu64 " bytes",
			size, header, trailer, LIMIT_S3_OBJECT_MAX);
	init(r, "records", size);
	r->header = header;
	r->trailer = trailer;
	r->n_columns = 1;
	r->columns[0] = (struct record_column){.name = "data", .size = size};
	return 0;
}

#define CIFAR_IMAGE 3072

static void cifar(struct records *r, const char *name, const char *const *labels, unsigned n)
{
	init(r, name, n + CIFAR_IMAGE);
	r->n_columns = n + 1;
	for (unsigned i = 0; i < n; i++)
		r->columns[i] = (struct record_column){.name = labels[i],
			.offset = i,
			.size = 1,
			.type = FORMAT_NUMBER,
			.dtype = DTYPE_U8};
	r->columns[n] = (struct record_column){.name = "image",
		.offset = n,
		.size = CIFAR_IMAGE,
		.type = FORMAT_ARRAY,
		.dtype = DTYPE_U8,
		.ndim = 3,
		.dims = {3, 32, 32}};
}

void records_cifar10(struct records *r)
{
	cifar(r, "cifar10", (const char *const[]){"label"}, 1);
}

void records_cifar100(struct records *r)
{
	cifar(r, "cifar100", (const char *const[]){"coarse", "fine"}, 2);
}

int records_tokens(struct records *r, enum format_dtype dtype, uint64_t length, uint64_t stride,
	struct penstock_error *err)
{
	size_t width = dtype_size(dtype);

	if ((dtype != DTYPE_U16 && dtype != DTYPE_U32) || length == 0 || stride == 0 ||
		length > LIMIT_S3_OBJECT_MAX / 4 || stride > LIMIT_S3_OBJECT_MAX / 4)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot use windows of %" PRIu64 " tokens of type '%s' every %" PRIu64
			" tokens: tokens are uint16 or uint32, and lengths greater than 0",
			length, dtype_name(dtype), stride);
	init(r, "tokens", length * width);
	r->stride = stride * width;
	r->ragged = true;
	r->n_columns = 1;
	r->columns[0] = (struct record_column){.name = "tokens",
		.size = length * width,
		.type = FORMAT_ARRAY,
		.dtype = dtype,
		.ndim = 1,
		.dims = {length}};
	return 0;
}

const char *records_of_array(struct records *r, const char *name, const struct npy *array)
{
	size_t size;

	if (array->ndim == 0)
		return "the array has no dimensions";
	if (!format_array_size(array->dtype, array->ndim - 1, array->dims + 1, &size) ||
		size > LIMIT_S3_OBJECT_MAX)
		return "the dimensions of the array are too large";
	if (size == 0)
		return "the array has a dimension of 0";
	init(r, name, size);
	r->header = array->offset;
	r->count = array->dims[0];
	r->n_columns = 1;
	r->columns[0] = (struct record_column){.name = "data",
		.size = size,
		.type = array->ndim > 1 ? FORMAT_ARRAY : FORMAT_NUMBER,
		.dtype = array->dtype,
		.big_endian = array->big_endian,
		.ndim = array->ndim - 1};
	memcpy(r->columns[0].dims, array->dims + 1, (array->ndim - 1) * sizeof(array->dims[0]));
	return NULL;
}

int npy_open(struct records *r, const struct shard_reader *shard, struct penstock_error *err)
{
	_cleanup_(window_release) struct window w = {.shard = shard};
	const unsigned char *p;
	const char *fault;
	struct npy npy;
	uint64_t len;
	int code = PENSTOCK_E_CORRUPT, result = window_get(&w, 0, NPY_START, &p, err);

	if (result < 0)
		return result;
	len = npy_header_size(p);
	if (len == 0)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 0,
			"it is not a NumPy array of version 1, 2 or 3");
	if (len > LIMIT_NPY_HEADER)
		return shard_error(err, PENSTOCK_E_LIMIT, shard->name, 0,
			"a header of %" PRIu64 " bytes; the limit is %zu", len, LIMIT_NPY_HEADER);
	result = window_get(&w, 0, (size_t)len, &p, err);
	if (result < 0)
		return result;
	fault = npy_parse(&npy, p, (size_t)len, &code);
	if (!fault)
		fault = records_of_array(r, "npy", &npy);
	if (fault)
		return shard_error(err, (enum penstock_code)code, shard->name, 0, "%s", fault);
	return 0;
}

/* Types by their codes in IDX, of which the first is 0x08. */
static const enum format_dtype idx_types[] = {
	DTYPE_U8, DTYPE_I8, DTYPE_NONE, DTYPE_I16, DTYPE_I32, DTYPE_F32, DTYPE_F64};

int idx_open(struct records *r, const struct shard_reader *shard, struct penstock_error *err)
{
	_cleanup_(window_release) struct window w = {.shard = shard};
	struct npy array = {.big_endian = true};
	const unsigned char *p;
	const char *fault;
	int result = window_get(&w, 0, 4, &p, err);

	if (result < 0)
		return result;
	if (p[0] == 0 && p[1] == 0 && p[2] >= 8 &&
		p[2] - 8u < sizeof(idx_types) / sizeof(*idx_types))
		array.dtype = idx_types[p[2] - 8];
	if (array.dtype == DTYPE_NONE)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 0, "it has no IDX header");
	if (p[3] == 0 || p[3] > LIMIT_FORMAT_DIMS)
		return shard_error(err, PENSTOCK_E_UNSUPPORTED, shard->name, 3,
			"%u dimensions; the limit is %d", p[3], LIMIT_FORMAT_DIMS);
	array.ndim = p[3];
	array.offset = 4 + 4 * array.ndim;
	result = window_get(&w, 0, array.offset, &p, err);
	if (result < 0)
		return result;
	for (unsigned i = 0; i < array.ndim; i++)
		array.dims[i] = get_be32(p + 4 + (size_t)4 * i);
	fault = records_of_array(r, "idx", &array);
	if (fault)
		return shard_error(err, PENSTOCK_E_CORRUPT, shard->name, 4, "%s", fault);
	return 0;
}
