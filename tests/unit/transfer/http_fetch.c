/* HTTP inputs from servers that close connections early, change files, send wrong ranges, or do not
 * support ranges. */
#include "http_fetch_fixture.h"

static bool serve_without_ranges(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "200 OK", "", one, SIZE);
}

static bool serve_without_length(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	mini_printf(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
	mini_write(fd, one, SIZE);
	return false;
}

/* A server without validators and ranges that ends the first replies early. */
static bool cut_stream(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	bool second = f->change_at && r->number >= f->change_at;
	const char *data = second ? two : one;

	if (r->number > 3)
		return mini_reply(fd, "200 OK", "", data, SIZE);
	mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", SIZE);
	mini_write(fd, data, SIZE / 2);
	/* Change the resource only after the consumer got some bytes. */
	while (f->change_at && r->number + 1 == f->change_at && !f->consumed)
		clock_sleep_ms(1);
	return false;
}

/* Without ETag or date, a range may belong to any version. */
static bool ranges_without_validator(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first = 0;
	uint64_t last = SIZE - 1;
	char header[128];

	(void)m;
	if (!mini_range(r, SIZE, &first, &last))
		return mini_reply(fd, "200 OK", "", one, SIZE);
	snprintf(header, sizeof(header), "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n",
		first, last, SIZE);
	return mini_reply(fd, "206 P", header, one + first, last - first + 1);
}

/* Replies to every request with the first range. */
static bool repeats(struct mini_http *m, const struct mini_request *r, int fd)
{
	char header[128];

	(void)m;
	(void)r;
	snprintf(header, sizeof(header), "ETag: \"x\"\r\nContent-Range: bytes 0-%d/%d\r\n",
		CHUNK - 1, SIZE);
	return mini_reply(fd, "206 P", header, one, CHUNK);
}

/* The third range ends early, and its header lacks the total size, so the headers do not reveal the
 * error. */
static bool one_range_too_short(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first = 0;
	uint64_t last = SIZE - 1;
	char header[128];

	if (!mini_range(r, SIZE, &first, &last) || first != 2 * CHUNK)
		return serve(m, r, fd);
	snprintf(header, sizeof(header),
		"ETag: \"one\"\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/*\r\n", first,
		first + 999);
	return mini_reply(fd, "206 P", header, one + first, 1000);
}

static bool serve_nothing(struct mini_http *m, const struct mini_request *r, int fd)
{
	char range[64];

	(void)m;
	if (mini_header(r, "Range", range, sizeof(range)))
		return mini_reply(fd, "416 No", "Content-Range: bytes */0\r\n", "", 0);
	return mini_reply(fd, "200 OK", "", "", 0);
}

static bool refuse(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return mini_reply(fd, "403 Forbidden", "", "no", 2);
}

/* ---- tests ---- */

static void ranges_are_fetched_in_parallel_and_handed_over_in_order(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.held = true;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_true(str_ends(f.result.path, "/archive one.tar.gz"));
	assert_int_equal(SIZE, f.consumed);
	assert_true(f.result.ranges);
	assert_int_equal(SIZE, f.announced);
	assert_int_equal(SIZE, f.progress);
	assert_string_equal("\"one\"", f.result.etag);
	assert_true(f.server.connections > 1);
	assert_int_equal(1, files_in(f.dir));
	end(&f);
}

static void cut_ranges_are_continued(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.cut = true;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	/* No byte was sent twice. */
	assert_int_equal(SIZE, f.served);
	end(&f);
}

static void a_server_without_ranges_gives_one_stream(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_without_ranges);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	assert_false(f.result.ranges);
	end(&f);
}

static int announce_and_count(
	void *cookie, uint64_t size, uint64_t missing, struct penstock_error *err)
{
	announce(cookie, size, missing, err);
	return 1;
}

/* Only a negative code refuses the size. */
static void a_positive_result_of_on_size_does_not_cut_a_stream(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_without_ranges);
	f.options.on_size = announce_and_count;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	end(&f);
}

