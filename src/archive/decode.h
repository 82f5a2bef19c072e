/* Decompresses an archive: from one ring into another, on the calling thread. */
#ifndef ARCHIVE_DECODE_H
#define ARCHIVE_DECODE_H

#include <stdatomic.h>

#include "archive/detect.h"

struct ring;
struct penstock_error;

/* Decodes all of `in` into `out`. Closes `out` once the end of the data is verified, or breaks
 * `out` on failure. The message about damaged data has the offset in bytes. Fails with
 * PENSTOCK_E_CANCELLED if the writer of `in` failed or the reader of `out` refuses. */
int decode_stream(enum archive_kind kind, struct ring *in, struct ring *out,
	const atomic_int *cancel, struct penstock_error *err);

/* Fails with PENSTOCK_E_CANCELLED if `*cancel` is set; `cancel` may be NULL. */
int decode_check_cancel(const atomic_int *cancel, struct penstock_error *err);

/* Returns the file name in the gzip header at `data`; free() it. NULL if the name is missing or
 * does not end within `len` bytes. */
char *decode_gzip_name(const void *data, size_t len);

#endif
