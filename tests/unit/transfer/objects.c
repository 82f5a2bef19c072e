/* Downloads, listings, deletions and errors, with stores that end replies early or send wrong
 * ones. */
#include "objects_fixture.h"

#include "base/cleanup.h"
#include "transfer/state/part_file.h"

#define OBJECT (300 * 1000)

/* ---- stores ---- */

/* Serves one object with the content `data`, also in ranges. f->text has additional headers; the
 * first f->trouble replies end early. */
static bool object_store(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0;
	uint64_t last = OBJECT - 1;
	bool head = strcmp(r->method, "HEAD") == 0;
	bool part = mini_range(r, OBJECT, &first, &last);

	f->heads += head;
	mini_printf(fd, "HTTP/1.1 %s\r\nETag: \"the etag\"\r\nContent-Length: %" PRIu64 "\r\n%s",
		part ? "206 Partial" : "200 OK", last - first + 1, f->text ? f->text : "");
	if (part)
		mini_printf(fd, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n", first, last,
			OBJECT);
	mini_printf(fd, "\r\n");
	if (head)
		return true;
	f->others++;
	if (f->trouble && f->trouble--) {
		mini_write(fd, data + first, (last - first + 1) / 2);
		return false;
	}
	return mini_write(fd, data + first, last - first + 1);
}

/* A captive portal replies 200 with a login page. */
static bool login_page(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	return mini_printf(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
			       "Content-Length: 6\r\n\r\n") &&
	       (strcmp(r->method, "HEAD") == 0 || mini_write(fd, "<html>", 6));
}

#define LARGE (LIMIT_GET_SINGLE + MIB)

/* Every range lacks its last byte, and its header lacks the object's size, so the headers do not
 * reveal the error. */
static bool short_ranges(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first = 0, last = LARGE - 1;

	(void)m;
	if (strcmp(r->method, "HEAD") == 0 || !mini_range(r, LARGE, &first, &last))
		return mini_printf(fd,
			"HTTP/1.1 200 OK\r\nETag: \"the etag\"\r\nContent-Length: %d\r\n\r\n",
			(int)LARGE);
	return mini_printf(fd,
		       "HTTP/1.1 206 Partial\r\nETag: \"the etag\"\r\nContent-Length: %" PRIu64
		       "\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/*\r\n\r\n",
		       last - first, first, last - 1) &&
	       mini_write(fd, data, last - first);
}

/* The first range is complete, but lacks the empty last chunk. */
static bool range_without_last_chunk(struct mini_http *m, const struct mini_request *r, int fd)
{
	uint64_t first = 0, last = OBJECT - 1;

	if (r->number > 1)
		return object_store(m, r, fd);
	mini_range(r, OBJECT, &first, &last);
	mini_printf(fd,
		"HTTP/1.1 206 Partial\r\nETag: \"the etag\"\r\nTransfer-Encoding: chunked\r\n"
		"Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n\r\n%" PRIx64 "\r\n",
		first, last, OBJECT, last - first + 1);
	mini_write(fd, data + first, last - first + 1);
	mini_write(fd, "\r\n", 2);
	return false;
}

static bool replaced_object(struct mini_http *m, const struct mini_request *r, int fd)
{
	(void)m;
	(void)r;
	return answer_error(fd, "412 Precondition Failed", "PreconditionFailed", "");
}

static bool says_error(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	(void)r;
	return answer_error(fd, "403 Forbidden", f->text, "");
}

static bool says_nonsense(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	(void)r;
	return mini_reply(fd, "200 OK", "", f->text, strlen(f->text));
}