static void a_stream_of_unknown_length_ends_with_the_connection(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_without_length);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(UINT64_MAX, f.announced);
	end(&f);
}

static void a_cut_stream_begins_again_and_each_byte_is_handed_over_once(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_stream);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	end(&f);
}

/* Without an ETag, only the bytes show that the content has changed. */
static void a_stream_that_comes_back_different_is_noticed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, cut_stream);
	f.change_at = 3;

	assert_int_equal(-(int)PENSTOCK_E_CHANGED, fetch(&f));

	assert_int_equal(0, files_in(f.dir));
	end(&f);
}

static void ranges_without_a_validator_are_not_mixed(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, ranges_without_validator);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_false(f.result.ranges);
	end(&f);
}

static void a_resource_that_changes_is_fetched_anew_where_nothing_was_handed_over(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.change_at = 6;
	f.options.consume = NULL;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, two, SIZE);
	assert_int_equal(SIZE, f.progress);
	end(&f);
}

static void a_resource_that_changes_after_bytes_were_handed_over_is_an_error(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.change_at = 6;
	f.options.parallel = 1;

	assert_int_equal(-(int)PENSTOCK_E_CHANGED, fetch(&f));

	assert_true(f.consumed > 0);
	assert_int_equal(0, files_in(f.dir));
	assert_null(strstr(f.err.message, "verysecret"));
	end(&f);
}

static void repeated_bytes_are_refused(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, repeats);

	assert_true(fetch(&f) < 0);

	assert_true(f.err.code == PENSTOCK_E_PROTOCOL || f.err.code == PENSTOCK_E_CHANGED);
	end(&f);
}

static void an_empty_resource_becomes_an_empty_file(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve_nothing);

	assert_int_equal(0, fetch(&f));

	assert_file(&f, "", 0);
	end(&f);
}

/* If the fetch continued, the missing bytes of the range would never be requested again. */
static void a_range_that_is_too_short_ends_the_fetch(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, one_range_too_short);
	f.options.parallel = 1; /* so that earlier bytes were delivered */

	assert_int_equal(-(int)PENSTOCK_E_CHANGED, fetch(&f));

	assert_non_null(strstr(f.err.message, "1000 "));
	assert_non_null(strstr(f.err.message, "65536"));
	assert_int_equal(0, files_in(f.dir));
	end(&f);
}

static void a_server_whose_ranges_are_too_short_is_asked_for_the_whole(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, one_range_too_short);
	f.options.consume = NULL;

	assert_int_equal(0, fetch(&f));

	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.progress);
	end(&f);
}

static void a_refusal_names_the_input_but_not_its_query(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, refuse);

	assert_int_equal(-(int)PENSTOCK_E_PERMISSION, fetch(&f));

	assert_non_null(strstr(f.err.message, "archive%20one.tar.gz"));
	assert_null(strstr(f.err.message, "verysecret"));
	assert_int_equal(403, f.err.http_status);
	assert_int_equal(0, files_in(f.dir));
	end(&f);
}

static void the_sha256_decides(void **state)
{
	struct fixture f;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char hex[65];

	(void)state;
	begin(&f, serve);
	checksum_of(CHECKSUM_SHA256, one, SIZE, digest, NULL);
	str_hex(digest, 32, hex);
	f.options.sha256 = hex;
	assert_int_equal(0, fetch(&f));
	assert_string_equal(hex, f.result.sha256);
	http_fetch_result_release(&f.result);

	f.version = 1;
	f.expected = two;
	f.consumed = 0;
	assert_int_equal(-(int)PENSTOCK_E_CORRUPT, fetch(&f));

	/* The earlier good file is the only one. */
	assert_int_equal(1, files_in(f.dir));
	end(&f);
}

static void a_raised_cancel_flag_ends_it(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, serve);
	f.cancel = 1;

	assert_int_equal(-(int)PENSTOCK_E_CANCELLED, fetch(&f));
	end(&f);
}

