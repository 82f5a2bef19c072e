#include "s3/sum/xxh.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

union state {
	XXH64_state_t xxh64;
	XXH3_state_t xxh3; /* for 64 and 128 bits */
};

void *xxh_new(enum checksum_kind kind)
{
	union state *state = aligned_alloc(_Alignof(union state), sizeof(*state));

	if (state)
		xxh_reset(kind, state);
	return state;
}

void xxh_reset(enum checksum_kind kind, void *state)
{
	union state *s = state;

	if (kind == CHECKSUM_XXHASH64)
		XXH64_reset(&s->xxh64, 0);
	else if (kind == CHECKSUM_XXHASH3)
		XXH3_64bits_reset(&s->xxh3);
	else
		XXH3_128bits_reset(&s->xxh3);
}

void xxh_update(enum checksum_kind kind, void *state, const void *data, size_t len)
{
	union state *s = state;

	if (kind == CHECKSUM_XXHASH64)
		XXH64_update(&s->xxh64, data, len);
	else if (kind == CHECKSUM_XXHASH3)
		XXH3_64bits_update(&s->xxh3, data, len);
	else
		XXH3_128bits_update(&s->xxh3, data, len);
}

void xxh_final(enum checksum_kind kind, const void *state, uint8_t *digest)
{
	const union state *s = state;

	if (kind == CHECKSUM_XXHASH128) {
		XXH128_canonical_t wire;

		XXH128_canonicalFromHash(&wire, XXH3_128bits_digest(&s->xxh3));
		memcpy(digest, wire.digest, sizeof(wire.digest));
	} else {
		XXH64_canonical_t wire;

		XXH64_canonicalFromHash(&wire, kind == CHECKSUM_XXHASH64
						       ? XXH64_digest(&s->xxh64)
						       : XXH3_64bits_digest(&s->xxh3));
		memcpy(digest, wire.digest, sizeof(wire.digest));
	}
}
