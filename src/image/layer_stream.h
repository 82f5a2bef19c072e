/* The bytes of a tar out of those of a layer: hashed as they come, and decompressed. One thread's. */
#ifndef IMAGE_LAYER_STREAM_H
#define IMAGE_LAYER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include "s3/checksum.h"

#include <penstock/error.h>

struct layer_input;
struct ring;

enum layer_kind { LAYER_UNKNOWN, LAYER_PLAIN, LAYER_GZIP, LAYER_ZSTD };

struct layer_stream {
	struct ring *in;
	const struct layer_input *input;
	enum layer_kind kind;
	struct checksum hash;
	const char *data; /* what is left of the span lent by the ring */
	size_t left;
	size_t span; /* of the ring, to be given back */
	bool ended;  /* nothing more comes */
	bool broken; /* the ring's writer gave up */
	bool whole;  /* the decoder is at the end of a frame */
	struct inflate_state *gzip;
	char *copy;    /* of gzip: the end of the span before, and this one */
	size_t copied; /* bytes of this one */
	ZSTD_DStream *zstd;
	char *out;
	struct penstock_error error; /* of the last read that failed */
};

/* `input` is borrowed. */
int layer_stream_init(
	struct layer_stream *s, const struct layer_input *input, struct penstock_error *err);
void layer_stream_release(struct layer_stream *s);
/* The next bytes, valid until the next call. 0: the end. -1: `error`. */
ssize_t layer_stream_read(struct layer_stream *s, const char **p);
/* Once all was read: whether what came is what `digest` ("sha256:…") says. */
int layer_stream_verify(struct layer_stream *s, const char *digest, struct penstock_error *err);

#endif
