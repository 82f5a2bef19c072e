/* Objects that were uploaded in parts, in stores that describe the parts completely, partly or not
 * at all. Each way of fetching detects damaged bytes. */
#include "objects_fixture.h"
#include "s3/multipart.h"
#include "transfer/client/internal.h"
#include "transfer/compare/object.h"

#define SMALL  300000
#define PART   100000
#define DAMAGE (PART + 1234) /* offset of the damaged byte */

struct shape {
	const char *name;
	uint64_t size;
	uint64_t part;
	uint64_t second; /* size of the second part; 0 if equal */
	bool empty_last; /* there is another part, which is empty */
	bool odd_etag; /* the ETag does not consist of MD5s */
	bool sums; /* each part has a CRC32 */
	bool denied; /* the store does not return the sums */
	bool keyed; /* encrypted with a customer's key */
	bool unverified; /* damage cannot be detected */
};

static const struct shape shapes[] = {
	{"an ETag of MD5s", SMALL - 1, PART},
	{"the last part empty", SMALL, PART, .empty_last = true},
	{"one part", SMALL, SMALL},
	/* Neither the size of the first part nor the number of parts shows that the sizes
	 * differ. */
	{"parts of two sizes", 2 * PART + 50000, PART, .second = 50000, .unverified = true},
	{"the last part as expected", 3 * PART + 50000, PART, .second = 50000, .unverified = true},
	{"checksums of parts", SMALL, PART, .sums = true, .odd_etag = true},
	{"checksums that are not returned", SMALL, PART, .sums = true, .denied = true},
	{"checksums, and a key", SMALL, PART, .sums = true, .odd_etag = true, .keyed = true},
	{"a key", SMALL, PART, .odd_etag = true, .keyed = true, .unverified = true},
	/* Large objects, which are fetched into a file in ranges. */
	{"parts within our blocks", 34 * MIB, 5000001, .sums = true, .odd_etag = true},
	{"many parts, the last empty", 35 * MIB, 5 * MIB, .sums = true, .odd_etag = true,
		.empty_last = true},
	{"many parts, an ETag of MD5s", 34 * MIB, 5 * MIB},
};

/* ---- the store ---- */

static const struct shape *shape;
static char *object;
static char etag[MULTIPART_ETAG_SIZE];
static struct buf attributes = BUF_INIT(MIB);

static unsigned part_count(void)
{
	return (unsigned)(multipart_count(shape->size, shape->part) + shape->empty_last);
}

/* Gets the offset of the i-th part. Returns its size. */
static uint64_t find_part(unsigned i, uint64_t *offset)
{
	uint64_t part = i == 1 && shape->second ? shape->second : shape->part;
	uint64_t missing = i > 1 && shape->second ? shape->part - shape->second : 0;
	uint64_t at = i * shape->part - missing;

	*offset = at < shape->size ? at : shape->size;
	/* If the parts have two sizes, the last part has the rest. */
	if (i + 1 == part_count())
		part = shape->size - *offset;
	return shape->size - *offset < part ? shape->size - *offset : part;
}

static void make_object(const struct shape *of)
{
	uint8_t md5s[16][16];
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	shape = of;
	object = malloc(shape->size);
	assert_non_null(object);
	for (uint64_t at = 0; at < shape->size; at += SIZE)
		memcpy(object + at, data, shape->size - at < SIZE ? shape->size - at : SIZE);
	buf_clear(&attributes);
	for (unsigned i = 0; i < part_count(); i++) {
		uint64_t at, n = find_part(i, &at);

		assert_int_equal(0, checksum_of(CHECKSUM_MD5, object + at, n, digest, NULL));
		memcpy(md5s[i], digest, 16);
		assert_int_equal(0, checksum_of(CHECKSUM_CRC32, object + at, n, digest, NULL));
		checksum_format(CHECKSUM_CRC32, digest, text);
		buf_printf(&attributes,
			"<Part><PartNumber>%u</PartNumber><Size>%" PRIu64 "</Size>"
			"<ChecksumCRC32>%s</ChecksumCRC32></Part>",
			i + 1, n, text);
	}
	if (shape->odd_etag)
		memset(md5s, 'x', sizeof(md5s));
	assert_int_equal(0, multipart_etag((const uint8_t(*)[16])md5s, part_count(), etag, NULL));
}

static bool tell_parts(int fd)
{
	struct buf xml = BUF_INIT(MIB);
	bool keep;

	if (!shape->sums || shape->denied)
		return answer_error(fd, "403 Forbidden", "AccessDenied", "");
	buf_printf(&xml,
		"<GetObjectAttributesResponse><ETag>%.*s</ETag><ObjectParts>"
		"<IsTruncated>false</IsTruncated>%s</ObjectParts></GetObjectAttributesResponse>",
		(int)strlen(etag) - 2, etag + 1, buf_str(&attributes));
	keep = mini_reply(
		fd, "200 OK", "Content-Type: application/xml\r\n", buf_str(&xml), xml.len);
	buf_release(&xml);
	return keep;
}

