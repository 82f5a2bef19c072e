/*
 * Decodes JPEG images to pixels of one size, as training code expects them.
 *
 *	const struct jpeg_size size = {.height = 224, .width = 224};
 *	uint8_t *pixels = malloc(jpeg_bytes(&size));
 *
 *	if (jpeg_decode(bytes, n, &size, pixels, err) < 0)
 *		return -err->code;
 *	... the red of row y, column x is pixels[3 * (y * size.width + x)]
 *
 * The pixels are RGB, row by row. The largest centred rectangle with the aspect ratio of the result
 * is cut from the image, and scaled in two steps. First the inverse DCT may scale to 1/2, 1/4 or
 * 1/8: to the smallest size that is not smaller than the result. Then a triangle filter scales to
 * the size of the result. To each side, the filter reaches as far as the distance between two
 * pixels of the result, but at least one pixel, so that an enlargement is bilinear. Grey becomes
 * RGB of three equal values. CMYK and YCCK are assumed to be inverted, as Adobe's programs write
 * them; a colour profile is ignored. The orientation in EXIF is not applied.
 *
 * The input is untrusted. Decoding fails with PENSTOCK_E_CORRUPT if the image is damaged, and with
 * PENSTOCK_E_LIMIT if it has more than LIMIT_JPEG_PIXELS or LIMIT_JPEG_SCANS. Nothing is kept
 * between calls; any number of threads may decode.
 */
#ifndef DATASET_JPEG_JPEG_H
#define DATASET_JPEG_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;

/* Pixels of the result: 1 to LIMIT_JPEG_SIDE each. */
struct jpeg_size {
	uint32_t height, width;
};

/* Returns the size of the result in bytes. */
size_t jpeg_bytes(const struct jpeg_size *size);
/* Returns true if the bytes begin like a JPEG image. */
bool jpeg_is(const void *data, size_t len);
/* Sets all of `pixels` unless the image cannot be decoded. */
int jpeg_decode(const void *data, size_t len, const struct jpeg_size *size, uint8_t *pixels,
	struct penstock_error *err);

#endif
