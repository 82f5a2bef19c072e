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
 * The pixels are RGB, row by row. The largest centred rectangle with the shape of the result is cut
 * from the image, and scaled: by the inverse DCT, to 1/2, 1/4 or 1/8 while that is not smaller than
 * the result, and then by a triangle filter. To each side, the filter reaches as far as the step
 * between two pixels of the result, at least one pixel (an enlargement is bilinear). Grey becomes
 * RGB of three equal values. CMYK and YCCK are taken as inverted, as Adobe's programs write them,
 * without a colour profile. The orientation in EXIF is not applied.
 *
 * The input is untrusted. A damaged image is PENSTOCK_E_CORRUPT. An image of more than
 * LIMIT_JPEG_PIXELS or LIMIT_JPEG_SCANS is PENSTOCK_E_LIMIT. Nothing is kept between calls; any
 * number of threads may decode.
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

/* Returns the bytes of the result. */
size_t jpeg_bytes(const struct jpeg_size *size);
/* Returns true if the bytes begin like a JPEG image. */
bool jpeg_is(const void *data, size_t len);
/* Sets all of `pixels` unless the image cannot be decoded. */
int jpeg_decode(const void *data, size_t len, const struct jpeg_size *size, uint8_t *pixels,
	struct penstock_error *err);

#endif