/* The clock of this server is an hour fast. */
static bool other_clock(struct mini_http *m, const struct mini_request *r, int fd)
{
	char date[64] = "";
	char now[64];
	time_t ahead = time(NULL) + 3600;
	struct tm tm;
	char expected[32];

	(void)m;
	mini_header(r, "x-amz-date", date, sizeof(date));
	gmtime_r(&ahead, &tm);
	strftime(expected, sizeof(expected), "%Y%m%dT%H", &tm);
	strftime(now, sizeof(now), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
	if (strncmp(date, expected, strlen(expected)) != 0)
		return answer_error(fd, "403 Forbidden", "RequestTimeTooSkewed", now);
	return mini_reply(fd, "200 OK", "ETag: \"x\"\r\n", "fine", 4);
}

static bool busy_bucket(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	f->others++;
	if (f->trouble && f->trouble--)
		return answer_error(fd, "400 Bad Request", "RequestTimeout", "");
	return mini_serve(r, fd, "\"x\"", "fine", 4);
}

static bool listing_in_circles(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char page[] =
		"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same"
		"</NextContinuationToken></ListBucketResult>";

	(void)m;
	(void)r;
	return mini_reply(fd, "200 OK", "", page, strlen(page));
}

static bool deletes_but_one(struct mini_http *m, const struct mini_request *r, int fd)
{
	static const char result[] =
		"<DeleteResult><Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message>"
		"</Error></DeleteResult>";
	char md5[64];

	(void)m;
	if (!is(r, "POST", "?delete") || !mini_header(r, "Content-MD5", md5, sizeof(md5)))
		return answer_error(fd, "400 Bad Request", "InvalidRequest", "");
	return mini_reply(fd, "200 OK", "", result, strlen(result));
}

/* ---- tests ---- */

static char directory[] = "/tmp/penstock-objects-XXXXXX";

static char *in_directory(const char *name)
{
	return path_join(directory, name);
}

static int get_file(struct fixture *f, const struct object_get_options *options)
{
	char *path = in_directory("file");
	int r = object_get_file(object_at(f->s3, "b", "k"), path, options, &f->info, &f->err);

	free(path);
	return r;
}

static bool file_is(const char *name, const char *bytes, size_t len)
{
	struct buf got = BUF_INIT(SIZE);
	char *path = in_directory(name);
	bool same = fs_read(path, &got, NULL) == 0 && got.len == len &&
		    memcmp(got.data, bytes, len) == 0;

	unlink(path);
	free(path);
	buf_release(&got);
	return same;
}

static bool nothing_left(void)
{
	char *path = in_directory("file");
	char *part = NULL;
	bool none;

	assert_int_equal(0, part_file_first_name(path, &part, NULL));
	none = access(path, F_OK) < 0 && access(part, F_OK) < 0;

	free(path);
	free(part);
	return none;
}

static void sum_header(enum checksum_kind kind, const void *bytes, size_t len, char out[128])
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	checksum_of(kind, bytes, len, digest, NULL);
	checksum_format(kind, digest, text);
	snprintf(out, 128, "%s: %s\r\n", checksum_header(kind), text);
}

static void a_download_that_is_cut_goes_on_and_is_verified(void **state)
{
	struct fixture f;
	char header[128];

	(void)state;
	begin(&f, object_store);
	sum_header(CHECKSUM_CRC64NVME, data, OBJECT, header);
	f.text = header;
	f.trouble = 2;

	assert_int_equal(0, get_file(&f, NULL));

	assert_true(file_is("file", data, OBJECT));
	assert_int_equal(3, f.others);
	assert_int_equal(OBJECT, f.info.size);
	end(&f);
}

static void a_download_with_the_wrong_checksum_leaves_no_file(void **state)
{
	struct fixture f;
	char header[128];

	(void)state;
	begin(&f, object_store);
	f.text = header;
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++) {
		struct buf body = BUF_INIT(SIZE);

		sum_header((enum checksum_kind)k, data, OBJECT - 1, header);
		assert_int_equal(-(int)PENSTOCK_E_CORRUPT, get_file(&f, NULL));
		assert_true(nothing_left());
		assert_int_equal(-(int)PENSTOCK_E_CORRUPT,
			object_get(object_at(f.s3, "b", "k"), NULL, &body, NULL, &f.err));
		assert_int_equal(0, body.len);
		buf_release(&body);
	}
	end(&f);
}

static void a_download_with_any_right_checksum_is_complete(void **state)
{
	struct fixture f;
	char header[128];

	(void)state;
	begin(&f, object_store);
	f.text = header;
	for (int k = CHECKSUM_NONE + 1; k < CHECKSUM_KIND_COUNT_; k++) {
		sum_header((enum checksum_kind)k, data, OBJECT, header);
		assert_int_equal(0, get_file(&f, NULL));
		assert_true(file_is("file", data, OBJECT));
	}
	end(&f);
}

