#include "store/internal.h"

#include <endian.h>
#include <string.h>

/*
 * A layout has a version byte, the number of parts and of pieces (32 bits each), the parts (number
 * 32 bits, size 64, length of etag 8, etag, length of checksum 8, checksum), then the pieces (blob,
 * offset and length, 64 bits each). Numbers are little endian.
 */
#define LAYOUT_VERSION 1

static void put32(struct buf *out, uint32_t v)
{
	v = htole32(v);
	buf_add(out, &v, sizeof(v));
}

static void put64(struct buf *out, uint64_t v)
{
	v = htole64(v);
	buf_add(out, &v, sizeof(v));
}

static void put_text(struct buf *out, const char *text)
{
	size_t len = strlen(text);

	buf_add_char(out, (char)len);
	buf_add(out, text, len);
}

int layout_encode(struct buf *out, const struct store_part *parts, size_t n_parts,
	const struct store_piece *pieces, size_t n_pieces)
{
	buf_add_char(out, LAYOUT_VERSION);
	put32(out, (uint32_t)n_parts);
	put32(out, (uint32_t)n_pieces);
	for (size_t i = 0; i < n_parts; i++) {
		put32(out, parts[i].number);
		put64(out, parts[i].size);
		put_text(out, parts[i].etag);
		put_text(out, parts[i].checksum);
	}
	for (size_t i = 0; i < n_pieces; i++) {
		put64(out, pieces[i].blob);
		put64(out, pieces[i].offset);
		put64(out, pieces[i].length);
	}
	return buf_failed(out) ? -1 : 0;
}

struct cursor {
	const unsigned char *p;
	size_t left;
	bool bad;
};

static const void *take(struct cursor *c, size_t n)
{
	const void *at = c->p;

	if (c->bad || c->left < n) {
		c->bad = true;
		return NULL;
	}
	c->p += n;
	c->left -= n;
	return at;
}

static uint32_t take32(struct cursor *c)
{
	uint32_t v = 0;
	const void *at = take(c, sizeof(v));

	if (at)
		memcpy(&v, at, sizeof(v));
	return le32toh(v);
}

static uint64_t take64(struct cursor *c)
{
	uint64_t v = 0;
	const void *at = take(c, sizeof(v));

	if (at)
		memcpy(&v, at, sizeof(v));
	return le64toh(v);
}

static void take_text(struct cursor *c, char *out, size_t size)
{
	const unsigned char *len = take(c, 1);
	const void *text = len ? take(c, *len) : NULL;

	if (!text || *len >= size) {
		c->bad = true;
		return;
	}
	memcpy(out, text, *len);
	out[*len] = '\0';
}

int layout_decode(const void *data, size_t len, struct store_part *parts, size_t *n_parts,
	struct store_piece *pieces, size_t *n_pieces)
{
	struct cursor c = {.p = data, .left = len};
	const unsigned char *version = take(&c, 1);
	uint32_t np, nq;

	if (!version || *version != LAYOUT_VERSION)
		return -1;
	np = take32(&c);
	nq = take32(&c);
	/* A part takes at least 14 bytes and a piece 24, so the counts are bounded by the
	 * length. */
	if (c.bad || (uint64_t)np * 14 + (uint64_t)nq * 24 > c.left)
		return -1;
	*n_parts = np;
	*n_pieces = nq;
	for (size_t i = 0; i < np && !c.bad; i++) {
		struct store_part part = {.number = take32(&c), .size = 0};

		part.size = take64(&c);
		take_text(&c, part.etag, sizeof(part.etag));
		take_text(&c, part.checksum, sizeof(part.checksum));
		if (parts)
			parts[i] = part;
	}
	for (size_t i = 0; i < nq && !c.bad; i++) {
		struct store_piece piece = {.blob = take64(&c)};

		piece.offset = take64(&c);
		piece.length = take64(&c);
		if (pieces)
			pieces[i] = piece;
	}
	return c.bad || c.left ? -1 : 0;
}
