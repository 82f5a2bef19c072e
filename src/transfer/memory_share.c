#include "transfer/memory_share.h"

#include <stdatomic.h>

#include "base/limits.h"
#include "base/banned.h"

static atomic_size_t taken;

unsigned memory_share_take(unsigned wanted, size_t piece)
{
	unsigned n = 1;

	atomic_fetch_add(&taken, piece);
	while (n < wanted) {
		size_t now = atomic_load(&taken);

		if (now + piece > LIMIT_STREAM_MEMORY)
			break;
		n += atomic_compare_exchange_weak(&taken, &now, now + piece);
	}
	return n;
}

void memory_share_give(unsigned n, size_t piece)
{
	atomic_fetch_sub(&taken, n * piece);
}

size_t memory_share_taken(void)
{
	return atomic_load(&taken);
}
