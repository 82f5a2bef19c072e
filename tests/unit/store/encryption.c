/* Bodies that are encrypted on disk, and their keys. */
#include "fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "store/crypt/crypt.h"

#define CHUNK  ((size_t)CRYPT_CHUNK)
#define SECRET "the secret of the body "

static const struct store_key key_a = {{1, 2, 3}}, key_b = {{3, 2, 1}};

static char *text_of(size_t size)
{
	char *text = malloc(size + 1);

	for (size_t i = 0; i < size; i++)
		text[i] = i % 1000 < strlen(SECRET) ? SECRET[i % 1000] : (char)('a' + i * i % 23);
	text[size] = '\0';
	return text;
}

static void headers_of(const struct store_key *customer, char out[256], size_t *len)
{
	char text[STORE_ENCRYPTION_SIZE];

	assert_int_equal(store_encryption_format(customer, text, NULL), 0);
	*len = strlen(STORE_ENCRYPTION_HEADER) + strlen(text) + 2;
	memcpy(out, STORE_ENCRYPTION_HEADER, sizeof(STORE_ENCRYPTION_HEADER));
	memcpy(out + sizeof(STORE_ENCRYPTION_HEADER), text, strlen(text) + 1);
}

/* Returns an encrypted body that was written in pieces of `step` bytes. */
static struct store_body *sealed_body(struct fixture *f, const char *text, size_t len, size_t step,
	bool may_inline, const struct store_key *customer)
{
	struct store_body *body = NULL;

	assert_int_equal(store_body_new(f->store, step == len ? len : STORE_SIZE_UNKNOWN,
				 may_inline, &body, NULL),
		0);
	assert_int_equal(store_body_encrypt(body, customer, NULL), 0);
	for (size_t at = 0; at < len; at += step)
		assert_int_equal(
			store_body_write(body, text + at, len - at < step ? len - at : step, NULL),
			0);
	return body;
}

static void put_sealed(struct fixture *f, const char *key, const char *text, size_t len,
	size_t step, const struct store_key *customer)
{
	char headers[256];
	struct store_put p = {.bucket = "b", .key = key, .etag = "e", .headers = headers};

	headers_of(customer, headers, &p.headers_len);
	p.body = sealed_body(f, text, len, step, true, customer);
	assert_int_equal(store_body_sync(p.body, NULL), 0);
	assert_int_equal(store_put(f->store, &p, NULL), STORE_OK);
	store_body_free(p.body);
}

/* Returns the number of bytes that were read, or -1. */
static ssize_t read_range(struct store_object *object, const struct store_key *customer,
	uint64_t offset, char *out, size_t len)
{
	struct store_reader *reader = NULL;
	ssize_t n;

	assert_int_equal(store_reader_new(object, &reader, NULL), 0);
	if (customer)
		store_reader_set_key(reader, customer);
	n = store_reader_read(reader, offset, out, len, NULL);
	store_reader_free(reader);
	return n;
}

static void assert_reads(struct fixture *f, const char *key, const char *text, size_t len,
	const struct store_key *customer)
{
	const size_t cuts[] = {0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, len / 2, len};
	struct store_object *object = get(f, key);
	char *got = malloc(len + 1);

	assert_int_equal(object->size, len);
	for (size_t i = 0; i < ARRAY_SIZE(cuts); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(cuts); k++) {
			size_t from = cuts[i] < len ? cuts[i] : len;
			size_t n = cuts[k] < len - from ? cuts[k] : len - from;

			assert_int_equal(read_range(object, customer, from, got, n), n);
			assert_memory_equal(got, text + from, n);
		}
	}
	free(got);
	store_object_unref(object);
}

static bool file_has(const char *path, const char *needle)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	char *text;
	bool has;

	if (fd < 0)
		return false;
	assert_int_equal(fstat(fd, &st), 0);
	text = malloc((size_t)st.st_size + 1);
	assert_int_equal(read(fd, text, (size_t)st.st_size), st.st_size);
	has = memmem(text, (size_t)st.st_size, needle, strlen(needle)) != NULL;
	free(text);
	close(fd);
	return has;
}

/* Gets the path of the n-th data file. */
static bool data_file(struct fixture *f, size_t n, char out[128])
{
	snprintf(out, 128, "%s/data/00/%016zx", f->root, n);
	return access(out, F_OK) == 0;
}

static bool disk_has(struct fixture *f, const char *needle)
{
	static const char *const names[] = {"meta.db", "meta.db-wal"};
	char path[128];
	bool has = false;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", f->root, names[i]);
		has = has || file_has(path, needle);
	}
	for (size_t i = 0; i < 40; i++)
		has = has || (data_file(f, i, path) && file_has(path, needle));
	return has;
}

