/* The compression around an archive: from one ring into another, on the calling thread. */
#ifndef ARCHIVE_DECODE_H
#define ARCHIVE_DECODE_H

#include <stdatomic.h>

#include "archive/detect.h"

struct ring;
struct penstock_error;

/*
 * Decodes all of `in` into `out`, closes `out` at the verified end and breaks it on failure. The
 * message says how far it got. A refusal of `out` is a failure without a message of its own.
 */
int decode_stream(enum archive_kind kind, struct ring *in, struct ring *out,
	const atomic_int *cancel, struct penstock_error *err);

/*
 * The file name stored in the gzip header at `data`, as far as it lies within `len`; free() it.
 * NULL: none.
 */
char *decode_gzip_name(const void *data, size_t len);

#endif
