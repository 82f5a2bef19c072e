/* Puts received bytes into place, and verifies them. */
#include <string.h>

#include "transfer/reads/internal.h"

void flight_add(struct flight *f, const void *data, size_t len)
{
	if (f->read->data)
		memcpy((char *)f->read->data + f->at, data, len);
	else
		read_pieces_add(&f->read->pieces, f->at, data, len);
	f->at += len;
	checksum_update(&f->sum, data, len);
}

bool flight_is_good(struct flight *f)
{
	uint8_t got[CHECKSUM_MAX_SIZE];

	checksum_final(&f->sum, got);
	return f->at == f->read->length && memcmp(got, f->digest, checksum_size(f->sum.kind)) == 0;
}
