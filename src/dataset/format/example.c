/* The protocol buffer tf.train.Example: features by name, each a list of bytes, floats or
 * integers. */
#include <inttypes.h>
#include <string.h>

#include <penstock/error.h>

#include "base/must.h"
#include "dataset/format/internal.h"
#include "dataset/format/protobuf.h"
#include "dataset/format/tfrecord.h"

/* Field numbers of the protobuf messages Example, Features, Feature and the lists of values. */
enum {
	EXAMPLE_FEATURES = 1,
	FEATURES_ENTRY = 1,
	ENTRY_KEY = 1,
	ENTRY_FEATURE = 2,
	FEATURE_BYTES = 1,
	FEATURE_FLOATS = 2,
	FEATURE_INTEGERS = 3,
	LIST_VALUE = 1
};

/* The state while one Example is split into fields. */
struct split {
	const struct format_piece *piece;
	struct format_fields *out;
	struct protobuf name; /* name of the feature */
	struct penstock_error *err;
};

static int corrupt(const struct split *s, const unsigned char *at, const char *reason)
{
	return shard_error(s->err, PENSTOCK_E_CORRUPT, s->piece->shard,
		s->piece->offset + (uint64_t)(at - (const unsigned char *)s->piece->data),
		"the record is not a tf.train.Example: %s", reason);
}

static int add(const struct split *s, const struct format_field *value)
{
	struct format_field field = *value;

	field.name = (const char *)s->name.at;
	field.name_len = (size_t)(s->name.end - s->name.at);
	return fields_add(s->out, s->piece, &field, s->err);
}

static int bytes_list(const struct split *s, struct protobuf list)
{
	struct protobuf values = list;
	struct protobuf_field item;
	uint32_t count = 0, index = 0;
	int r;

	while ((r = protobuf_next(&values, &item)) > 0)
		count += item.number == LIST_VALUE && item.wire == PROTOBUF_LENGTH;
	if (r < 0)
		return corrupt(s, list.at, "invalid list of bytes");
	while (r == 0 && protobuf_next(&list, &item) > 0) {
		struct format_field field = {
			.data = item.bytes.at, .size = (size_t)(item.bytes.end - item.bytes.at)};

		if (item.number != LIST_VALUE || item.wire != PROTOBUF_LENGTH)
			continue;
		if (count > 1) {
			field.index = index++;
			field.count = count;
		}
		r = add(s, &field);
	}
	return r;
}

/* Values of one feature, in one or several pieces. */
struct numbers {
	enum format_dtype dtype;
	size_t n;
	unsigned pieces;
	unsigned char *to; /* NULL while the values are only counted */
};

static bool add_floats(struct numbers *v, const struct protobuf_field *item)
{
	size_t len = (size_t)(item->bytes.end - item->bytes.at);

	if (len % 4 || (item->wire != PROTOBUF_LENGTH && item->wire != PROTOBUF_FIXED32))
		return false;
	if (v->to)
		memcpy(v->to + 4 * v->n, item->bytes.at, len);
	v->n += len / 4;
	v->pieces++;
	return true;
}

static bool add_integers(struct numbers *v, const struct protobuf_field *item)
{
	struct protobuf packed = item->bytes;
	uint64_t value = item->varint;

	if (item->wire != PROTOBUF_LENGTH && item->wire != PROTOBUF_VARINT)
		return false;
	do {
		if (item->wire == PROTOBUF_LENGTH && packed.at == packed.end)
			break;
		if (item->wire == PROTOBUF_LENGTH && !protobuf_varint(&packed, &value))
			return false;
		value = htole64(value);
		if (v->to)
			memcpy(v->to + 8 * v->n, &value, 8);
		v->n++;
	} while (item->wire == PROTOBUF_LENGTH);
	return true;
}

static bool add_numbers(struct numbers *v, struct protobuf list)
{
	struct protobuf_field item;
	int r;

	v->n = 0;
	while ((r = protobuf_next(&list, &item)) > 0) {
		if (item.number != LIST_VALUE)
			continue;
		if (!(v->dtype == DTYPE_F32 ? add_floats(v, &item) : add_integers(v, &item)))
			return false;
	}
	return r == 0;
}