static void a_second_fetch_of_the_same_file_is_refused(void **state)
{
	struct fixture f;
	char *part;
	int fd;

	(void)state;
	begin(&f, serve);
	part = part_of(&f, "");
	fd = open(part, O_RDWR | O_CREAT, 0600);
	assert_int_equal(0, flock(fd, LOCK_EX));

	assert_int_equal(-(int)PENSTOCK_E_EXISTS, fetch(&f));

	close(fd);
	free(part);
	end(&f);
}

static void local_files_are_copied_and_handed_over(void **state)
{
	struct fixture f;
	char *source;
	char url[200];

	(void)state;
	begin(&f, serve);
	source = path_join(f.dir, "source file.bin");
	assert_int_equal(0, fs_write_atomic(source, one, SIZE, 0600, NULL));
	snprintf(url, sizeof(url), "file://%s/source%%20file.bin", f.dir);
	f.options.name = "copy";

	assert_int_equal(0, http_fetch(f.engine, url, &f.options, &f.result, &f.err));
	assert_file(&f, one, SIZE);
	assert_int_equal(SIZE, f.consumed);
	http_fetch_result_release(&f.result);
	f.consumed = 0;
	assert_int_equal(0, http_fetch(f.engine, source, &f.options, &f.result, &f.err));
	assert_file(&f, one, SIZE);
	assert_int_equal(-(int)PENSTOCK_E_NOT_FOUND,
		http_fetch(f.engine, "/nowhere/at/all", &f.options, &f.result, &f.err));

	assert_int_equal(0, f.server.requests);
	free(source);
	end(&f);
}

static void names_come_from_the_path_of_the_url(void **state)
{
	static const char *const cases[][2] = {
		{"http://h/a/b.tar.gz?x=/y#z", "b.tar.gz"},
		{"http://h/a%20b%2Fc", "a b_c"},
		{"http://h/dir/", "dir"},
		{"http://h", "download"},
		{"http://h/?q", "download"},
		{"http://h/%2e%2e", "download"},
		{"http://h/bad%zz", "bad%zz"},
		{"http://h/line%0abreak", "line_break"},
		{"/plain/pa%20th", "pa%20th"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf name = BUF_INIT(1000);

		assert_int_equal(0, http_fetch_name(cases[i][0], &name));
		assert_string_equal(cases[i][1], buf_str(&name));
		buf_release(&name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_are_fetched_in_parallel_and_handed_over_in_order),
		cmocka_unit_test(cut_ranges_are_continued),
		cmocka_unit_test(a_server_without_ranges_gives_one_stream),
		cmocka_unit_test(a_positive_result_of_on_size_does_not_cut_a_stream),
		cmocka_unit_test(a_stream_of_unknown_length_ends_with_the_connection),
		cmocka_unit_test(a_cut_stream_begins_again_and_each_byte_is_handed_over_once),
		cmocka_unit_test(a_stream_that_comes_back_different_is_noticed),
		cmocka_unit_test(ranges_without_a_validator_are_not_mixed),
		cmocka_unit_test(
			a_resource_that_changes_is_fetched_anew_where_nothing_was_handed_over),
		cmocka_unit_test(a_resource_that_changes_after_bytes_were_handed_over_is_an_error),
		cmocka_unit_test(repeated_bytes_are_refused),
		cmocka_unit_test(a_range_that_is_too_short_ends_the_fetch),
		cmocka_unit_test(a_server_whose_ranges_are_too_short_is_asked_for_the_whole),
		cmocka_unit_test(an_empty_resource_becomes_an_empty_file),
		cmocka_unit_test(a_refusal_names_the_input_but_not_its_query),
		cmocka_unit_test(the_sha256_decides),
		cmocka_unit_test(a_raised_cancel_flag_ends_it),
		cmocka_unit_test(a_second_fetch_of_the_same_file_is_refused),
		cmocka_unit_test(local_files_are_copied_and_handed_over),
		cmocka_unit_test(names_come_from_the_path_of_the_url),
	};

	fill_data();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
