/* Memory copied by several threads; penstock._memory says which. */
#ifndef PENSTOCK_PYTHON_COPY_H
#define PENSTOCK_PYTHON_COPY_H

#include <stddef.h>

struct copy_piece {
	void *to;
	const void *from;
	size_t size;
};

/*
 * Copies every piece; those of one call must not overlap. At most `threads` work at it, the caller among them; where none can be
 * started it does all of it. When this returns, none of them touches anything any more.
 */
void copy_pieces(const struct copy_piece *pieces, size_t n, unsigned threads);

#endif
