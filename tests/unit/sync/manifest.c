#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/error.h"
#include "sync/record/manifest.h"

static const struct {
	enum manifest_list list;
	struct manifest_item item;
} items[] = {
	{MANIFEST_FILES, {.path = "a\n\"\\\xff/%b",
				 .size = (uint64_t)5 << 40,
				 .mtime_ns = INT64_C(1795251900123456789),
				 .mode = S_IFREG | 04755,
				 .etag = "\"0123456789abcdef0123456789abcdef-3\"",
				 .crc = 1,
				 .has_crc = true}},
	{MANIFEST_FILES, {.path = "gone",
				 .mode = S_IFREG | 0644,
				 .etag = "\"e\"",
				 .mtime_ns = -1,
				 .deleted = true}},
	{MANIFEST_FILES, {.path = "empty", .mode = S_IFDIR | 0700, .etag = ""}},
	{MANIFEST_FILES,
		{.path = "link", .link = "../\xfe there", .mode = S_IFLNK | 0777, .etag = ""}},
	{MANIFEST_REPLACED,
		{.path = "a", .etag = "\"old\"", .kept = "p/.penstock/replaced/a", .size = 7}},
	{MANIFEST_PARTIAL, {.path = "b", .kept = "p/.penstock/partial/b", .size = 9, .etag = ""}},
};
#define N_ITEMS (sizeof(items) / sizeof(items[0]))

struct seen {
	size_t n;
	bool same;
};

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static int compare(void *cookie, enum manifest_list list, const struct manifest_item *i)
{
	struct seen *seen = cookie;
	const struct manifest_item *w = &items[seen->n % N_ITEMS].item;

	seen->same = seen->same && list == items[seen->n % N_ITEMS].list &&
		     same_text(i->path, w->path) && same_text(i->link, w->link) &&
		     same_text(i->kept, w->kept) && same_text(i->etag, w->etag) &&
		     i->size == w->size && i->mtime_ns == w->mtime_ns && i->crc == w->crc &&
		     i->has_crc == w->has_crc && i->deleted == w->deleted &&
		     (list != MANIFEST_FILES || i->mode == w->mode);
	seen->n++;
	return 0;
}

static void write_manifest(FILE *f)
{
	const struct manifest_head head = {.run = "run 1", .attempt = 2, .generation = 7};
	enum manifest_list list = MANIFEST_FILES;
	bool first = true;

	manifest_begin(f, &head);
	for (size_t i = 0; i < N_ITEMS; i++) {
		for (; list < items[i].list; first = true)
			manifest_list(f, ++list);
		manifest_item(f, list, &items[i].item, first);
		first = false;
	}
	manifest_end(f);
}

/* Returns a complete manifest in memory. The caller has to free the text. */
static char *make(size_t *len)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	write_manifest(f);
	assert_true(manifest_written(f));
	fclose(f);
	return text;
}

static int read_text(const char *text, size_t len, struct manifest_head *head, struct seen *seen,
	struct penstock_error *err)
{
	FILE *f = fmemopen((void *)(uintptr_t)(len ? text : " "), len ? len : 1, "r");
	int rc;

	*seen = (struct seen){.same = true};
	rc = manifest_read(f, "manifest.json", head, compare, seen, err);
	fclose(f);
	return rc;
}

/* Odd names, links, times before 1970 and every flag are read back, and other programs can read the
 * manifest as JSON. */
static void a_manifest_comes_back_as_it_was(void **state)
{
	struct manifest_head head;
	struct seen seen;
	json_t *json;
	size_t len;
	char *text = make(&len);

	(void)state;
	assert_int_equal(read_text(text, len, &head, &seen, NULL), 0);
	assert_int_equal(seen.n, N_ITEMS);
	assert_true(seen.same);
	assert_string_equal(head.run, "run 1");
	assert_int_equal(head.attempt, 2);
	assert_int_equal(head.generation, 7);
	json = json_loadb(text, len, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "files")), 4);
	assert_int_equal(json_array_size(json_object_get(json, "replaced")), 1);
	assert_int_equal(json_array_size(json_object_get(json, "partial")), 1);
	json_decref(json);
	free(text);
}

/* A truncated manifest is never accepted as a shorter one. */
static void a_cut_manifest_is_refused(void **state)
{
	struct manifest_head head;
	struct seen seen;
	size_t len;
	char *text = make(&len);

	(void)state;
	for (size_t cut = 0; cut < len; cut++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

		assert_int_equal(read_text(text, cut, &head, &seen, &err), -PENSTOCK_E_CORRUPT);
		assert_non_null(strstr(err.message, "manifest.json"));
		assert_true(seen.same);
	}
	free(text);
}

/* A manifest is refused if a path would leave the directory. */
static void paths_that_leave_the_directory_are_refused(void **state)
{
	static const char *const paths[] = {"", "/etc/passwd", "..", "../x", "a/../b", "a//b", "a/",
		".", "./a", "a%2F..%2F..%2Fb", "a%00b"};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		struct manifest_head head;
		struct seen seen;
		char text[512];
		int len = snprintf(text, sizeof(text),
			"{\"format\":\"penstock "
			"manifest\",\"version\":1,\"run\":\"r\",\"files\":[\n"
			"{\"path\":\"%s\",\"type\":\"file\",\"mtime\":1,\"mode\":\"0644\",\"size\":"
			"1}\n"
			"],\"replaced\":[\n],\"partial\":[\n]}\n",
			paths[i]);

		assert_int_equal(
			read_text(text, (size_t)len, &head, &seen, NULL), -PENSTOCK_E_CORRUPT);
		assert_int_equal(seen.n, 0);
	}
}

/* A later version may have another meaning, so it is refused by its name and not read in part. */
static void a_later_version_is_refused_by_name(void **state)
{
	static const char text[] = "{\"format\":\"penstock manifest\",\"version\":2,\"files\":[\n";
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct manifest_head head;
	struct seen seen;

	(void)state;
	assert_int_equal(
		read_text(text, strlen(text), &head, &seen, &err), -PENSTOCK_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "2"));
}

static ssize_t fail_once(void *cookie, const char *data, size_t len)
{
	int *writes = cookie;

	(void)data;
	if ((*writes)++)
		return (ssize_t)len;
	errno = ENOSPC;
	return 0;
}

/* The first write to the file fails because the disk is full, and later writes succeed. */
static void a_manifest_that_lacks_a_write_is_not_written(void **state)
{
	int writes = 0;
	char space[64];
	FILE *f = fopencookie(&writes, "w", (cookie_io_functions_t){.write = fail_once});

	(void)state;
	assert_non_null(f);
	setvbuf(f, space, _IOFBF, sizeof(space));
	write_manifest(f);

	assert_false(manifest_written(f));

	assert_true(writes > 1);
	fclose(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_manifest_comes_back_as_it_was),
		cmocka_unit_test(a_cut_manifest_is_refused),
		cmocka_unit_test(paths_that_leave_the_directory_are_refused),
		cmocka_unit_test(a_later_version_is_refused_by_name),
		cmocka_unit_test(a_manifest_that_lacks_a_write_is_not_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
