/* Copies memory with several threads, for penstock._memory. */
#ifndef PENSTOCK_PYTHON_COPY_H
#define PENSTOCK_PYTHON_COPY_H

#include <stddef.h>

struct copy_piece {
	void *to;
	const void *from;
	size_t size;
};

/*
 * Copies every piece; the pieces of one call must not overlap. Uses at most `threads` threads, the
 * caller included, and only the caller if no thread can be started. All threads have finished when
 * the call returns.
 */
void copy_pieces(const struct copy_piece *pieces, size_t n, unsigned threads);

#endif
