/* Comparison of a file with an object by content, and the number of requests that it takes. */
#include "transfer/compare/content.h"

#include "objects_fixture.h"

#include <sys/stat.h>

#include "base/cleanup.h"
#include "s3/multipart.h"

#define PARTS_SIZE ((size_t)12 * 1024 * 1024)

static char dir[64];
static char sum_header[192]; /* an additional header in the store's replies to HEAD */

static bool answer(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;

	if (strcmp(r->method, "HEAD") != 0)
		return mini_reply(fd, "400 Bad Request", "", "", 0);
	atomic_fetch_add(&f->heads, 1);
	return mini_printf(
		fd, "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n%s\r\n", sum_header);
}

static int set_up(void **state)
{
	(void)state;
	fill_data();
	sum_header[0] = '\0';
	snprintf(dir, sizeof(dir), "/tmp/penstock-content-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return fs_remove_tree(dir, NULL);
}

static void make_file(const char *name, const void *content, size_t size)
{
	_cleanup_free_ char *path = path_join(dir, name);

	assert_int_equal(0, fs_write_atomic(path, content, size, 0600, NULL));
}

/* Returns the verdict on the file "f" and an object with that ETag; at most `heads` requests may be
 * sent. */
static int verdict(const char *etag, size_t size, unsigned heads)
{
	struct fixture f;
	struct entry file = {.path = "f", .path_len = 1, .size = size};
	struct entry object = {
		.path = "f", .path_len = 1, .size = size, .key = "p/f", .etag = etag};
	int down, up;

	begin(&f, answer);
	struct compare_side files = {.directory = dir},
			    objects = {.client = f.s3, .bucket = "bucket"};

	up = compare_content(
		&(struct compare_rules){.checksum = true, .from = files, .to = objects}, &file,
		&object, &f.err);
	down = compare_content(
		&(struct compare_rules){.checksum = true, .from = objects, .to = files}, &object,
		&file, &f.err);
	assert_int_equal(up, down);
	assert_int_equal(2 * heads, f.heads);
	end(&f);
	return up;
}

/* An ETag that is the MD5 needs no request. */
static void plain_etags_decide(void **state)
{
	char etag[35];

	(void)state;
	make_file("f", data, 1000);
	md5_etag(data, 1000, etag);
	assert_int_equal(1, verdict(etag, 1000, 0));
	md5_etag(data, 999, etag);
	assert_int_equal(0, verdict(etag, 1000, 1));
}

static void etag_of_parts(size_t part, char out[static MULTIPART_ETAG_SIZE])
{
	uint8_t digests[16][16], digest[CHECKSUM_MAX_SIZE];
	size_t n = 0;

	for (size_t at = 0; at < PARTS_SIZE; at += part, n++) {
		checksum_of(CHECKSUM_MD5, data + at,
			PARTS_SIZE - at < part ? PARTS_SIZE - at : part, digest, NULL);
		memcpy(digests[n], digest, 16);
	}
	assert_int_equal(0, multipart_etag((const uint8_t(*)[16])digests, n, out, NULL));
}

/* The ETag of a multipart upload is recomputed with each usual part size that gives the same number
 * of parts. */
static void etags_of_parts_decide(void **state)
{
	static const size_t sizes[] = {
		8 * 1024 * 1024, 5 * 1024 * 1024, 10 * 1024 * 1024, 3 * 1024 * 1024};
	char etag[MULTIPART_ETAG_SIZE];

	(void)state;
	make_file("f", data, PARTS_SIZE);
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		etag_of_parts(sizes[i], etag);
		assert_int_equal(1, verdict(etag, PARTS_SIZE, 0));
	}
	etag[5] = etag[5] == '0' ? '1' : '0';
	assert_int_equal(0, verdict(etag, PARTS_SIZE, 1));
}

/* If the ETag does not depend on the content, the store's checksum decides, at the cost of one
 * request. Without a checksum, the file counts as different. */
static void checksums_decide_at_last(void **state)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	(void)state;
	make_file("f", data, 1000);
	assert_int_equal(0, verdict("\"encrypted\"", 1000, 1));
	checksum_of(CHECKSUM_CRC64NVME, data, 1000, digest, NULL);
	checksum_format(CHECKSUM_CRC64NVME, digest, text);
	snprintf(sum_header, sizeof(sum_header),
		"x-amz-checksum-crc64nvme: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n", text);
	assert_int_equal(1, verdict("\"encrypted\"", 1000, 1));
	assert_int_equal(1, verdict("", 1000, 1));
	make_file("f", data + 1, 1000);
	assert_int_equal(0, verdict("\"encrypted\"", 1000, 1));
}

/* A file that is missing or ends early differs from its object, and the comparison of other files
 * continues. */
static void an_unreadable_file_counts_as_different(void **state)
{
	char etag[35];

	(void)state;
	md5_etag(data, 1000, etag);
	assert_int_equal(0, verdict(etag, 1000, 0));
	make_file("f", data, 999);
	assert_int_equal(0, verdict(etag, 1000, 0));
}

/* Both files are read; a file that gets shorter meanwhile is an error. */
static void files_are_read(void **state)
{
	const struct compare_side side = {.directory = dir};
	const struct compare_rules rules = {.checksum = true, .from = side, .to = side};
	const struct entry a = {.path = "a", .size = PARTS_SIZE},
			   b = {.path = "b", .size = PARTS_SIZE};
	const struct entry missing = {.path = "c", .size = PARTS_SIZE};

	(void)state;
	make_file("a", data, PARTS_SIZE);
	make_file("b", data, PARTS_SIZE);
	assert_int_equal(1, compare_content(&rules, &a, &b, NULL));
	data[PARTS_SIZE - 1]++;
	make_file("b", data, PARTS_SIZE);
	assert_int_equal(0, compare_content(&rules, &a, &b, NULL));
	make_file("b", data, PARTS_SIZE - 1);
	assert_int_equal(-PENSTOCK_E_CHANGED, compare_content(&rules, &a, &b, NULL));
	assert_int_equal(-PENSTOCK_E_NOT_FOUND, compare_content(&rules, &a, &missing, NULL));
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const struct CMUnitTest tests[] = {
	IN_DIR(plain_etags_decide),
	IN_DIR(etags_of_parts_decide),
	IN_DIR(checksums_decide_at_last),
	IN_DIR(an_unreadable_file_counts_as_different),
	IN_DIR(files_are_read),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
