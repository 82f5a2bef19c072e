/* Every allocation of a transfer fails once: the transfer is complete or returns an error, and
 * leaves no incomplete file under its final name. */
#include "transfer/bulk.h"
#include "transfer/http_fetch.h"
#include "transfer/listing.h"
#include "transfer/state/part_file.h"
#include "memory_fixture.h"

static int put(struct client *c, struct penstock_error *err)
{
	struct object_info info = {0};
	int rc = object_put(object_at(c->s3, "bucket", "key"), data, SIZE, NULL, &info, err);

	if (rc == 0)
		assert_string_equal(info.etag, data_etag);
	object_info_release(&info);
	return rc;
}

static void putting_from_memory(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = put}, true);
}

static int put_file(struct client *c, struct penstock_error *err)
{
	struct object_info info = {0};
	int rc = object_put_file(object_at(c->s3, "bucket", "key"), source, SIZE, NULL, &info, err);

	if (rc == 0)
		assert_string_equal(info.etag, data_etag);
	object_info_release(&info);
	return rc;
}

static void putting_a_file(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = put_file}, false);
}

static int get(struct client *c, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(2 * SIZE);
	struct object_info info = {0};
	int rc = object_get(object_at(c->s3, "bucket", "key"), NULL, &out, &info, err);

	if (rc == 0) {
		assert_int_equal(out.len, SIZE);
		assert_memory_equal(out.data, data, SIZE);
	}
	object_info_release(&info);
	return rc;
}

static void getting_into_memory(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = get}, false);
}

static int get_file(struct client *c, struct penstock_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	return object_get_file(object_at(c->s3, "bucket", "key"), path, NULL, NULL, err);
}

static void assert_no_part(void)
{
	_cleanup_free_ char *part = NULL;

	assert_int_equal(0, part_file_first_name("file", &part, NULL));
	assert_file(part, false);
}

static void check_file(int rc)
{
	char path[64];

	assert_file("file", rc == 0);
	assert_no_part();
	snprintf(path, sizeof(path), "%s/file", dir);
	unlink(path);
}

static void getting_a_file(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = get_file, .check = check_file}, false);
}

static int count(void *cookie, const struct object_info *info)
{
	unsigned *n = cookie;

	assert_int_equal(info->size, SIZE);
	(*n)++;
	return 0;
}

/* Lists, copies, deletes and signs. */
static int manage(struct client *c, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf url = BUF_INIT(LIMIT_STRING);
	char *keys[] = {(char[]){"a"}, (char[]){"b"}};
	const struct strlist both = {keys, 2};
	struct object_info info = {0};
	unsigned n = 0;
	int rc = object_list(object_at(c->s3, "bucket", "p/"), NULL, count, &n, NULL, err);

	if (rc == 0) {
		assert_int_equal(n, 2);
		rc = object_head(object_at(c->s3, "bucket", "key"), &info, err);
	}
	if (rc == 0) {
		assert_int_equal(info.size, SIZE);
		object_info_release(&info);
		rc = object_copy(object_at(c->s3, "bucket", "key"),
			object_at(c->s3, "bucket", "to"), NULL, &info, err);
	}
	if (rc == 0)
		assert_true(info.etag[0]);
	object_info_release(&info);
	if (rc == 0)
		rc = object_delete(object_at(c->s3, "bucket", "key"), NULL, err);
	if (rc == 0)
		rc = object_delete_many(
			&(struct object_deletion){c->s3, "bucket", &both, NULL, NULL, NULL}, NULL,
			err);
	if (rc == 0)
		rc = object_presign(object_at(c->s3, "bucket", "key"), "GET", 60, &url, err);
	if (rc == 0)
		assert_non_null(strstr(buf_str(&url), "X-Amz-Signature="));
	return rc;
}

static void managing_objects(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = manage}, false);
}

static int fetch(struct client *c, struct penstock_error *err)
{
	_cleanup_(http_fetch_result_release) struct http_fetch_result result = {0};
	const struct http_fetch_options options = {
		.directory = dir, .chunk_size = 8 * KIB, .parallel = 2};
	char url[MINI_URL_SIZE + 16];

	snprintf(url, sizeof(url), "%s/file", server.url);
	int rc = http_fetch(c->engine, url, &options, &result, err);

	if (rc == 0)
		assert_int_equal(result.size, SIZE);
	return rc;
}

/* The file under its final name is complete or missing; fetched bytes are kept for the next
 * call. */
static void check_fetched(int rc)
{
	char path[64];

	assert_file("file", rc == 0);
	snprintf(path, sizeof(path), "%s/file", dir);
	unlink(path);
}

static void fetching_in_ranges(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = fetch, .check = check_fetched}, false);
}