static void an_object_that_is_not_the_listed_one_is_refused(void **state)
{
	struct fixture f;
	struct object_info listed = {.size = OBJECT - 1, .etag = "\"the etag\""};

	(void)state;
	begin(&f, object_store);
	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		get_file(&f, &(struct object_get_options){.known = &listed}));
	listed.size = OBJECT + 1;
	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		get_file(&f, &(struct object_get_options){.known = &listed}));
	assert_true(nothing_left());
	end(&f);

	begin(&f, replaced_object);
	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		get_file(&f, &(struct object_get_options){.known = &listed}));
	assert_int_equal(-(int)PENSTOCK_E_PRECONDITION,
		get_file(&f, &(struct object_get_options){.known = &listed, .if_match = "\"x\""}));
	end(&f);
}

/* The listing has the size and the ETag, so one request is sufficient for each object. */
static void a_known_object_costs_one_request(void **state)
{
	struct fixture f;
	const struct object_info listed = {.size = OBJECT, .etag = "\"the etag\""};

	(void)state;
	begin(&f, object_store);

	assert_int_equal(0, get_file(&f, &(struct object_get_options){.known = &listed}));

	assert_int_equal(0, f.heads);
	assert_int_equal(1, f.others);
	assert_true(file_is("file", data, OBJECT));
	end(&f);
}

static void refusals_say_what_to_do(void **state)
{
	static const struct {
		const char *code;
		const char *says;
	} cases[] = {
		{"AccessDenied", "permission"},
		{"InvalidAccessKeyId", "access key id"},
		{"SignatureDoesNotMatch", "secret access key"},
		{"RequestTimeTooSkewed", "clock"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture f;
		struct buf body = BUF_INIT(100);

		begin(&f, says_error);
		f.text = cases[i].code;
		assert_int_equal(-(int)PENSTOCK_E_PERMISSION,
			object_get(object_at(f.s3, "b", "k"), NULL, &body, NULL, &f.err));
		assert_non_null(strstr(f.err.message, "s3://b/k"));
		assert_non_null(strstr(f.err.message, cases[i].code));
		assert_non_null(strstr(f.err.message, cases[i].says));
		assert_null(strstr(f.err.message, "very/secret"));
		assert_null(strstr(f.err.message, ".;"));
		assert_int_equal(403, f.err.http_status);
		assert_int_equal(1, f.server.requests);
		end(&f);
	}
}

static void a_wrong_clock_is_put_right_by_the_stores_own(void **state)
{
	struct fixture f;
	struct buf body = BUF_INIT(100);

	(void)state;
	begin(&f, other_clock);
	log_set_level(LOG_QUIET);

	assert_int_equal(0, object_get(object_at(f.s3, "b", "k"), NULL, &body, NULL, &f.err));

	log_set_level(LOG_INFO);
	assert_string_equal("fine", body.data);
	buf_release(&body);
	end(&f);
}

static void what_the_store_calls_a_timeout_is_tried_again(void **state)
{
	struct fixture f;
	struct buf body = BUF_INIT(100);

	(void)state;
	begin(&f, busy_bucket);
	f.trouble = 2;

	assert_int_equal(0, object_get(object_at(f.s3, "b", "k"), NULL, &body, NULL, &f.err));

	assert_int_equal(3, f.others);
	buf_release(&body);
	end(&f);
}

static int count_entries(void *cookie, const struct object_info *info)
{
	(void)info;
	++*(int *)cookie;
	return 0;
}

static void nonsense_instead_of_a_listing_is_an_error(void **state)
{
	static const char *const documents[] = {"<html>login</html>", "{}", "<ListBucketResult>",
		"<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult/>"};

	(void)state;
	for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
		struct fixture f;
		int n = 0;

		begin(&f, says_nonsense);
		f.text = documents[i];
		assert_int_equal(
			-(int)PENSTOCK_E_PROTOCOL, object_list(object_at(f.s3, "b", ""), NULL,
							   count_entries, &n, NULL, &f.err));
		assert_int_equal(0, n);
		end(&f);
	}
}

static void a_listing_that_does_not_get_on_ends(void **state)
{
	struct fixture f;
	int n = 0;

	(void)state;
	begin(&f, listing_in_circles);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		object_list(object_at(f.s3, "b", ""), NULL, count_entries, &n, NULL, &f.err));

	assert_int_equal(2, f.server.requests);
	end(&f);
}

static int add_to(void *cookie, const void *bytes, size_t len, struct penstock_error *err)
{
	(void)err;
	return buf_add(cookie, bytes, len);
}

