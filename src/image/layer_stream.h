/*
 * The tar inside a layer: hashes the layer's bytes as they arrive and decompresses them. Used by
 * one thread.
 */
#ifndef IMAGE_LAYER_STREAM_H
#define IMAGE_LAYER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include "s3/sum/checksum.h"

#include <penstock/error.h>

struct layer_input;
struct ring;

enum layer_kind { LAYER_UNKNOWN, LAYER_PLAIN, LAYER_GZIP, LAYER_ZSTD };

struct layer_stream {
	struct ring *in;
	const struct layer_input *input;
	enum layer_kind kind;
	struct checksum hash;
	const char *data; /* unread bytes of the current span, in the ring or in `copy` */
	size_t left;
	size_t span; /* bytes of the current span, not yet marked as read in the ring */
	bool ended; /* end of input */
	bool whole; /* the decoder is at the end of a frame */
	struct inflate_state *gzip;
	char *copy; /* gzip only: the end of the previous span, then the current span */
	size_t copied; /* length of the current span */
	ZSTD_DStream *zstd;
	char *out;
	struct penstock_error error; /* error of the last failed read */
};

/* `input` is borrowed. */
int layer_stream_init(
	struct layer_stream *s, const struct layer_input *input, struct penstock_error *err);
void layer_stream_release(struct layer_stream *s);
/* Returns the next bytes, valid until the next call; 0 at the end; -1 on failure, with `error`
 * set. */
ssize_t layer_stream_read(struct layer_stream *s, const char **p);
/* Called after the last read. Fails if the bytes received do not match `digest` ("sha256:…"). */
int layer_stream_verify(struct layer_stream *s, const char *digest, struct penstock_error *err);

#endif
