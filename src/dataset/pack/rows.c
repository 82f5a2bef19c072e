/* Samples of one size with no bytes between them: records, and rows of NumPy arrays. */
#include <string.h>

#include "base/error.h"
#include "dataset/pack/internal.h"

static int add_same_size(const struct pack *p, const void *data, size_t size, struct buf *out,
	struct penstock_error *err)
{
	if (size != p->row_size || size == 0)
		return error_set(err, PENSTOCK_E_INVALID,
			"the sample has %zu bytes, but the first sample has %zu; use --format tar or mds",
			size, p->row_size);
	buf_add(out, data, size);
	return 0;
}

static int begin_records(
	struct pack *p, const struct pack_sample *first, struct penstock_error *err)
{
	(void)err;
	p->row_size = first->raw_size;
	return 0;
}

static int add_record(const struct pack *p, const struct pack_sample *s, struct buf *out,
	struct penstock_error *err)
{
	return add_same_size(p, s->raw, s->raw_size, out, err);
}

/* Returns the array of a row; bytes become an array of uint8. */
static struct format_field row_of(const struct format_field *f)
{
	struct format_field row = *f;

	if (row.type == FORMAT_ARRAY || row.type == FORMAT_NUMBER)
		return row;
	row.dtype = DTYPE_U8;
	row.ndim = 1;
	row.dims[0] = row.size;
	return row;
}

static int begin_npy(struct pack *p, const struct pack_sample *first, struct penstock_error *err)
{
	if (first->n != 1 || first->fields[0].ndim >= LIMIT_FORMAT_DIMS)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot write samples with %zu fields as npy: a row is one array; use "
			"--format tar or mds",
			first->n);
	p->row = row_of(&first->fields[0]);
	p->row_size = p->row.size;
	return 0;
}

static int add_row(const struct pack *p, const struct pack_sample *s, struct buf *out,
	struct penstock_error *err)
{
	struct format_field row;

	if (s->n != 1)
		return error_set(err, PENSTOCK_E_INVALID,
			"the sample has %zu fields, and a row has one; use --format tar or mds",
			s->n);
	row = row_of(&s->fields[0]);
	if (row.size == p->row_size &&
		(row.dtype != p->row.dtype || row.ndim != p->row.ndim ||
			memcmp(row.dims, p->row.dims, row.ndim * sizeof(row.dims[0])) != 0))
		return error_set(err, PENSTOCK_E_INVALID,
			"the sample differs from the first sample in type or shape; use --format tar "
			"or mds");
	return add_same_size(p, row.data, row.size, out, err);
}

static int end_npy(const struct pack *p, struct pack_shard *shard, struct penstock_error *err)
{
	struct buf whole = BUF_INIT(shard->data.limit);
	int r = pack_npy_head(&whole, &p->row, shard->n, true, err);

	if (r < 0) {
		buf_release(&whole);
		return r;
	}
	buf_add(&whole, buf_str(&shard->data), shard->data.len);
	buf_release(&shard->data);
	shard->data = whole;
	shard->head = PACK_NPY_HEAD;
	return 0;
}

const struct pack_format pack_records = {
	.name = "records", .suffix = "bin", .begin = begin_records, .add = add_record};
const struct pack_format pack_npy = {
	.name = "npy", .suffix = "npy", .begin = begin_npy, .add = add_row, .end = end_npy};
