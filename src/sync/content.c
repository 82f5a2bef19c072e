#include "sync/content.h"

#include <errno.h>
#include <stdlib.h>
#include <isa-l/crc64.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"

#define READ_STEP (1 * MIB)

int content_crc64(
	const atomic_int *cancel, int fd, uint64_t size, uint64_t *crc, struct penstock_error *err)
{
	_cleanup_free_ unsigned char *block = malloc(READ_STEP);
	uint64_t sum = 0;

	if (!block)
		return error_memory(err);
	for (uint64_t at = 0; at < size;) {
		size_t want = size - at < READ_STEP ? (size_t)(size - at) : READ_STEP;
		ssize_t n = fs_pread_all(fd, block, want, (off_t)at);

		if (n < 0)
			return error_errno(err, errno, "cannot read the file");
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED, "the file became shorter");
		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		sum = crc64_ecma_refl(sum, block, want);
		at += want;
	}
	*crc = sum;
	return 0;
}
