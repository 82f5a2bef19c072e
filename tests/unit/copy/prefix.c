/* Copies of a prefix into a directory: the names, and the files that an interrupted copy leaves. */
#include "copy_store.h"

#include <sys/stat.h>

#include "copy/copy.h"

/* Replaces syncfs() of the C library, so that the test determines the result of a sync. */
static int sync_error;
static unsigned syncs;

int syncfs(int fd)
{
	(void)fd;
	syncs++;
	errno = sync_error;
	return sync_error ? -1 : 0;
}

struct world {
	struct copy_store s;
	unsigned fetched, kept;
	uint64_t missing, missing_bytes; /* arguments of on_size */
};

static void begin_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	copy_store_begin(&w->s);
	tiny_make(&w->s.store, "/bucket/p/a", data, 1000);
	tiny_make(&w->s.store, "/bucket/p/b", data, 2000);
	modified = "2025-11-21T09:05:00.000Z";
	sync_error = 0;
	syncs = 0;
}

static void end_world(struct world *w)
{
	copy_store_end(&w->s);
}

static void on_done(void *cookie, const struct copy_item *item)
{
	struct world *w = cookie;

	assert_non_null(item->name);
	assert_string_equal("download", item->action);
	w->fetched++;
}

static void on_same(void *cookie, const struct copy_item *item)
{
	struct world *w = cookie;

	assert_non_null(item->name);
	w->kept++;
}

static int on_size(void *cookie, uint64_t objects, uint64_t bytes, struct penstock_error *err)
{
	struct world *w = cookie;

	(void)err;
	w->missing = objects;
	w->missing_bytes = bytes;
	return 0;
}

/* Copies a prefix into the directory; `out` may be NULL. */
static int download(struct world *w, const char *text, struct copy_prefix *out)
{
	struct copy_prefix prefix = {.bucket = "bucket",
		.prefix = text,
		.dir = w->s.dir,
		.on_size = on_size,
		.cookie = w};
	struct copy copy;
	int r;

	penstock_error_release(&w->s.f.err);
	w->fetched = w->kept = 0;
	w->missing = w->missing_bytes = UINT64_MAX;
	r = copy_begin(&copy,
		&(struct copy_options){.engine = w->s.f.engine,
			.from = w->s.s3,
			.keep_same = true,
			.stop_at_first_error = true,
			.report = {.done = on_done, .same = on_same, .cookie = w}},
		&w->s.f.err);
	if (r == 0)
		r = copy_prefix(&copy, &prefix, &w->s.f.err);
	if (r == 0)
		r = copy_finish(&copy, &w->s.f.err);
	copy_end(&copy);
	if (out)
		*out = prefix;
	return r;
}

static bool has(const struct world *w, const char *name, size_t size)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", w->s.dir, name);
	return stat(path, &st) == 0 && (S_ISDIR(st.st_mode) || (size_t)st.st_size == size);
}

/* The earlier copy may have been killed after it wrote the last file and before the sync. */
static void files_of_an_earlier_copy_are_kept_and_synced(void **state)
{
	struct copy_prefix result;
	struct world w;

	(void)state;
	begin_world(&w);
	sync_error = EIO;
	assert_true(0 > download(&w, "p", NULL));
	assert_int_equal(2, w.fetched);
	assert_int_equal(3000, w.missing_bytes);
	assert_int_equal(1, syncs);
	sync_error = 0;

	assert_int_equal(0, download(&w, "p", &result));

	assert_int_equal(0, w.fetched);
	assert_int_equal(2, w.kept);
	assert_int_equal(0, w.missing);
	assert_int_equal(2, result.objects);
	assert_int_equal(3000, result.bytes);
	assert_int_equal(2, syncs);
	end_world(&w);
}

/* The store's times have whole seconds, so a newer version of an object may have the same time. */
static void an_object_that_changed_is_fetched_again(void **state)
{
	struct timespec now;
	struct tm tm;
	char text[40];
	struct world w;

	(void)state;
	begin_world(&w);
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.000Z", &tm);
	modified = text;
	assert_int_equal(0, download(&w, "p", NULL));
	tiny_make(&w.s.store, "/bucket/p/a", data + 1, 1000);

	assert_int_equal(0, download(&w, "p", NULL));

	assert_int_equal(1, w.fetched);
	assert_int_equal(1, w.kept);
	end_world(&w);
}

static void a_file_that_was_changed_is_fetched_again(void **state)
{
	char path[64];
	struct world w;
	int fd;

	(void)state;
	begin_world(&w);
	assert_int_equal(0, download(&w, "p", NULL));
	snprintf(path, sizeof(path), "%s/b", w.s.dir);
	fd = open(path, O_WRONLY);
	assert_int_equal(1, write(fd, "x", 1));
	close(fd);

	assert_int_equal(0, download(&w, "p", NULL));

	assert_int_equal(1, w.fetched);
	assert_int_equal(1, w.kept);
	end_world(&w);
}

static void a_prefix_is_a_path(void **state)
{
	static const char *const same[] = {"p", "/p", "p/", "//p//"};
	struct copy_prefix result;
	struct world w;

	(void)state;
	begin_world(&w);
	tiny_make(&w.s.store, "/bucket/p", data, 10);
	tiny_make(&w.s.store, "/bucket/px", data, 10);
	tiny_make(&w.s.store, "/bucket/p/sub/", data, 0);
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		assert_int_equal(0, download(&w, same[i], &result));
		assert_int_equal(3, result.objects);
		assert_int_equal(1, result.directories);
	}
	assert_true(has(&w, "p", 10) && has(&w, "a", 1000) && has(&w, "b", 2000));
	assert_true(has(&w, "sub", 0) && !has(&w, "px", 10));
	assert_int_equal(0, download(&w, "none", &result));
	assert_int_equal(0, result.objects);
	end_world(&w);
}

static void an_impossible_name_ends_it_before_the_first_file(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	tiny_make(&w.s.store, "/bucket/p/bad/../x", data, 10);

	assert_int_equal(-(int)PENSTOCK_E_INVALID, download(&w, "p", NULL));

	assert_non_null(strstr(w.s.f.err.message, "p/bad/../x"));
	assert_true(!has(&w, "a", 1000) && w.fetched == 0 && w.missing == UINT64_MAX);
	end_world(&w);
}

static void a_file_and_a_directory_of_one_name_are_refused(void **state)
{
	struct world w;

	(void)state;
	begin_world(&w);
	tiny_make(&w.s.store, "/bucket/p", data, 10);

	/* "p" would be a file, and "p/a" needs a directory of the same name. */
	assert_int_equal(-(int)PENSTOCK_E_INVALID, download(&w, "", NULL));

	assert_true(!has(&w, "p", 10));
	end_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_of_an_earlier_copy_are_kept_and_synced),
		cmocka_unit_test(an_object_that_changed_is_fetched_again),
		cmocka_unit_test(a_file_that_was_changed_is_fetched_again),
		cmocka_unit_test(a_prefix_is_a_path),
		cmocka_unit_test(an_impossible_name_ends_it_before_the_first_file),
		cmocka_unit_test(a_file_and_a_directory_of_one_name_are_refused),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
