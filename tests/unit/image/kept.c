/* The list of stored images. */
#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "image/kept.h"
#include "image/store.h"

#define IMAGES 3
#define DIGEST "sha256:%064zu"

/* A layer belongs to no image if the list lacks its image, and is then removed: a list is whole, or
 * an error. */
static void a_list_is_whole_or_an_error(void **state)
{
	char template[] = "/tmp/penstock-kept-XXXXXX";
	const char *dir = mkdtemp(template);
	struct image_store store = {.dir = dir};
	size_t failed = 0;

	(void)state;
	assert_non_null(dir);
	assert_int_equal(image_store_open(&store, NULL), 0);
	for (size_t i = 0; i < IMAGES; i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(4 * KIB);
		char digest[IMAGE_DIGEST_SIZE];

		/* Without layers: fts_open() of glibc 2.36 crashes if it is out of memory. */
		buf_printf(&text,
			"{\"config\": {\"digest\": \"" DIGEST "\", \"size\": 1}, \"layers\": []}",
			i);
		assert_int_equal(image_store_digest(&text, digest, NULL), 0);
		assert_int_equal(image_store_write(&store, "manifests", digest, &text, NULL), 0);
	}

	for (size_t n = 1;; n++) {
		_cleanup_(image_kept_release) struct image_kept_list list = {0};
		bool fired;
		int r;

		alloc_fail_arm(n);
		r = image_kept_read(&list, dir, NULL);
		fired = alloc_fail_disarm();

		assert_int_equal(list.n, r == 0 ? IMAGES : 0);
		failed += r < 0;
		if (!fired)
			break;
	}
	assert_in_range(failed, IMAGES, SIZE_MAX);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_is_whole_or_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
