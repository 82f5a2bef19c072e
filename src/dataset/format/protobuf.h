/*
 * Reads the fields of a Protocol Buffers message, one after the other:
 *
 *	struct protobuf message = {data, data + len};
 *	struct protobuf_field field;
 *	int r;
 *
 *	while ((r = protobuf_next(&message, &field)) > 0)
 *		if (field.number == 1 && field.wire == PROTOBUF_VARINT)
 *			step = field.varint;
 *	if (r < 0)
 *		return corrupt;
 *
 * Source: protobuf.dev, "Encoding". Groups are invalid. Nothing is copied or allocated.
 */
#ifndef DATASET_FORMAT_PROTOBUF_H
#define DATASET_FORMAT_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum protobuf_wire {
	PROTOBUF_VARINT = 0,
	PROTOBUF_FIXED64 = 1,
	PROTOBUF_LENGTH = 2,
	PROTOBUF_FIXED32 = 5
};

struct protobuf {
	const unsigned char *at, *end;
};

struct protobuf_field {
	uint32_t number;
	enum protobuf_wire wire;
	uint64_t varint; /* value of a PROTOBUF_VARINT */
	struct protobuf bytes; /* value of other types; empty for PROTOBUF_VARINT */
};

static inline size_t protobuf_size(const struct protobuf *m)
{
	return (size_t)(m->end - m->at);
}

/* Gets the next field. Returns 1, 0 at the end, or -1 if the message is invalid. */
int protobuf_next(struct protobuf *m, struct protobuf_field *out);
/* Takes the next number of a packed list. Returns false if the number is invalid. */
bool protobuf_varint(struct protobuf *m, uint64_t *out);

#endif
