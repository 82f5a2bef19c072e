/*
 * Resizes rows of RGB pixels, one axis after the other, by a triangle filter.
 *
 *	struct resize_axis across = {0}, down = {0};
 *
 *	// Columns 10 to 209 of 220, and all of 100 rows, become 64 columns and 32 rows.
 *	if (resize_axis_init(&across, 220, 10, 210, 64) &&
 *		resize_axis_init(&down, 100, 0, 100, 32)) {
 *		for (size_t y = down.from; y < down.to; y++)
 *			resize_row(&across, row[y], kept + (y - down.from) * 64 * 3);
 *		resize_columns(&down, kept, 64 * 3, sums, out);
 *	}
 *	resize_axis_release(&across);
 *	resize_axis_release(&down);
 *
 * Coordinates are pixels; pixel i covers i to i + 1.
 */
#ifndef DATASET_JPEG_RESIZE_H
#define DATASET_JPEG_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For each pixel of the result along one axis, the pixels of which it is the weighted mean. */
struct resize_axis {
	size_t n; /* pixels of the result */
	size_t from, to; /* pixels that are used, from `from` to `to` - 1 */
	struct resize_span {
		uint32_t first, n;
	} * spans;
	/* `most` weights for each pixel of the result; the sum of the weights of one pixel is
	 * RESIZE_ONE. */
	int32_t *weights;
	size_t most;
};

#define RESIZE_ONE (1 << 14)

/* The part from `begin` to `end` of `all` pixels becomes `n`. Returns false if out of memory. */
bool resize_axis_init(struct resize_axis *axis, size_t all, double begin, double end, size_t n);
void resize_axis_release(struct resize_axis *axis);

/* Resizes one row of `all` pixels to `n`. */
void resize_row(const struct resize_axis *axis, const uint8_t *row, uint8_t *out);
/* Resizes the rows of `width` bytes, of which the first is number `from` of the axis. `sums` has
 * room for one row. */
void resize_columns(const struct resize_axis *axis, const uint8_t *rows, size_t width,
	int32_t *sums, uint8_t *out);

#endif
