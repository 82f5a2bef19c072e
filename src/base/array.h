/* Arrays that grow by doubling. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stdlib.h>

#define ARRAY_FIRST 16

/* Makes room in `items`, which has `n` items of `size` bytes, for one more. The capacity follows
 * from `n`, so add items only after a call to this function. Returns the array, which may have
 * moved; NULL, with `items` as it was, if out of memory. */
static inline void *array_grow(void *items, size_t n, size_t size)
{
	if (n && (n < ARRAY_FIRST || (n & (n - 1))))
		return items;
	return reallocarray(items, n ? 2 * n : ARRAY_FIRST, size);
}

#endif
