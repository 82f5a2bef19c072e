#include "dataset/jpeg/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "dataset/jpeg/resize.h"

/* Has everything that must be freed after a longjmp() out of libjpeg. */
struct decoder {
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr handler;
	struct jpeg_progress_mgr progress;
	jmp_buf failed;
	enum penstock_code code;
	char reason[JMSG_LENGTH_MAX];
	struct resize_axis across, down;
	uint8_t *line; /* a line as decoded by libjpeg */
	uint8_t *rows; /* lines that already have the width of the result */
	int32_t *sums;
};

static void decoder_free(struct decoder **d)
{
	if (!*d)
		return;
	jpeg_destroy_decompress(&(*d)->jpeg);
	resize_axis_release(&(*d)->across);
	resize_axis_release(&(*d)->down);
	free((*d)->line);
	free((*d)->rows);
	free((*d)->sums);
	free(*d);
}

/* ---- callbacks of libjpeg ---- */

static _Noreturn void fail(struct decoder *d, enum penstock_code code, const char *reason)
{
	d->code = code;
	snprintf(d->reason, sizeof(d->reason), "%s", reason);
	longjmp(d->failed, 1);
}

static _Noreturn void on_error(j_common_ptr jpeg)
{
	char reason[JMSG_LENGTH_MAX];
	bool memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;

	jpeg->err->format_message(jpeg, reason);
	fail(jpeg->client_data, memory ? PENSTOCK_E_MEMORY : PENSTOCK_E_CORRUPT, reason);
}

/* Treats warnings of lost pixels as errors, and ignores other warnings. */
static void on_message(j_common_ptr jpeg, int level)
{
	if (level >= 0)
		return;
	switch (jpeg->err->msg_code) {
	case JWRN_ARITH_BAD_CODE:
	case JWRN_HIT_MARKER:
	case JWRN_HUFF_BAD_CODE:
	case JWRN_JPEG_EOF:
	case JWRN_MUST_RESYNC:
		on_error(jpeg);
	default:
		break;
	}
}

/* Each scan of a progressive image costs a pass over the whole image, even if the scan has few
 * bytes. */
static void on_progress(j_common_ptr jpeg)
{
	if (((j_decompress_ptr)jpeg)->input_scan_number > LIMIT_JPEG_SCANS)
		fail(jpeg->client_data, PENSTOCK_E_LIMIT, "too many scans");
}

/* ---- decoding ---- */

/* Divides the scaling between the inverse DCT and the filter. */
static void plan(struct decoder *d, const struct jpeg_size *size)
{
	struct jpeg_decompress_struct *j = &d->jpeg;
	double width = j->image_width, height = j->image_height;
	double across = width, down = height, x, y;

	if (width * size->height > height * size->width)
		across = height * size->width / size->height;
	else
		down = width * size->height / size->width;
	j->scale_denom = 8;
	j->scale_num = 1;
	while (j->scale_num < 8 && (across * j->scale_num < 8.0 * size->width ||
					   down * j->scale_num < 8.0 * size->height))
		j->scale_num *= 2;
	j->out_color_space = j->num_components == 4 ? JCS_CMYK : JCS_RGB;
	jpeg_start_decompress(j);
	x = j->output_width / width;
	y = j->output_height / height;
	if (!resize_axis_init(&d->across, j->output_width, (width - across) / 2 * x,
		    (width + across) / 2 * x, size->width) ||
		!resize_axis_init(&d->down, j->output_height, (height - down) / 2 * y,
			(height + down) / 2 * y, size->height))
		fail(d, PENSTOCK_E_MEMORY, "out of memory");
	d->line = malloc((size_t)j->output_width * (size_t)j->output_components);
	d->rows = malloc((d->down.to - d->down.from) * size->width * 3);
	d->sums = malloc((size_t)size->width * 3 * sizeof(*d->sums));
	if (!d->line || !d->rows || !d->sums)
		fail(d, PENSTOCK_E_MEMORY, "out of memory");
}

/* Ink is stored inverted: 255 means no ink. */
static void cmyk_to_rgb(uint8_t *line, size_t n)
{
	uint8_t *to = line;

	for (const uint8_t *p = line; n > 0; n--, p += 4) {
		unsigned key = p[3];

		for (int i = 0; i < 3; i++)
			*to++ = (uint8_t)((p[i] * key + 127) / 255);
	}
}

static void decode(struct decoder *d, const void *data, size_t len, const struct jpeg_size *size,
	uint8_t *pixels)
{
	struct jpeg_decompress_struct *j = &d->jpeg;

	jpeg_create_decompress(j);
	j->client_data = d;
	j->progress = &d->progress;
	jpeg_mem_src(j, data, len);
	jpeg_read_header(j, TRUE);
	if ((uint64_t)j->image_width * j->image_height > LIMIT_JPEG_PIXELS)
		fail(d, PENSTOCK_E_LIMIT, "too many pixels");
	plan(d, size);
	while (j->output_scanline < j->output_height) {
		size_t y = j->output_scanline;

		jpeg_read_scanlines(j, &d->line, 1);
		if (y < d->down.from || y >= d->down.to)
			continue;
		if (j->out_color_space == JCS_CMYK)
			cmyk_to_rgb(d->line, j->output_width);
		resize_row(&d->across, d->line, d->rows + (y - d->down.from) * size->width * 3);
	}
	jpeg_finish_decompress(j);
	resize_columns(&d->down, d->rows, (size_t)size->width * 3, d->sums, pixels);
}

/* Returns false if the decoder has failed; it reports a failure by a longjmp() to `failed`. */
static bool try_decode(struct decoder *d, const void *data, size_t len,
	const struct jpeg_size *size, uint8_t *pixels)
{
	if (setjmp(d->failed) != 0)
		return false;
	decode(d, data, len, size, pixels);
	return true;
}

size_t jpeg_bytes(const struct jpeg_size *size)
{
	return (size_t)size->height * size->width * 3;
}

bool jpeg_is(const void *data, size_t len)
{
	return len >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

int jpeg_decode(const void *data, size_t len, const struct jpeg_size *size, uint8_t *pixels,
	struct penstock_error *err)
{
	_cleanup_(decoder_free) struct decoder *d = NULL;

	if (!jpeg_is(data, len))
		return error_set(err, PENSTOCK_E_CORRUPT, "it is not a JPEG image");
	d = calloc(1, sizeof(*d));
	if (!d)
		return error_memory(err);
	d->jpeg.err = jpeg_std_error(&d->handler);
	d->jpeg.client_data = d;
	d->handler.error_exit = on_error;
	d->handler.emit_message = on_message;
	d->progress.progress_monitor = on_progress;
	if (try_decode(d, data, len, size, pixels))
		return 0;
	if (d->code == PENSTOCK_E_MEMORY)
		return error_memory(err);
	if (d->code == PENSTOCK_E_LIMIT)
		return error_set(err, d->code,
			"the JPEG image has %s; the limits are %u pixels and %d scans", d->reason,
			LIMIT_JPEG_PIXELS, LIMIT_JPEG_SCANS);
	return error_set(err, d->code, "the JPEG image is damaged: %s", d->reason);
}
