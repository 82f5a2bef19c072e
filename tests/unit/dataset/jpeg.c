/* Decoding to a given size: cropping, colours, and images that are damaged or too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jpeglib.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/jpeg/jpeg.h"
#include "dataset/jpeg/resize.h"

#define WIDTH  96
#define HEIGHT 64

struct image {
	unsigned char *bytes;
	unsigned long len;
};

static void image_release(struct image *image)
{
	free(image->bytes);
}

/* Makes an image whose left third has the value 250, the middle third 40, and the right third
 * 160. */
static struct image encode(J_COLOR_SPACE space, int channels, bool progressive)
{
	struct jpeg_compress_struct jpeg = {0};
	struct jpeg_error_mgr handler;
	struct image image = {0};
	uint8_t row[WIDTH * 4];
	uint8_t *rows[] = {row};

	for (int x = 0; x < WIDTH; x++)
		memset(row + x * channels, x < 32 ? 250 : x < 64 ? 40 : 160, (size_t)channels);
	jpeg.err = jpeg_std_error(&handler);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &image.bytes, &image.len);
	jpeg.image_width = WIDTH;
	jpeg.image_height = HEIGHT;
	jpeg.input_components = channels;
	jpeg.in_color_space = space;
	jpeg_set_defaults(&jpeg);
	jpeg_set_quality(&jpeg, 95, TRUE);
	if (progressive)
		jpeg_simple_progression(&jpeg);
	jpeg_start_compress(&jpeg, TRUE);
	for (int y = 0; y < HEIGHT; y++)
		jpeg_write_scanlines(&jpeg, rows, 1);
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	return image;
}

static void assert_near(uint8_t value, int expected)
{
	assert_in_range(value + 3 - expected, 0, 6);
}

static void the_middle_is_cut_and_scaled(void **state)
{
	static const struct jpeg_size sizes[] = {{64, 96}, {8, 12}, {20, 30}, {100, 150}};
	_cleanup_(image_release) struct image image = encode(JCS_RGB, 3, false);

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		_cleanup_free_ uint8_t *pixels = malloc(jpeg_bytes(&sizes[i]));
		const uint8_t *row = pixels + (size_t)3 * sizes[i].width * (sizes[i].height / 2);

		assert_int_equal(jpeg_decode(image.bytes, image.len, &sizes[i], pixels, NULL), 0);
		assert_near(row[(size_t)3 * (sizes[i].width / 6)], 250);
		assert_near(row[(size_t)3 * (sizes[i].width / 2)], 40);
		assert_near(row[(size_t)3 * (sizes[i].width * 5 / 6) + 2], 160);
	}
	{
		/* The result is the middle third alone; the parts beside it are cropped and do not
		 * blur its edges. */
		const struct jpeg_size size = {.height = 30, .width = 15};
		uint8_t pixels[30 * 15 * 3];

		assert_int_equal(jpeg_decode(image.bytes, image.len, &size, pixels, NULL), 0);
		assert_near(pixels[3 * 2], 40);
		assert_near(pixels[3 * 12 + 1], 40);
	}
}

static void grey_progressive_and_inverted_ink_become_rgb(void **state)
{
	static const struct {
		J_COLOR_SPACE space;
		int channels;
		int left, middle;
	} cases[] = {{JCS_GRAYSCALE, 1, 250, 40}, {JCS_RGB, 3, 250, 40},
		{JCS_CMYK, 4, 250 * 250 / 255, 40 * 40 / 255}};
	const struct jpeg_size size = {.height = HEIGHT, .width = WIDTH};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_(image_release) struct image image = encode(
			cases[i].space, cases[i].channels, true);
		_cleanup_free_ uint8_t *pixels = malloc(jpeg_bytes(&size));

		assert_int_equal(jpeg_decode(image.bytes, image.len, &size, pixels, NULL), 0);
		for (int channel = 0; channel < 3; channel++) {
			assert_near(pixels[3 * 16 + channel], cases[i].left);
			assert_near(pixels[3 * 48 + channel], cases[i].middle);
		}
	}
}

static void every_cut_image_is_damaged(void **state)
{
	const struct jpeg_size size = {.height = 4, .width = 4};
	_cleanup_(image_release) struct image image = encode(JCS_RGB, 3, false);
	uint8_t pixels[48];

	(void)state;
	/* The last two bytes of the image are its end marker. */
	for (size_t len = 0; len < image.len - 2; len += 7) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		assert_int_equal(jpeg_decode(image.bytes, len, &size, pixels, &err),
			-(int)PENSTOCK_E_CORRUPT);
	}
}

static void an_image_of_too_many_pixels_is_refused(void **state)
{
	const struct jpeg_size size = {.height = 4, .width = 4};
	_cleanup_(image_release) struct image image = encode(JCS_RGB, 3, false);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	unsigned char *frame = memmem(image.bytes, image.len, "\xff\xc0", 2);
	uint8_t pixels[48];

	(void)state;
	assert_non_null(frame);
	memcpy(frame + 5, "\xff\xdc\xff\xdc", 4);
	assert_int_equal(
		jpeg_decode(image.bytes, image.len, &size, pixels, &err), -(int)PENSTOCK_E_LIMIT);
	assert_non_null(strstr(err.message, "67108864"));
}

static void weights_of_a_pixel_are_one(void **state)
{
	static const struct {
		size_t all;
		double begin, end;
		size_t n;
	} cases[] = {{10, 0, 10, 10}, {10, 2.5, 7.25, 40}, {8192, 0, 8192, 1}, {1, 0, 1, 9},
		{65500, 100, 65000, 3}, {7, 6, 7, 1}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct resize_axis axis = {0};

		assert_true(resize_axis_init(
			&axis, cases[i].all, cases[i].begin, cases[i].end, cases[i].n));
		assert_true(axis.to <= cases[i].all);
		for (size_t k = 0; k < axis.n; k++) {
			int32_t sum = 0;

			assert_in_range(axis.spans[k].n, 1, axis.most);
			for (uint32_t w = 0; w < axis.spans[k].n; w++) {
				assert_true(axis.weights[k * axis.most + w] >= 0);
				sum += axis.weights[k * axis.most + w];
			}
			assert_int_equal(sum, RESIZE_ONE);
		}
		resize_axis_release(&axis);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_middle_is_cut_and_scaled),
		cmocka_unit_test(grey_progressive_and_inverted_ink_become_rgb),
		cmocka_unit_test(every_cut_image_is_damaged),
		cmocka_unit_test(an_image_of_too_many_pixels_is_refused),
		cmocka_unit_test(weights_of_a_pixel_are_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