/* f->trouble is the number of replies with the wrong byte, f->others the number of GETs of
 * bytes. */
static bool parts_store(struct mini_http *m, const struct mini_request *r, int fd)
{
	struct fixture *f = m->cookie;
	uint64_t first = 0, last = shape->size - 1;
	bool head = strcmp(r->method, "HEAD") == 0;
	bool ranged = mini_range(r, shape->size, &first, &last);
	const char *number;
	uint64_t ignored;

	if (strstr(r->target, "attributes"))
		return tell_parts(fd);
	number = strstr(r->target, "partNumber=");
	if (number)
		last = first +
		       find_part((unsigned)atoi(number + strlen("partNumber=")) - 1, &ignored) - 1;
	mini_printf(fd, "HTTP/1.1 %s\r\nETag: %s\r\nContent-Length: %" PRIu64 "\r\n%s%s",
		ranged ? "206 Partial" : "200 OK", etag, last - first + 1,
		shape->sums ? "x-amz-checksum-crc32: AAAAAA==-3\r\n"
			      "x-amz-checksum-type: COMPOSITE\r\n"
			    : "",
		shape->keyed ? "x-amz-server-side-encryption: aws:kms\r\n" : "");
	if (ranged)
		mini_printf(fd, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n",
			first, last, shape->size);
	mini_printf(fd, "\r\n");
	if (head)
		return true;
	f->others++;
	if (first <= DAMAGE && DAMAGE <= last && f->trouble) {
		char wrong = (char)(object[DAMAGE] ^ 1);

		f->trouble--;
		return mini_write(fd, object + first, DAMAGE - first) &&
		       mini_write(fd, &wrong, 1) &&
		       mini_write(fd, object + DAMAGE + 1, last - DAMAGE);
	}
	return mini_write(fd, object + first, last - first + 1);
}

/* ---- ways to fetch ---- */

static char directory[] = "/tmp/penstock-get-parts-XXXXXX";

static int to_memory(struct fixture *f, struct buf *out)
{
	return object_get(object_at(f->s3, "b", "k"), NULL, out, &f->info, &f->err);
}

static int to_file(struct fixture *f, struct buf *out)
{
	char path[64];
	int r;

	snprintf(path, sizeof(path), "%s/file", directory);
	r = object_get_file(object_at(f->s3, "b", "k"), path, NULL, &f->info, &f->err);
	if (r == 0)
		assert_int_equal(0, fs_read(path, out, NULL));
	else
		assert_int_equal(-1, access(path, F_OK));
	unlink(path);
	return r;
}

static int append(void *cookie, const void *bytes, size_t len, struct penstock_error *err)
{
	(void)err;
	return buf_add(cookie, bytes, len);
}

static int to_stream(struct fixture *f, struct buf *out)
{
	return object_get_stream(object_at(f->s3, "b", "k"), NULL, append, out, &f->info, &f->err);
}

static const struct way {
	const char *name;
	int (*fetch)(struct fixture *f, struct buf *out);
	bool hands_over; /* delivered bytes cannot be replaced */
} ways[] = {{"memory", to_memory}, {"file", to_file}, {"stream", to_stream, true}};

static int fetch(const struct way *way, unsigned damaged, struct fixture *f, struct buf *out)
{
	begin(f, parts_store);
	/* Simulates that an earlier object's ETag consisted of MD5s. */
	atomic_store(&f->s3->md5_etags, shape->second != 0);
	f->trouble = damaged;
	return way->fetch(f, out);
}

static void for_each(void (*check)(const struct way *way))
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		make_object(&shapes[i]);
		for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			bool ranges = shape->size > LIMIT_GET_SINGLE;

			log_debug("%s to %s", shape->name, ways[w].name);
			if (!ranges || ways[w].fetch == to_file)
				check(&ways[w]);
		}
		free(object);
	}
}

/* ---- tests ---- */

static void comes_whole(const struct way *way)
{
	struct buf got = BUF_INIT(64 * MIB);
	struct fixture f;

	assert_int_equal(0, fetch(way, 0, &f, &got));

	assert_int_equal(shape->size, got.len);
	assert_memory_equal(object, got.data, got.len);
	if (shape->size <= LIMIT_GET_SINGLE && !way->hands_over)
		assert_int_equal(1, f.others);
	buf_release(&got);
	end(&f);
}

static void what_is_whole_is_fetched_once(void **state)
{
	(void)state;
	for_each(comes_whole);
}