static int numbers_list(const struct split *s, struct protobuf list, enum format_dtype dtype)
{
	struct numbers v = {.dtype = dtype};
	struct format_field field = {.type = FORMAT_ARRAY, .dtype = dtype, .ndim = 1};

	if (!add_numbers(&v, list))
		return corrupt(s, list.at, "invalid list of numbers");
	field.dims[0] = v.n;
	field.size = v.n * dtype_size(dtype);
	field.data = list.at;
	if (dtype == DTYPE_F32 && v.pieces == 1) {
		struct protobuf_field item = {0};

		while (protobuf_next(&list, &item) > 0 && item.number != LIST_VALUE)
			;
		field.data = item.bytes.at;
	} else if (v.n) {
		v.to = fields_scratch(s->out, field.size);
		if (!v.to)
			return 0; /* fields_end() reports that the scratch memory is too small */
		MUST(add_numbers(&v, list));
		field.data = v.to;
	}
	return add(s, &field);
}

static int feature(const struct split *s, struct protobuf feature)
{
	struct protobuf value = {NULL, NULL};
	struct protobuf_field item;
	uint32_t kind = 0;
	int r;

	while ((r = protobuf_next(&feature, &item)) > 0) {
		if (item.number < FEATURE_BYTES || item.number > FEATURE_INTEGERS)
			continue;
		if (kind || item.wire != PROTOBUF_LENGTH)
			return corrupt(s, item.bytes.at ? item.bytes.at : feature.at,
				"a feature has two lists of values");
		kind = item.number;
		value = item.bytes;
	}
	if (r < 0)
		return corrupt(s, feature.at, "invalid feature");
	if (kind == FEATURE_BYTES)
		return bytes_list(s, value);
	if (kind)
		return numbers_list(s, value, kind == FEATURE_FLOATS ? DTYPE_F32 : DTYPE_I64);
	return 0;
}

static bool has_name(const struct split *s)
{
	size_t len = (size_t)(s->name.end - s->name.at);

	for (size_t i = 0; i < s->out->n; i++) {
		const struct format_field *f = &s->out->items[i];

		if (f->name_len == len && memcmp(f->name, s->name.at, len) == 0)
			return true;
	}
	return false;
}

static int entry(struct split *s, struct protobuf entry)
{
	struct protobuf value = {NULL, NULL};
	struct protobuf_field item;
	int r;

	s->name = (struct protobuf){entry.at, entry.at};
	while ((r = protobuf_next(&entry, &item)) > 0) {
		if (item.wire != PROTOBUF_LENGTH)
			continue;
		if (item.number == ENTRY_KEY)
			s->name = item.bytes;
		else if (item.number == ENTRY_FEATURE)
			value = item.bytes;
	}
	if (r < 0 || s->name.end - s->name.at > LIMIT_FORMAT_NAME)
		return corrupt(s, entry.at, "invalid entry");
	if (has_name(s))
		return corrupt(s, s->name.at, "a feature appears twice");
	return value.at ? feature(s, value) : 0;
}

static int features(struct split *s, struct protobuf features)
{
	struct protobuf_field item;
	int r, result = 0;

	while (result == 0 && (r = protobuf_next(&features, &item)) != 0) {
		if (r < 0)
			return corrupt(s, features.at, "invalid features");
		if (item.number == FEATURES_ENTRY && item.wire == PROTOBUF_LENGTH)
			result = entry(s, item.bytes);
	}
	return result;
}

int example_split(const struct format_piece *piece, const unsigned char *data, size_t len,
	struct format_fields *out, struct penstock_error *err)
{
	struct split s = {.piece = piece, .out = out, .err = err};
	struct protobuf example = {data, data + len};
	struct protobuf_field item;
	int r, result = 0;

	while (result == 0 && (r = protobuf_next(&example, &item)) != 0) {
		if (r < 0)
			return corrupt(&s, example.at, "invalid field");
		if (item.number == EXAMPLE_FEATURES && item.wire == PROTOBUF_LENGTH)
			result = features(&s, item.bytes);
	}
	return result;
}
