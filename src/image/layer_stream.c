#include "image/layer_stream.h"

#include <stdlib.h>
#include <string.h>

#include "archive/ring.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "image/layer.h"

/* Largest window that a frame may use, as with `zstd --long=27`. */
#define ZSTD_WINDOW_LOG 27
/* Bytes of the previous input that are kept: at the end of a member the gzip decoder may give back
 * input that it has read too far. */
#define GZIP_HISTORY 16

int layer_stream_init(
	struct layer_stream *s, const struct layer_input *input, struct penstock_error *err)
{
	int r;

	*s = (struct layer_stream){.in = input->ring, .input = input, .error = PENSTOCK_ERROR_INIT};
	r = checksum_init(&s->hash, CHECKSUM_SHA256, err);
	if (r < 0)
		return r;
	s->out = malloc(LIMIT_IMAGE_BLOCK);
	return s->out ? 0 : error_memory(err);
}

void layer_stream_release(struct layer_stream *s)
{
	checksum_release(&s->hash);
	free(s->gzip);
	free(s->copy);
	ZSTD_freeDStream(s->zstd);
	free(s->out);
	penstock_error_release(&s->error);
}

/* Gets the next span of the ring and hashes it. Returns 0 at the end. */
static int refill(struct layer_stream *s)
{
	const char *p;
	ssize_t n;

	if (s->left > 0)
		return 1;
	if (s->span) {
		ring_read(s->in, s->span);
		if (s->input->drained)
			s->input->drained(s->input->source);
	}
	s->span = 0;
	if (s->ended)
		return 0;
	if (s->input->cancel && atomic_load_explicit(s->input->cancel, memory_order_relaxed))
		return error_set(&s->error, PENSTOCK_E_CANCELLED, "cancelled");
	n = ring_read_span(s->in, &p);
	if (n < 0)
		return error_set(&s->error, PENSTOCK_E_CANCELLED, "the source failed");
	s->ended = n == 0;
	if (n == 0)
		return 0;
	checksum_update(&s->hash, p, (size_t)n);
	s->left = s->span = (size_t)n;
	s->data = p;
	/* Append the span to the last bytes of the previous span: at the end of a member the
	 * decoder may return bytes of both spans. */
	if (s->kind == LAYER_GZIP) {
		memmove(s->copy, s->copy + s->copied, GZIP_HISTORY);
		memcpy(s->copy + GZIP_HISTORY, p, s->span);
		s->copied = s->span;
		s->data = s->copy + GZIP_HISTORY;
	}
	return 1;
}

static int begin(struct layer_stream *s)
{
	const unsigned char *p;
	const char *at;
	ssize_t n = ring_peek(s->in, &at);

	if (n < 0)
		return error_set(&s->error, PENSTOCK_E_CANCELLED, "the source failed");
	p = (const unsigned char *)at;
	s->kind = LAYER_PLAIN;
	s->whole = true;
	if (n >= 2 && p[0] == 0x1F && p[1] == 0x8B) {
		s->kind = LAYER_GZIP;
		s->gzip = malloc(sizeof(*s->gzip));
		s->copy = calloc(1, GZIP_HISTORY + LIMIT_IMAGE_QUEUE);
		if (!s->gzip || !s->copy)
			return error_memory(&s->error);
		isal_inflate_init(s->gzip);
		s->gzip->crc_flag = ISAL_GZIP;
		s->whole = false;
	} else if (n >= 4 && memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0) {
		s->kind = LAYER_ZSTD;
		s->zstd = ZSTD_createDStream();
		if (!s->zstd)
			return error_memory(&s->error);
		ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG);
		s->whole = false;
	}
	return 0;
}

static int damaged(struct layer_stream *s, const char *what)
{
	return error_set(&s->error, PENSTOCK_E_CORRUPT, "truncated or corrupt %s data", what);
}

/* Decompresses into s->out. Returns the number of bytes, 0 if more input is needed, or a negative
 * code on error. */
static ssize_t inflate_some(struct layer_stream *s)
{
	struct inflate_state *z = s->gzip;
	size_t made;
	int r;

	if (s->whole) {
		/* Zeros after a member are padding; anything else must be the next member. */
		while (s->left > 0 && *s->data == '\0') {
			s->data++;
			s->left--;
		}
		if (s->left == 0)
			return 0;
		isal_inflate_reset(z);
		z->crc_flag = ISAL_GZIP;
		s->whole = false;
	}
	z->next_in = (uint8_t *)(uintptr_t)s->data;
	z->avail_in = (uint32_t)s->left;
	z->next_out = (uint8_t *)s->out;
	z->avail_out = (uint32_t)LIMIT_IMAGE_BLOCK;
	r = isal_inflate(z);
	made = LIMIT_IMAGE_BLOCK - z->avail_out;
	s->data = (const char *)z->next_in;
	s->left = z->avail_in;
	if (r < 0)
		return damaged(s, "gzip");
	s->whole = z->block_state == ISAL_BLOCK_FINISH;
	return (ssize_t)made;
}

static ssize_t unzstd_some(struct layer_stream *s)
{
	ZSTD_inBuffer in = {s->data, s->left, 0};
	ZSTD_outBuffer out = {s->out, LIMIT_IMAGE_BLOCK, 0};
	size_t r = ZSTD_decompressStream(s->zstd, &out, &in);

	s->data += in.pos;
	s->left -= in.pos;
	if (ZSTD_isError(r))
		return damaged(s, "zstd");
	s->whole = r == 0;
	return (ssize_t)out.pos;
}

ssize_t layer_stream_read(struct layer_stream *s, const char **p)
{
	bool more = true; /* the decoder may hold output that did not fit into s->out */

	if (s->kind == LAYER_UNKNOWN && begin(s) < 0)
		return -1;
	for (;;) {
		int r = refill(s);
		ssize_t n;

		if (r < 0)
			return -1;
		if (s->kind == LAYER_PLAIN) {
			n = (ssize_t)s->left;
			*p = s->data;
			s->left = 0;
			return n;
		}
		if (r == 0 && s->whole)
			return 0;
		if (r == 0 && !more)
			return damaged(s, s->kind == LAYER_GZIP ? "gzip" : "zstd") < 0 ? -1 : 0;
		n = s->kind == LAYER_GZIP ? inflate_some(s) : unzstd_some(s);
		if (n < 0)
			return -1;
		*p = s->out;
		if (n > 0)
			return n;
		more = r > 0;
	}
}

int layer_stream_verify(struct layer_stream *s, const char *digest, struct penstock_error *err)
{
	uint8_t raw[CHECKSUM_MAX_SIZE];
	char text[2 * CHECKSUM_MAX_SIZE + 1];

	checksum_final(&s->hash, raw);
	str_hex(raw, 32, text);
	if (s->hash.failed)
		return error_memory(err);
	if (strcmp(text, digest + strlen("sha256:")) == 0)
		return 0;
	return error_set(err, PENSTOCK_E_CORRUPT,
		"digest mismatch: expected %.19s…, received sha256:%.12s…", digest, text);
}