/* Encrypted bytes of any length are read back, completely and in ranges, even after a restart. The
 * disk never has the plaintext. */
static void encrypted_bytes_are_read_as_they_were_written(void **state)
{
	struct fixture *f = *state;
	const size_t sizes[] = {0, 1, 4096, STORE_INLINE_MAX, STORE_INLINE_MAX + 1, 2 * CHUNK,
		9 * CHUNK + 77, 600 * KIB, 1 * MIB + 1};
	const size_t steps[] = {1000, CHUNK, 70000, SIZE_MAX};
	const struct store_key *const keys[] = {NULL, &key_a};

	assert_false(disk_has(f, SECRET));
	put(f, "clear", "e", SECRET);
	assert_true(disk_has(f, SECRET));
	assert_int_equal(
		store_delete(f->store, "b", 0, &(struct store_delete){.key = "clear"}, 1, NULL),
		STORE_OK);
	teardown(state);
	setup(state);
	f = *state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *text = text_of(sizes[i]);

		for (size_t k = 0; k < ARRAY_SIZE(steps) * ARRAY_SIZE(keys); k++) {
			const struct store_key *customer = keys[k % 2];
			size_t step = steps[k / 2] == SIZE_MAX ? sizes[i] : steps[k / 2];

			put_sealed(f, "k", text, sizes[i], step ? step : 1, customer);
			assert_reads(f, "k", text, sizes[i], customer);
			store_close(f->store);
			fixture_open(f, false);
			assert_reads(f, "k", text, sizes[i], customer);
			assert_false(disk_has(f, SECRET));
		}
		free(text);
	}
}

/* All bytes of a body can be read before its sync, which writes the last chunk to the file. */
static void an_encrypted_body_is_read_before_it_is_complete(void **state)
{
	struct fixture *f = *state;
	size_t size = 3 * CHUNK + 100;
	char *text = text_of(size), *got = malloc(size);
	struct store_body *body = sealed_body(f, text, size, 1000, false, &key_a);

	for (size_t at = 0; at < size; at += 700) {
		size_t n = size - at < 700 ? size - at : 700;

		assert_int_equal(store_body_read(body, at, got, n, NULL), 0);
		assert_memory_equal(got, text + at, n);
	}
	assert_true(store_body_read(body, size - 1, got, 2, NULL) < 0);
	store_body_free(body);
	free(text);
	free(got);
}

/* With the key of another customer, or without a key, no object can be read, small or large. */
static void another_key_reads_nothing(void **state)
{
	struct fixture *f = *state;
	const size_t sizes[] = {10, 2 * CHUNK};
	bool same = false;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char *text = text_of(sizes[i]), got[10];
		struct store_object *object;
		const char *header;

		put_sealed(f, "k", text, sizes[i], sizes[i], &key_a);
		object = get(f, "k");
		header = store_object_header(object, STORE_ENCRYPTION_HEADER);

		assert_int_equal(object->encryption, STORE_CUSTOMER_KEY);
		assert_null(store_object_map(object, 0, 10));
		assert_int_equal(store_encryption_check(header, &key_a, &same, NULL), 0);
		assert_true(same);
		assert_int_equal(store_encryption_check(header, &key_b, &same, NULL), 0);
		assert_false(same);
		assert_int_equal(read_range(object, &key_a, 0, got, 10), 10);
		assert_int_equal(read_range(object, &key_b, 0, got, 10), -1);
		assert_int_equal(read_range(object, NULL, 0, got, 10), -1);
		store_object_unref(object);
		free(text);
	}
}

/* Changed, moved and missing bytes of a file are detected, and other chunks are still read. */
static void damage_is_found(void **state)
{
	struct fixture *f = *state;
	size_t size = 4 * CHUNK;
	char *text = text_of(size), *got = malloc(size), path[128];
	uint8_t stored[2 * CRYPT_STRIDE];
	struct store_object *object;
	int fd;

	put_sealed(f, "k", text, size, size, NULL);
	assert_true(data_file(f, 1, path));
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, stored, sizeof(stored), 0), sizeof(stored));
	object = get(f, "k");

	stored[5] ^= 1;
	assert_int_equal(pwrite(fd, stored, 6, 0), 6);
	assert_int_equal(read_range(object, NULL, 0, got, 1), -1);
	assert_int_equal(read_range(object, NULL, CHUNK, got, size), size - CHUNK);
	stored[5] ^= 1;
	assert_int_equal(pwrite(fd, stored, CRYPT_STRIDE, CRYPT_STRIDE), CRYPT_STRIDE);
	assert_int_equal(pwrite(fd, stored, CRYPT_STRIDE, 0), CRYPT_STRIDE);
	assert_int_equal(read_range(object, NULL, CHUNK, got, 1), -1);
	assert_int_equal(read_range(object, NULL, 0, got, 1), 1);
	assert_int_equal(ftruncate(fd, 3 * CRYPT_STRIDE + 9), 0);
	assert_int_equal(read_range(object, NULL, 3 * CHUNK, got, 1), -1);
	assert_int_equal(ftruncate(fd, 3 * CRYPT_STRIDE), 0);
	assert_int_equal(read_range(object, NULL, 3 * CHUNK, got, 1), -1);
	store_object_unref(object);
	close(fd);
	free(text);
	free(got);
}