static void a_web_page_is_no_object(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct fixture f;

	(void)state;
	begin(&f, login_page);

	assert_int_equal(-(int)PENSTOCK_E_PROTOCOL,
		object_get_stream(object_at(f.s3, "b", "k"), NULL, add_to, &out, &f.info, &f.err));
	assert_int_equal(0, out.len);
	end(&f);
}

static void a_range_that_is_too_short_is_no_success(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct fixture f;
	char path[] = "/tmp/short-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	begin(&f, short_ranges);

	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		object_get_file(object_at(f.s3, "b", "k"), path, NULL, &f.info, &f.err));
	assert_int_equal(-1, access(path, F_OK));
	penstock_error_release(&f.err);
	assert_int_equal(-(int)PENSTOCK_E_CHANGED,
		object_get_stream(object_at(f.s3, "b", "k"),
			&(struct object_get_options){.offset = 1, .length = 1000}, add_to, &out,
			&f.info, &f.err));
	assert_int_equal(0, out.len);
	end(&f);
}

/* The buffer gets exactly the requested bytes, within an object and at its end. */
static void a_range_to_memory_that_is_cut_behind_its_last_byte_has_its_length(void **state)
{
	const uint64_t offsets[] = {1000, OBJECT - 500};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
		struct fixture f;

		begin(&f, range_without_last_chunk);

		assert_int_equal(0,
			object_get(object_at(f.s3, "b", "k"),
				&(struct object_get_options){.offset = offsets[i], .length = 500},
				&out, NULL, &f.err));

		assert_int_equal(500, out.len);
		assert_memory_equal(data + offsets[i], out.data, 500);
		end(&f);
	}
}

static char failed_key[16];

static void on_failed(void *cookie, const char *key, const struct penstock_error *err)
{
	(void)cookie;
	assert_int_equal(PENSTOCK_E_PERMISSION, err->code);
	snprintf(failed_key, sizeof(failed_key), "%s", key);
}

static void keys_that_were_not_deleted_are_named(void **state)
{
	struct fixture f;
	struct strlist keys = {0};

	(void)state;
	begin(&f, deletes_but_one);
	strlist_add(&keys, "a");
	strlist_add(&keys, "b");

	assert_int_equal(-(int)PENSTOCK_E_PERMISSION,
		object_delete_many(
			&(struct object_deletion){f.s3, "b", &keys, NULL, on_failed, NULL}, NULL,
			&f.err));

	assert_string_equal("b", failed_key);
	strlist_release(&keys);
	end(&f);
}

static void names_that_no_store_takes_are_refused_at_once(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, object_store);

	assert_int_equal(
		-(int)PENSTOCK_E_INVALID, object_head(object_at(f.s3, "a/b", "k"), NULL, &f.err));
	assert_int_equal(
		-(int)PENSTOCK_E_INVALID, object_head(object_at(f.s3, "b", ""), NULL, &f.err));
	assert_int_equal(-(int)PENSTOCK_E_INVALID,
		object_put(object_at(f.s3, "b", "k"), "x", 1,
			&(struct object_put_options){.content_type = "a\r\nX-Evil: 1"}, NULL,
			&f.err));

	assert_int_equal(0, f.server.requests);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_download_that_is_cut_goes_on_and_is_verified),
		cmocka_unit_test(a_download_with_the_wrong_checksum_leaves_no_file),
		cmocka_unit_test(a_download_with_any_right_checksum_is_complete),
		cmocka_unit_test(an_object_that_is_not_the_listed_one_is_refused),
		cmocka_unit_test(a_known_object_costs_one_request),
		cmocka_unit_test(refusals_say_what_to_do),
		cmocka_unit_test(a_wrong_clock_is_put_right_by_the_stores_own),
		cmocka_unit_test(what_the_store_calls_a_timeout_is_tried_again),
		cmocka_unit_test(nonsense_instead_of_a_listing_is_an_error),
		cmocka_unit_test(a_listing_that_does_not_get_on_ends),
		cmocka_unit_test(a_web_page_is_no_object),
		cmocka_unit_test(a_range_that_is_too_short_is_no_success),
		cmocka_unit_test(a_range_to_memory_that_is_cut_behind_its_last_byte_has_its_length),
		cmocka_unit_test(keys_that_were_not_deleted_are_named),
		cmocka_unit_test(names_that_no_store_takes_are_refused_at_once),
	};
	int r;

	if (!mkdtemp(directory))
		return 1;
	fill_data();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	fs_remove_tree(directory, NULL);
	return r;
}
