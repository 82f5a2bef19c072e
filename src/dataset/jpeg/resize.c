#include "dataset/jpeg/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HALF (RESIZE_ONE / 2)

/* Sets the weights of one pixel, whose centre is `centre`. Rounds the running sum rather than each
 * weight, so that the sum of all weights is exact. */
static void set_span(struct resize_axis *axis, size_t all, size_t i, double centre, double reach)
{
	double first = ceil(centre - reach - 0.5), last = floor(centre + reach - 0.5), sum = 0;
	int32_t *weights = axis->weights + i * axis->most;
	struct resize_span *span = &axis->spans[i];
	int32_t before = 0;
	double part = 0;

	span->first = first > 0 ? (uint32_t)first : 0;
	if (last > (double)all - 1)
		last = (double)all - 1;
	span->n = (uint32_t)last - span->first + 1;
	for (uint32_t k = 0; k < span->n; k++)
		sum += reach - fabs(span->first + k + 0.5 - centre);
	for (uint32_t k = 0; k < span->n; k++) {
		int32_t now;

		part += (reach - fabs(span->first + k + 0.5 - centre)) / sum;
		now = (int32_t)lround(part * RESIZE_ONE);
		weights[k] = now - before;
		before = now;
	}
}

bool resize_axis_init(struct resize_axis *axis, size_t all, double begin, double end, size_t n)
{
	double step = (end - begin) / (double)n;
	double reach = step > 1 ? step : 1;

	axis->n = n;
	axis->most = (size_t)(2 * reach) + 2;
	axis->spans = calloc(n, sizeof(*axis->spans));
	axis->weights = calloc(n * axis->most, sizeof(*axis->weights));
	if (!axis->spans || !axis->weights)
		return false;
	for (size_t i = 0; i < n; i++)
		set_span(axis, all, i, begin + ((double)i + 0.5) * step, reach);
	axis->from = axis->spans[0].first;
	axis->to = axis->spans[n - 1].first + axis->spans[n - 1].n;
	return true;
}

void resize_axis_release(struct resize_axis *axis)
{
	free(axis->spans);
	free(axis->weights);
}

void resize_row(const struct resize_axis *axis, const uint8_t *row, uint8_t *out)
{
	for (size_t i = 0; i < axis->n; i++, out += 3) {
		const uint8_t *p = row + (size_t)3 * axis->spans[i].first;
		const int32_t *w = axis->weights + i * axis->most;
		int32_t r = HALF, g = HALF, b = HALF;

		for (uint32_t k = 0; k < axis->spans[i].n; k++, p += 3) {
			r += w[k] * p[0];
			g += w[k] * p[1];
			b += w[k] * p[2];
		}
		out[0] = (uint8_t)(r / RESIZE_ONE);
		out[1] = (uint8_t)(g / RESIZE_ONE);
		out[2] = (uint8_t)(b / RESIZE_ONE);
	}
}

void resize_columns(const struct resize_axis *axis, const uint8_t *rows, size_t width,
	int32_t *sums, uint8_t *out)
{
	for (size_t i = 0; i < axis->n; i++, out += width) {
		const uint8_t *row = rows + (axis->spans[i].first - axis->from) * width;
		const int32_t *w = axis->weights + i * axis->most;

		memset(sums, 0, width * sizeof(*sums));
		for (uint32_t k = 0; k < axis->spans[i].n; k++, row += width) {
			for (size_t x = 0; x < width; x++)
				sums[x] += w[k] * row[x];
		}
		for (size_t x = 0; x < width; x++)
			out[x] = (uint8_t)((sums[x] + HALF) / RESIZE_ONE);
	}
}