static struct store_part sealed_part(
	struct fixture *f, const char *id, uint32_t number, const char *text, size_t len)
{
	struct store_part part = {.number = number, .etag = "e"};
	struct store_part_put p = {
		.put = {.bucket = "b", .key = "k", .etag = "e"}, .upload = id, .number = number};

	p.put.body = sealed_body(f, text, len, len, false, NULL);
	assert_int_equal(store_body_sync(p.put.body, NULL), 0);
	assert_int_equal(store_part_put(f->store, &p, NULL), STORE_OK);
	store_body_free(p.put.body);
	return part;
}

/* A completed object has the files of its parts, each with a separate key. Copies share these
 * files, and so do parts that copy a range. */
static void parts_and_copies_share_encrypted_files(void **state)
{
	struct fixture *f = *state;
	size_t size = LIMIT_S3_PART_MIN + 5000;
	char *text = text_of(size), *got = malloc(2 * size), headers[256];
	char id[STORE_UPLOAD_ID_SIZE];
	struct store_part parts[3];
	struct store_upload upload = {.headers = headers};
	struct store_complete done = {.bucket = "b",
		.key = "k",
		.upload = id,
		.parts = parts,
		.n_parts = 2,
		.etag = "e-2"};
	struct store_object *object;

	headers_of(NULL, headers, &upload.headers_len);
	assert_int_equal(store_upload_create(f->store, "b", 0, "k", &upload, id, NULL), STORE_OK);
	parts[0] = sealed_part(f, id, 1, text, size);
	parts[1] = sealed_part(f, id, 2, text, size);
	assert_int_equal(store_complete(f->store, &done, NULL), STORE_OK);

	object = get(f, "k");
	assert_int_equal(read_range(object, NULL, 0, got, 2 * size), 2 * size);
	assert_memory_equal(got, text, size);
	assert_memory_equal(got + size, text, size);
	assert_true(store_object_is_shareable(object, STORE_OWN_KEY));
	assert_false(store_object_is_shareable(object, STORE_PLAIN));
	assert_int_equal(store_put(f->store,
				 &(struct store_put){.bucket = "b",
					 .key = "copy",
					 .source = object,
					 .etag = "e",
					 .headers = headers,
					 .headers_len = upload.headers_len},
				 NULL),
		STORE_OK);
	assert_int_equal(store_upload_create(f->store, "b", 0, "k", &upload, id, NULL), STORE_OK);
	parts[2] = (struct store_part){.number = 1, .etag = "e"};
	assert_int_equal(
		store_part_put(f->store,
			&(struct store_part_put){
				.put = {.bucket = "b", .key = "k", .etag = "e", .source = object},
				.upload = id,
				.number = 1,
				.offset = 100,
				.length = size},
			NULL),
		STORE_OK);
	store_object_unref(object);
	done.parts = &parts[2];
	done.n_parts = 1;
	assert_int_equal(store_complete(f->store, &done, NULL), STORE_OK);
	assert_int_equal(count_files(f), 2);

	object = get(f, "copy");
	assert_int_equal(read_range(object, NULL, size - 10, got, 20), 20);
	assert_memory_equal(got, text + size - 10, 10);
	assert_memory_equal(got + 10, text, 10);
	store_object_unref(object);
	object = get(f, "k");
	assert_int_equal(read_range(object, NULL, 0, got, size), size);
	assert_memory_equal(got, text + 100, size - 100);
	assert_memory_equal(got + size - 100, text, 100);
	store_object_unref(object);
	free(text);
	free(got);
}

/* --- master keys ----------------------------------------------------------------------------- */

