/* Records of tf.train.Example: a feature for each field. */
#include <endian.h>
#include <string.h>

#include "base/error.h"
#include "dataset/format/tfrecord.h"
#include "dataset/pack/internal.h"

/* Field numbers in the protobuf messages. */
enum { BYTES_LIST = 1, FLOAT_LIST = 2, INT64_LIST = 3 };

static void add_varint(struct buf *out, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		buf_add_char(out, (char)(value | 0x80));
	buf_add_char(out, (char)value);
}

static void add_bytes(struct buf *out, unsigned field, const void *data, size_t size)
{
	add_varint(out, field << 3 | 2);
	add_varint(out, size);
	buf_add(out, data, size);
}

static uint64_t integer_at(const struct format_field *f, size_t i)
{
	size_t width = dtype_size(f->dtype);
	bool is_signed = f->dtype == DTYPE_I8 || f->dtype == DTYPE_I16 || f->dtype == DTYPE_I32;
	uint64_t value = 0;

	memcpy(&value, (const char *)f->data + i * width, width);
	if (is_signed && value >> (8 * width - 1))
		value |= UINT64_MAX << (8 * width);
	return value;
}

static int add_values(
	const struct format_field *f, struct buf *list, unsigned *kind, struct penstock_error *err)
{
	struct buf packed = BUF_INIT(LIMIT_SAMPLE);
	size_t width = dtype_size(f->dtype);
	int r = 0;

	if (f->type != FORMAT_NUMBER && f->type != FORMAT_ARRAY) {
		*kind = BYTES_LIST;
		add_bytes(list, 1, f->data, f->size);
		return 0;
	}
	if (f->dtype == DTYPE_F64 || f->dtype == DTYPE_F16 || f->dtype == DTYPE_BF16)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot write '%.*s' as tfrecord: it has type %s, not float32 or int64; "
			"use --format tar or mds",
			(int)f->name_len, f->name, dtype_name(f->dtype));
	*kind = f->dtype == DTYPE_F32 ? FLOAT_LIST : INT64_LIST;
	if (f->dtype == DTYPE_F32)
		buf_add(&packed, f->data, f->size);
	for (size_t i = 0; f->dtype != DTYPE_F32 && i < f->size / width; i++)
		add_varint(&packed, integer_at(f, i));
	if (buf_failed(&packed))
		r = buf_error(&packed, "a list of numbers", err);
	else
		add_bytes(list, 1, packed.data, packed.len);
	buf_release(&packed);
	return r;
}

static void add_feature(
	struct buf *features, const char *name, size_t len, unsigned kind, const struct buf *list)
{
	struct buf feature = BUF_INIT(LIMIT_SAMPLE), entry = BUF_INIT(LIMIT_SAMPLE);

	add_bytes(&feature, kind, list->data, list->len);
	add_bytes(&entry, 1, name, len);
	add_bytes(&entry, 2, feature.data, feature.len);
	add_bytes(features, 1, entry.data, entry.len);
	features->failure |= feature.failure | entry.failure | list->failure;
	buf_release(&feature);
	buf_release(&entry);
}

/* Lists have one dimension: the dimensions of an array are in a feature "NAME/shape". */
static void add_shape(struct buf *features, const struct format_field *f)
{
	struct buf dims = BUF_INIT(KIB), list = BUF_INIT(KIB), name = BUF_INIT(LIMIT_STRING);

	for (unsigned i = 0; i < f->ndim; i++)
		add_varint(&dims, f->dims[i]);
	add_bytes(&list, 1, dims.data, dims.len);
	buf_add(&name, f->name, f->name_len);
	buf_add_str(&name, "/shape");
	add_feature(features, name.data, name.len, INT64_LIST, &list);
	buf_release(&dims);
	buf_release(&list);
	buf_release(&name);
}

static int add(const struct pack *p, const struct pack_sample *s, struct buf *out,
	struct penstock_error *err)
{
	struct buf features = BUF_INIT(LIMIT_SAMPLE), example = BUF_INIT(LIMIT_SAMPLE);
	uint64_t len;
	uint32_t crc;
	int r = 0;

	(void)p;
	for (size_t i = 0; r == 0 && i < s->n; i++) {
		const struct format_field *f = &s->fields[i];
		struct buf list = BUF_INIT(LIMIT_SAMPLE);
		unsigned kind = BYTES_LIST;

		r = add_values(f, &list, &kind, err);
		/* The next fields are the other values of the list. */
		for (; r == 0 && f->count && f->index + 1 < f->count && i + 1 < s->n;
			f = &s->fields[i])
			r = add_values(&s->fields[++i], &list, &kind, err);
		add_feature(&features, f->name, f->name_len, kind, &list);
		if (f->type == FORMAT_ARRAY && f->ndim > 1)
			add_shape(&features, f);
		buf_release(&list);
	}
	add_bytes(&example, 1, features.data, features.len);
	if (r == 0 && (buf_failed(&features) || buf_failed(&example)))
		r = buf_error(buf_failed(&features) ? &features : &example, "a record", err);
	len = htole64(example.len);
	crc = htole32(tfrecord_crc(&len, sizeof(len)));
	buf_add(out, &len, sizeof(len));
	buf_add(out, &crc, sizeof(crc));
	buf_add(out, example.data, example.len);
	crc = htole32(tfrecord_crc(example.data, example.len));
	buf_add(out, &crc, sizeof(crc));
	buf_release(&features);
	buf_release(&example);
	return r;
}

const struct pack_format pack_tfrecord = {.name = "tfrecord",
	.suffix = "tfrecord",
	.fields = true,
	.copies = "tfrecord",
	.add = add,
	.scan = &format_tfrecord};
