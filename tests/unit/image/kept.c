/* The list of stored images, and the locks of images in use. */
#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* A layer that belongs to no listed image is removed, so a list must be complete, or be an
 * error. */
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

		/* The images have no layers, because fts_open() of glibc 2.36 crashes if it is out
		 * of memory. */
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

/* Writes `text` as a blob of the layout, and appends {"digest": ..., "size": ...} to `out`. */
static void put_blob(const char *layout, const struct buf *text, struct buf *out)
{
	char digest[IMAGE_DIGEST_SIZE], path[256];

	assert_int_equal(image_store_digest(text, digest, NULL), 0);
	snprintf(path, sizeof(path), "%s/blobs/sha256/%s", layout, digest + strlen("sha256:"));
	assert_int_equal(fs_write_atomic(path, text->data, text->len, 0600, NULL), 0);
	buf_printf(out, "{\"digest\": \"%s\", \"size\": %zu}", digest, text->len);
}

/* An image that is not locked could be removed while a run uses it. */
static void an_image_is_locked_or_an_error(void **state)
{
	char template[] = "/tmp/penstock-kept-XXXXXX";
	const char *dir = mkdtemp(template);
	_cleanup_free_ char *layout = path_join(dir, "layout");
	_cleanup_free_ char *blobs = path_join(layout, "blobs/sha256");
	_cleanup_free_ char *index = path_join(layout, "index.json");
	_cleanup_free_ char *mark = path_join(layout, "oci-layout");
	_cleanup_(buf_release) struct buf config = BUF_INIT(4 * KIB);
	_cleanup_(buf_release) struct buf manifest = BUF_INIT(4 * KIB);
	_cleanup_(buf_release) struct buf list = BUF_INIT(4 * KIB);
	struct image *image = NULL;
	char lock[256];

	(void)state;
	assert_int_equal(fs_mkdirs(blobs, 0700, NULL), 0);
	buf_add_str(&config, "{}");
	buf_add_str(&manifest, "{\"layers\": [], \"config\": ");
	put_blob(layout, &config, &manifest);
	buf_add_str(&manifest, "}");
	buf_add_str(&list, "{\"manifests\": [");
	put_blob(layout, &manifest, &list);
	buf_add_str(&list, "]}");
	assert_int_equal(fs_write_atomic(index, list.data, list.len, 0600, NULL), 0);
	assert_int_equal(fs_write_atomic(mark, "{}", 2, 0600, NULL), 0);
	assert_int_equal(
		image_get(&image, &(struct image_request){.reference = layout, .dir = dir}, NULL),
		0);
	assert_in_range(image->use_fd, 1, 1000);
	snprintf(lock, sizeof(lock), "%s/locks/use-%.24s", dir, image->digest + strlen("sha256:"));
	image_free(image);
	image = NULL;
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(mkdir(lock, 0700), 0);

	assert_int_not_equal(
		image_get(&image, &(struct image_request){.reference = layout, .dir = dir}, NULL),
		0);

	assert_null(image);
	assert_int_equal(fs_remove_tree(dir, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_image_is_locked_or_an_error),
		cmocka_unit_test(a_list_is_whole_or_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