/* Runs a bulk with one item of each kind, and the deletion of the copied object. */
static int bulk_all(struct client *c, struct penstock_error *err)
{
	_cleanup_(bulk_freep) struct bulk *bulk = NULL;
	struct object_info known = {.size = SIZE};
	struct bulk_totals totals = {0};
	struct penstock_error end = PENSTOCK_ERROR_INIT;
	char path[64], from[64];
	int rc = bulk_new(&bulk, c->engine, &(struct bulk_options){.no_sync = true}, err);

	snprintf(path, sizeof(path), "%s/file", dir);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", source);
	snprintf(known.etag, sizeof(known.etag), "%s", data_etag);
	const struct bulk_item items[] = {
		{.kind = BULK_UPLOAD, .path = from, .to = object_at(c->s3, "bucket", "up")},
		{.kind = BULK_DOWNLOAD,
			.from = object_at(c->s3, "bucket", "key"),
			.known = &known,
			.path = path},
		{.kind = BULK_COPY,
			.from = object_at(c->s3, "bucket", "key"),
			.known = &known,
			.to = object_at(c->s3, "bucket", "to"),
			.remove_source = true},
	};

	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(items); i++)
		rc = bulk_push(bulk, &items[i], err);
	if (bulk_finish(bulk, &totals, &end) < 0 && rc == 0)
		rc = error_move(err, &end);
	penstock_error_release(&end);
	if (rc == 0)
		assert_int_equal(totals.items, ARRAY_SIZE(items));
	return rc;
}

/* The failed item may be another one than the download, so the file may be complete even after an
 * error. */
static void check_bulk(int rc)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/file", dir);
	assert_file("file", rc == 0 || access(path, F_OK) == 0);
	assert_no_part();
	unlink(path);
}

static void moving_many(void **state)
{
	(void)state;
	every_allocation_fails_once(
		&(struct scenario){.work = bulk_all, .check = check_bulk}, false);
}

/* Entries of a stream come in order; if there is no error, all of them come. */
static int read_stream(struct entry_source *stream, const char *directory, unsigned all,
	struct penstock_error *err)
{
	struct entry entry;
	char wanted[32];
	unsigned n = 0;
	int r;

	while ((r = entry_source_next(stream, &entry, err)) > 0) {
		snprintf(wanted, sizeof(wanted), directory ? "%s%u/f%u" : "%s%u%u",
			directory ? directory : "", n / 10, n % 10);
		assert_string_equal(wanted, entry.path);
		n++;
	}
	assert_true(r < 0 || n == all);
	entry_source_free(stream);
	return r;
}

static int list_ahead(struct client *c, struct penstock_error *err)
{
	struct entry_source *stream = NULL;
	int r = entry_source_objects(&stream, object_at(c->s3, "bucket", "m/"), NULL, err);

	return r < 0 ? r : read_stream(stream, NULL, MANY, err);
}

static void listing_in_ranges(void **state)
{
	(void)state;
	every_allocation_fails_once(&(struct scenario){.work = list_ahead}, false);
}

static int walk(struct client *c, struct penstock_error *err)
{
	struct entry_source *stream = NULL;
	int r = entry_source_files(&stream, dir, NULL, err);

	(void)c;
	return r < 0 ? r : read_stream(stream, "d", 20, err);
}

static void walking(void **state)
{
	char path[64];

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "%s/d%u", dir, i / 10);
		mkdir(path, 0700);
		snprintf(path, sizeof(path), "%s/d%u/f%u", dir, i / 10, i % 10);
		close(open(path, O_WRONLY | O_CREAT, 0600));
	}

	every_allocation_fails_once(&(struct scenario){.work = walk}, false);

	fs_remove_tree(dir, NULL);
	assert_int_equal(mkdir(dir, 0700), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(putting_from_memory, start_server, stop_server),
		cmocka_unit_test_setup_teardown(putting_a_file, start_server, stop_server),
		cmocka_unit_test_setup_teardown(getting_into_memory, start_server, stop_server),
		cmocka_unit_test_setup_teardown(getting_a_file, start_server, stop_server),
		cmocka_unit_test_setup_teardown(managing_objects, start_server, stop_server),
		cmocka_unit_test_setup_teardown(fetching_in_ranges, start_server, stop_server),
		cmocka_unit_test_setup_teardown(moving_many, start_server, stop_server),
		cmocka_unit_test_setup_teardown(listing_in_ranges, start_server, stop_server),
		cmocka_unit_test_setup_teardown(walking, start_server, stop_server),
	};

	/* If an allocation fails, libcurl 7.88 may lose the query of a URL, and the store would
	 * notice only by the signature. tests/unit/net/memory.c covers the allocations of
	 * libcurl. */
	alloc_fail_skip_library("libcurl");
	alarm(115);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