static void write_key_file(struct fixture *f, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/master-key", f->root);
	assert_int_equal(fs_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

static char *read_key_file(struct fixture *f)
{
	struct buf text = BUF_INIT(LIMIT_STORE_KEY_FILE);
	char path[128];

	snprintf(path, sizeof(path), "%s/master-key", f->root);
	assert_int_equal(fs_read(path, &text, NULL), 0);
	return buf_take(&text);
}

static void assert_refused(struct fixture *f, const char *name)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	assert_int_equal(store_open(&f->store, &(struct store_options){.root = f->root}, &err),
		-PENSTOCK_E_INVALID);
	assert_non_null(strstr(err.message, name));
	assert_null(strstr(err.message, "0123456789"));
	penstock_error_release(&err);
}

/* A store whose master key is missing or wrong does not open, and does not change. */
static void a_lost_master_key_is_named(void **state)
{
	struct fixture *f = *state;
	static const char other[] =
		"0123456789012345678901234567890123456789012345678901234567890123\n";
	char *file = read_key_file(f), path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/master-key", f->root);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	store_close(f->store);
	unlink(path);
	fixture_open(f, false); /* no object needs the key yet */
	free(file);
	put_sealed(f, "k", SECRET, 10, 10, NULL);
	file = read_key_file(f);
	store_close(f->store);

	unlink(path);
	assert_refused(f, "/master-key");
	assert_int_equal(access(path, F_OK), -1);
	write_key_file(f, other);
	assert_refused(f, "/master-key");
	write_key_file(f, "01234567890123\n");
	assert_refused(f, "/master-key");
	write_key_file(f, "# none\n\n");
	assert_refused(f, "/master-key");

	write_key_file(f, file);
	fixture_open(f, false);
	assert_reads(f, "k", SECRET, 10, NULL);
	free(file);
}

/* A new first line in the key file becomes the master key at the next start, without a change to
 * any body. After that, the old line is no longer needed. */
static void a_master_key_is_replaced(void **state)
{
	struct fixture *f = *state;
	static const char new_key[] =
		"abcdef789012345678901234567890123456789012345678901234567890abcd\n";
	size_t size = 3 * CHUNK;
	char *text = text_of(size), *old, both[512], path[128];
	struct stat before, after;

	put_sealed(f, "large", text, size, size, NULL);
	put_sealed(f, "small", SECRET, 10, 10, NULL);
	assert_true(data_file(f, 1, path));
	assert_int_equal(stat(path, &before), 0);
	old = read_key_file(f);
	store_close(f->store);

	snprintf(both, sizeof(both), "# new\n%s%s", new_key, old);
	write_key_file(f, both);
	for (int round = 0; round < 3; round++) {
		fixture_open(f, false);
		assert_reads(f, "small", SECRET, 10, NULL);
		assert_reads(f, "large", text, size, NULL);
		put_sealed(f, round ? "later" : "new", SECRET, 11, 11, NULL);
		assert_reads(f, "new", SECRET, 11, NULL);
		store_close(f->store);
		write_key_file(f, new_key);
	}
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	write_key_file(f, old);
	assert_refused(f, "/master-key");

	write_key_file(f, both);
	fixture_open(f, false);
	free(text);
	free(old);
}

/* The default encryption of a bucket applies as soon as it is set, even after a restart. */
static void a_bucket_has_a_default_encryption(void **state)
{
	struct fixture *f = *state;
	enum store_encryption e = STORE_CUSTOMER_KEY;

	assert_int_equal(store_default_encryption(f->store, "b", &e, NULL), STORE_OK);
	assert_int_equal(e, STORE_PLAIN);
	assert_int_equal(store_config_set(f->store, "b", 0, STORE_ENCRYPTION_CONFIG, "x", 1, NULL),
		STORE_OK);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(store_default_encryption(f->store, "b", &e, NULL), STORE_OK);
		assert_int_equal(e, STORE_OWN_KEY);
		store_close(f->store);
		fixture_open(f, false);
	}
	assert_int_equal(store_default_encryption(f->store, "no", &e, NULL), STORE_NO_SUCH_BUCKET);
	assert_int_equal(store_config_set(f->store, "b", 0, STORE_ENCRYPTION_CONFIG, NULL, 0, NULL),
		STORE_OK);
	assert_int_equal(store_default_encryption(f->store, "b", &e, NULL), STORE_OK);
	assert_int_equal(e, STORE_PLAIN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(encrypted_bytes_are_read_as_they_were_written),
		TEST(an_encrypted_body_is_read_before_it_is_complete),
		TEST(another_key_reads_nothing),
		TEST(damage_is_found),
		TEST(parts_and_copies_share_encrypted_files),
		TEST(a_lost_master_key_is_named),
		TEST(a_master_key_is_replaced),
		TEST(a_bucket_has_a_default_encryption),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
