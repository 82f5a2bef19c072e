#include "dataset/format/protobuf.h"

bool protobuf_varint(struct protobuf *m, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
		unsigned char c = *m->at++;

		*out |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			return true;
	}
	return false;
}

static bool take(struct protobuf *m, uint64_t len, struct protobuf *out)
{
	if (len > (uint64_t)(m->end - m->at))
		return false;
	out->at = m->at;
	m->at += len;
	out->end = m->at;
	return true;
}

int protobuf_next(struct protobuf *m, struct protobuf_field *out)
{
	uint64_t tag, len = 8;
	bool good;

	if (m->at == m->end)
		return 0;
	if (!protobuf_varint(m, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3)
		return -1;
	out->number = (uint32_t)(tag >> 3);
	out->wire = (enum protobuf_wire)(tag & 7);
	out->varint = 0;
	out->bytes = (struct protobuf){NULL, NULL};
	switch (out->wire) {
	case PROTOBUF_VARINT:
		good = protobuf_varint(m, &out->varint);
		break;
	case PROTOBUF_LENGTH:
		good = protobuf_varint(m, &len) && take(m, len, &out->bytes);
		break;
	case PROTOBUF_FIXED64:
		good = take(m, 8, &out->bytes);
		break;
	case PROTOBUF_FIXED32:
		good = take(m, 4, &out->bytes);
		break;
	default:
		good = false;
	}
	return good ? 1 : -1;
}
