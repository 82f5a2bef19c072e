/* JPEG images; the first two bytes give the size of the result. */
#include "fuzz.h"

#include "dataset/jpeg/jpeg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ uint8_t *pixels = NULL, *again = NULL;
	_cleanup_free_ char *copy = NULL;
	struct jpeg_size to;
	size_t n;
	int r;

	if (size < 2)
		return 0;
	to = (struct jpeg_size){.height = data[0] + 1, .width = data[1] + 1};
	n = jpeg_bytes(&to);
	copy = fuzz_bytes(data + 2, size - 2);
	pixels = malloc(n);
	again = malloc(n);
	require(pixels && again);
	memset(pixels, 0, n);
	memset(again, 255, n);
	r = jpeg_decode(copy, size - 2, &to, pixels, &err);
	require_error(r, &err);
	if (r < 0)
		return 0;
	require(jpeg_is(copy, size - 2));
	/* The decoder writes every byte of the result: two buffers with different content become
	 * equal. */
	require(jpeg_decode(copy, size - 2, &to, again, NULL) == 0);
	require(memcmp(pixels, again, n) == 0);
	return 0;
}
