/* Event files of TensorBoard: TFRecords of tensorflow.Event (tensorflow/core/util/event.proto). */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/format/protobuf.h"
#include "dataset/format/tfrecord.h"
#include "metrics/internal.h"

/* Field numbers. */
enum {
	EVENT_WALL_TIME = 1,
	EVENT_STEP = 2,
	EVENT_SUMMARY = 5,
	SUMMARY_VALUE = 1,
	VALUE_TAG = 1,
	VALUE_SIMPLE = 2,
	VALUE_TENSOR = 8,
	TENSOR_DTYPE = 1,
	TENSOR_SHAPE = 2,
	TENSOR_CONTENT = 4,
	TENSOR_FLOATS = 5,
	TENSOR_DOUBLES = 6,
	TENSOR_INTEGERS = 7,
	TENSOR_LONGS = 10,
};
/* Types of tensors (tensorflow/core/framework/types.proto). */
enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_INT32 = 3, DT_INT64 = 9, DT_BFLOAT16 = 14 };

static double le_float(const unsigned char *p)
{
	uint32_t bits;
	float value;

	memcpy(&bits, p, sizeof(bits));
	bits = le32toh(bits);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double le_double(const unsigned char *p)
{
	uint64_t bits;
	double value;

	memcpy(&bits, p, sizeof(bits));
	bits = le64toh(bits);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double le_bfloat(const unsigned char *p)
{
	return le_float((const unsigned char[]){0, 0, p[0], p[1]});
}

static bool from_content(uint64_t dtype, const struct protobuf *content, double *out)
{
	const unsigned char *p = content->at;
	size_t size = protobuf_size(content);

	if (dtype == DT_FLOAT && size == 4)
		*out = le_float(p);
	else if (dtype == DT_DOUBLE && size == 8)
		*out = le_double(p);
	else if (dtype == DT_BFLOAT16 && size == 2)
		*out = le_bfloat(p);
	else if (dtype == DT_INT32 && size == 4)
		*out = (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
				 (uint32_t)p[3] << 24);
	else if (dtype == DT_INT64 && size == 8) {
		uint64_t bits;

		memcpy(&bits, p, sizeof(bits));
		*out = (double)(int64_t)le64toh(bits);
	} else {
		return false;
	}
	return true;
}

/* Reads a list of exactly one value, packed or not. Returns false for any other list. */
static bool from_list(const struct protobuf_field *field, double *out)
{
	struct protobuf list = field->bytes;
	uint64_t value = field->varint;

	switch (field->number) {
	case TENSOR_FLOATS:
		if (field->wire == PROTOBUF_VARINT || protobuf_size(&list) != 4)
			return false;
		*out = le_float(list.at);
		return true;
	case TENSOR_DOUBLES:
		if (field->wire == PROTOBUF_VARINT || protobuf_size(&list) != 8)
			return false;
		*out = le_double(list.at);
		return true;
	default:
		if (field->wire != PROTOBUF_VARINT &&
			(field->wire != PROTOBUF_LENGTH || !protobuf_varint(&list, &value) ||
				list.at != list.end))
			return false;
		*out = (double)(int64_t)value;
		return true;
	}
}

/* Reads a tensor without dimensions. Returns 1 on success, 0 for any other tensor, or -1 if the
 * tensor is invalid. */
static int scalar(struct protobuf tensor, double *out)
{
	struct protobuf content = {NULL, NULL};
	struct protobuf_field field;
	uint64_t dtype = 0;
	bool found = false;
	int r;

	while ((r = protobuf_next(&tensor, &field)) > 0) {
		switch (field.number) {
		case TENSOR_DTYPE:
			dtype = field.varint;
			break;
		case TENSOR_SHAPE:
			if (protobuf_size(&field.bytes))
				return 0;
			break;
		case TENSOR_CONTENT:
			content = field.bytes;
			break;
		case TENSOR_FLOATS:
		case TENSOR_DOUBLES:
		case TENSOR_INTEGERS:
		case TENSOR_LONGS:
			found = from_list(&field, out);
			break;
		default:
			break;
		}
	}
	if (r == 0 && protobuf_size(&content))
		found = from_content(dtype, &content, out);
	return r < 0 ? -1 : found;
}

/* Gets tag and number of a value. Returns 1, 0 if either is missing, -1 if the value is invalid. */
static int read_value(struct protobuf value, struct protobuf *tag, double *out)
{
	struct protobuf_field field;
	int found = 0, r;

	*tag = (struct protobuf){NULL, NULL};
	while ((r = protobuf_next(&value, &field)) > 0) {
		if (field.number == VALUE_TAG && field.wire == PROTOBUF_LENGTH) {
			*tag = field.bytes;
		} else if (field.number == VALUE_SIMPLE && field.wire == PROTOBUF_FIXED32) {
			*out = le_float(field.bytes.at);
			found = 1;
		} else if (field.number == VALUE_TENSOR && field.wire == PROTOBUF_LENGTH) {
			found = scalar(field.bytes, out);
			if (found < 0)
				return -1;
		}
	}
	return r < 0 ? -1 : found && tag->at;
}

static int add_summary(struct metrics_feed *feed, struct protobuf summary,
	struct metrics_point *point, bool *invalid, struct penstock_error *err)
{
	struct protobuf_field field;
	struct protobuf tag;
	int found, r = 0, more;

	while (r == 0 && (more = protobuf_next(&summary, &field)) != 0) {
		_cleanup_free_ char *name = NULL;

		found = more < 0 ? -1
			: field.number == SUMMARY_VALUE && field.wire == PROTOBUF_LENGTH
				? read_value(field.bytes, &tag, &point->value)
				: 0;
		if (found < 0) {
			*invalid = true;
			return 0;
		}
		if (!found)
			continue;
		name = strndup((const char *)tag.at, protobuf_size(&tag));
		r = name ? metrics_feed_point(feed, name, point, err) : error_memory(err);
	}
	return r;
}

static int add_event(struct metrics_feed *feed, struct protobuf event, uint64_t offset,
	struct penstock_error *err)
{
	struct metrics_point point = {.step = 0};
	struct protobuf summary = {NULL, NULL};
	struct protobuf_field field;
	bool invalid = false;
	int r;

	while ((r = protobuf_next(&event, &field)) > 0) {
		if (field.number == EVENT_WALL_TIME && field.wire == PROTOBUF_FIXED64)
			point.time_ms = metrics_time_ms(le_double(field.bytes.at), 1000);
		else if (field.number == EVENT_STEP && field.wire == PROTOBUF_VARINT)
			point.step = (int64_t)field.varint;
		else if (field.number == EVENT_SUMMARY && field.wire == PROTOBUF_LENGTH)
			summary = field.bytes;
	}
	invalid = r < 0 || point.step == METRICS_NO_STEP;
	r = invalid || !summary.at ? 0 : add_summary(feed, summary, &point, &invalid, err);
	if (invalid)
		metrics_problem(feed, offset, "the record is not an event");
	return r;
}

static ssize_t take(struct metrics_feed *feed, const char *data, size_t len, bool end,
	struct penstock_error *err)
{
	size_t at = 0;

	(void)end;
	while (len - at >= TFRECORD_HEAD) {
		const unsigned char *head = (const unsigned char *)data + at;
		const unsigned char *body = head + TFRECORD_HEAD;
		uint64_t size = tfrecord_size(head), whole = size + TFRECORD_HEAD + TFRECORD_TAIL;
		int r;

		if (!tfrecord_is_head(head) || size > INT64_MAX) {
			metrics_problem(feed, feed->offset + at,
				"the length of a record has a wrong checksum");
			feed->over = true;
			break;
		}
		if (size > LIMIT_METRICS_RECORD) {
			uint64_t rest = len - at;

			feed->skip = whole > rest ? whole - rest : 0;
			at += whole > rest ? rest : whole;
			continue;
		}
		if (whole > len - at)
			break;
		if (!tfrecord_is_content(body, size)) {
			metrics_problem(feed, feed->offset + at, "a record has a wrong checksum");
		} else {
			struct protobuf event = {body, body + size};

			r = add_event(feed, event, feed->offset + at, err);
			if (r < 0)
				return r;
		}
		at += whole;
	}
	return (ssize_t)at;
}

const struct metrics_format metrics_events = {.take = take};