static void damage_is_found(const struct way *way)
{
	struct buf got = BUF_INIT(64 * MIB);
	struct fixture f;
	int r = fetch(way, 1, &f, &got);

	if (shape->unverified) {
		assert_int_equal(0, r);
	} else if (way->hands_over) {
		assert_int_equal(-(int)PENSTOCK_E_CORRUPT, r);
		assert_non_null(strstr(f.err.message, "s3://b/k"));
	} else {
		assert_int_equal(0, r);
		assert_memory_equal(object, got.data, got.len);
	}
	assert_int_equal(0, f.trouble);
	buf_release(&got);
	end(&f);
}

static void what_came_damaged_is_fetched_again(void **state)
{
	(void)state;
	for_each(damage_is_found);
}

static void damage_that_stays_is_refused(const struct way *way)
{
	struct buf got = BUF_INIT(64 * MIB);
	struct fixture f;
	int r;

	if (shape->unverified)
		return;
	/* After a good fetch, the client knows if the store's ETags consist of MD5s. Without this
	 * knowledge, two equal replies would be accepted as the object. */
	begin(&f, parts_store);
	assert_int_equal(0, way->fetch(&f, &got));
	buf_clear(&got);
	object_info_release(&f.info);
	f.info = (struct object_info){0};
	f.trouble = 1000;
	r = way->fetch(&f, &got);

	assert_int_equal(-(int)PENSTOCK_E_CORRUPT, r);
	assert_non_null(strstr(f.err.message, "s3://b/k"));
	if (way->fetch == to_memory)
		assert_int_equal(0, got.len);
	buf_release(&got);
	end(&f);
}

static void what_is_damaged_each_time_is_an_error(void **state)
{
	(void)state;
	for_each(damage_that_stays_is_refused);
}

/* The store has ETags that are no MD5s, and no checksums. */
static void an_etag_that_fits_nothing_is_no_proof(void **state)
{
	static const struct shape odd = {"an odd ETag", SMALL, PART, .odd_etag = true};

	(void)state;
	make_object(&odd);
	for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
		struct buf got = BUF_INIT(64 * MIB);
		struct fixture f;

		assert_int_equal(0, fetch(&ways[w], 0, &f, &got));
		assert_memory_equal(object, got.data, SMALL);
		buf_release(&got);
		end(&f);
	}
	free(object);
}

static int append_and_count(void *cookie, const void *bytes, size_t len, struct penstock_error *err)
{
	int r = append(cookie, bytes, len, err);

	return r < 0 ? r : 1;
}

/* Only a negative code stops the stream. */
static void a_positive_result_of_the_callback_does_not_cut_a_stream(void **state)
{
	static const struct shape two_pieces = {
		"two pieces", LIMIT_STREAM_RANGE + PART, LIMIT_STREAM_RANGE};
	struct buf got = BUF_INIT(64 * MIB);
	struct fixture f;

	(void)state;
	make_object(&two_pieces);
	begin(&f, parts_store);

	assert_int_equal(0, object_get_stream(object_at(f.s3, "b", "k"), NULL, append_and_count,
				    &got, &f.info, &f.err));

	assert_int_equal(shape->size, got.len);
	buf_release(&got);
	end(&f);
	free(object);
}

/* A restore compares an existing file with its object in this way before it fetches the object. */
static void a_file_is_compared_with_what_is_known_of_the_object(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		struct fixture f;
		char other;
		int fd;

		if (shapes[i].size > SIZE)
			continue;
		make_object(&shapes[i]);
		begin(&f, parts_store);
		fd = memfd_create("file", 0);
		assert_int_equal(0, fs_write_all(fd, object, shape->size));

		assert_int_equal(
			!shape->unverified, compare_with_object(fd, shape->size,
						    object_at(f.s3, "b", "k"), etag, NULL, &f.err));
		assert_int_equal(0, compare_with_object(fd, shape->size, object_at(f.s3, "b", "k"),
					    "\"of another\"", NULL, &f.err));
		assert_int_equal(0, compare_with_object(fd, shape->size - 1,
					    object_at(f.s3, "b", "k"), etag, NULL, &f.err));
		other = (char)(object[DAMAGE] ^ 1);
		assert_int_equal(1, pwrite(fd, &other, 1, DAMAGE));
		assert_int_equal(0, compare_with_object(fd, shape->size, object_at(f.s3, "b", "k"),
					    etag, NULL, &f.err));
		assert_int_equal(0, f.others);
		close(fd);
		end(&f);
		free(object);
	}
}

static int set_up(void **state)
{
	(void)state;
	fill_data();
	return mkdtemp(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	buf_release(&attributes);
	return fs_remove_tree(directory, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_whole_is_fetched_once),
		cmocka_unit_test(what_came_damaged_is_fetched_again),
		cmocka_unit_test(what_is_damaged_each_time_is_an_error),
		cmocka_unit_test(an_etag_that_fits_nothing_is_no_proof),
		cmocka_unit_test(a_positive_result_of_the_callback_does_not_cut_a_stream),
		cmocka_unit_test(a_file_is_compared_with_what_is_known_of_the_object),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
