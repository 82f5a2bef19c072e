/* Distributes the bytes of a read to several places. */
#include <string.h>

#include "transfer/reads.h"

void read_pieces_add(struct read_pieces *pieces, uint64_t at, const void *data, size_t len)
{
	uint64_t end = at + len;

	if (at == 0)
		pieces->next = 0;
	for (size_t i = pieces->next; i < pieces->n && pieces->items[i].at < end; i++) {
		const struct read_piece *p = &pieces->items[i];
		uint64_t p_end = p->at + p->length;
		uint64_t from = p->at > at ? p->at : at, to = p_end < end ? p_end : end;

		if (from < to)
			memcpy((char *)p->to + (from - p->at), (const char *)data + (from - at),
				(size_t)(to - from));
		if (i == pieces->next && p_end <= end)
			pieces->next++;
	}
}
