/* TFRecord files: their records, and the features of an Example. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/tfrecord.h"
#include "memory_shard.h"
#include "s3/sum/checksum.h"

static struct found found;
static struct format_fields fields;
static char scratch[65536];

static void add_crc(struct buf *out, const void *data, size_t len)
{
	uint32_t crc = crc32c_update(0, data, len);

	crc = htole32((crc >> 15 | crc << 17) + 0xa282ead8);
	assert_int_equal(buf_add(out, &crc, 4), 0);
}

static void add_record(struct buf *out, const void *data, size_t len)
{
	uint64_t n = htole64(len);

	buf_add(out, &n, 8);
	add_crc(out, &n, 8);
	buf_add(out, data, len);
	add_crc(out, data, len);
}

/* Appends a length-delimited field of protocol buffers. */
static void put_all(struct buf *out, int field, const void *data, size_t len)
{
	size_t rest = len;

	buf_add_char(out, (char)(field << 3 | 2));
	for (; rest >= 128; rest >>= 7)
		buf_add_char(out, (char)(rest | 0x80));
	buf_add_char(out, (char)rest);
	assert_int_equal(buf_add(out, data, len), 0);
}

/* Appends a feature. `kind` is 1 for bytes, 2 for floats and 3 for integers; `list` is the encoded
 * list. */
static void put_feature(
	struct buf *features, const char *name, int kind, const char *list, size_t len)
{
	_cleanup_(buf_release) struct buf feature = BUF_INIT(65536), entry = BUF_INIT(65536);

	put_all(&feature, kind, list, len);
	put_all(&entry, 1, name, strlen(name));
	put_all(&entry, 2, feature.data, feature.len);
	put_all(features, 1, entry.data, entry.len);
}

static int split_example(const struct buf *features, struct penstock_error *err)
{
	static struct buf shard = BUF_INIT(1 * MIB), example = BUF_INIT(1 * MIB);
	struct format_piece piece = {.shard = "a.tfrecord", .offset = 100};

	buf_release(&shard);
	buf_release(&example);
	shard.limit = example.limit = 1 * MIB;
	put_all(&example, 1, buf_str(features), features->len);
	add_record(&shard, example.data, example.len);
	piece.data = shard.data;
	piece.size = shard.len;
	fields.scratch = scratch;
	fields.scratch_size = sizeof(scratch);
	return format_tfrecord.split(&format_tfrecord, &piece, &fields, err);
}

static int scan(const struct buf *b, struct memory_shard *m, struct penstock_error *err)
{
	struct shard_reader shard;

	*m = (struct memory_shard){.data = buf_str(b), .size = b->len};
	shard = memory_shard_reader(m, "a.tfrecord");
	memset(&found, 0, sizeof(found));
	return format_tfrecord.scan(&format_tfrecord, &shard, found_add, &found, err);
}

static void test_records_are_found_by_their_lengths(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(16 * MIB);
	_cleanup_free_ char *large = calloc(1, 2 * MIB);
	struct memory_shard m;
	struct format_piece piece;

	(void)state;
	assert_non_null(large);
	assert_int_equal(scan(&b, &m, NULL), 0);
	assert_int_equal(found.n, 0);
	add_record(&b, "first", 5);
	add_record(&b, "", 0);
	for (int i = 0; i < 4; i++)
		add_record(&b, large, 2 * MIB);

	assert_int_equal(scan(&b, &m, NULL), 0);

	assert_int_equal(found.n, 6);
	assert_int_equal(found.items[1].offset, 21);
	assert_int_equal(found.items[1].size, 16);
	assert_true(m.bytes < 100 * KIB);
	piece = found_piece(&m, "a.tfrecord", &found, 0);
	assert_int_equal(format_tfrecord_raw.split(&format_tfrecord_raw, &piece, &fields, NULL), 0);
	assert_int_equal(fields.n, 1);
	assert_memory_equal(fields.items[0].data, "first", 5);
}

/* A test vector of TensorFlow for the masked checksum: the length of an empty record. */
static void test_checksums_are_those_of_tensorflow(void **state)
{
	static const unsigned char empty[16] = {
		0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2};
	struct format_piece piece = {.shard = "a", .data = empty, .size = sizeof(empty)};

	(void)state;
	assert_true(tfrecord_is_head(empty));
	assert_int_equal(format_tfrecord_raw.split(&format_tfrecord_raw, &piece, &fields, NULL), 0);
}

static void test_cut_and_damaged_files_are_corrupt(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(1 * MIB);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m;
	struct format_piece piece;

	(void)state;
	add_record(&b, "first", 5);
	add_record(&b, "second", 6);
	for (size_t len = 22; len < 43; len++) {
		b.len = len;
		assert_int_equal(scan(&b, &m, NULL), -(int)PENSTOCK_E_CORRUPT);
	}
	b.len = 43;
	assert_int_equal(scan(&b, &m, NULL), 0);
	piece = found_piece(&m, "a.tfrecord", &found, 1);
	for (size_t i = 0; i < piece.size; i++) {
		b.data[21 + i] ^= 4;
		assert_int_equal(
			format_tfrecord_raw.split(&format_tfrecord_raw, &piece, &fields, NULL),
			-(int)PENSTOCK_E_CORRUPT);
		b.data[21 + i] ^= 4;
	}
	b.data[22] ^= 1;
	assert_int_equal(scan(&b, &m, &err), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "a.tfrecord"));
	assert_non_null(strstr(err.message, "byte 21"));
}

static void test_compressed_files_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(1 * MIB);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m;

	(void)state;
	buf_add(&b, "\x1f\x8b\x08\0\0\0\0\0\0\3xxxxxxxxxx", 20);
	assert_int_equal(scan(&b, &m, &err), -(int)PENSTOCK_E_UNSUPPORTED);
	assert_non_null(strstr(err.message, "gzip"));
	buf_clear(&b);
	buf_add(&b, "\x78\x9cxxxxxxxxxxxxxxxxxx", 20);
	assert_int_equal(scan(&b, &m, NULL), -(int)PENSTOCK_E_UNSUPPORTED);
}

static void test_features_of_an_example_are_fields(void **state)
{
	_cleanup_(buf_release) struct buf f = BUF_INIT(65536);
	const struct format_field *field;
	int64_t integers[3];

	(void)state;
	put_feature(&f, "image", 1, "\x0a\3JPG", 5);
	put_feature(&f, "names", 1, "\x0a\1a\x0a\0\x0a\2bc", 9);
	put_feature(&f, "packed", 2, "\x0a\10abcdefgh", 10);
	put_feature(&f, "single", 2, "\015abcd\015efgh", 10);
	put_feature(&f, "label", 3, "\x08\x05", 2);
	put_feature(
		&f, "many", 3, "\x0a\x0d\x01\xac\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 15);
	put_feature(&f, "none", 3, "", 0);
	put_feature(&f, "no values", 1, "", 0);

	assert_int_equal(split_example(&f, NULL), 0);

	assert_int_equal(fields.n, 9);
	field = field_of(&fields, "image");
	assert_int_equal(field->type, FORMAT_BYTES);
	assert_int_equal(field->count, 0);
	assert_memory_equal(field->data, "JPG", 3);
	field = field_of(&fields, "names");
	assert_int_equal(field[2].index, 2);
	assert_int_equal(field[2].count, 3);
	assert_memory_equal(field[2].data, "bc", 2);
	field = field_of(&fields, "packed");
	assert_int_equal(field->dtype, DTYPE_F32);
	assert_int_equal(field->dims[0], 2);
	assert_memory_equal(field->data, "abcdefgh", 8);
	assert_memory_equal(field_of(&fields, "single")->data, "abcdefgh", 8);
	field = field_of(&fields, "many");
	assert_int_equal(field->dtype, DTYPE_I64);
	assert_int_equal(field->size, sizeof(integers));
	memcpy(integers, field->data, sizeof(integers));
	assert_int_equal(integers[1], 300);
	assert_true(integers[2] == -1);
	memcpy(integers, field_of(&fields, "label")->data, 8);
	assert_int_equal(integers[0], 5);
	assert_int_equal(field_of(&fields, "none")->dims[0], 0);
	assert_null(field_of(&fields, "no values"));
}

static void test_unknown_fields_of_an_example_are_skipped(void **state)
{
	_cleanup_(buf_release) struct buf f = BUF_INIT(65536);

	(void)state;
	buf_add(&f, "\170\001\17112345678\1751234\172\002xx", 20);
	put_feature(&f, "label", 3, "\x10\x09\x08\x05", 4);
	assert_int_equal(split_example(&f, NULL), 0);
	assert_int_equal(fields.n, 1);
	assert_int_equal(fields.items[0].dims[0], 1);
}

static void test_invalid_examples_are_corrupt(void **state)
{
	static const struct {
		int kind;
		const char *list;
		size_t len;
	} lists[] = {
		{1, "\x0a\4JPG", 5},
		{1, "\x0b", 1},
		{1, "\x00", 1},
		{2, "\x0a\7abcdefg", 9},
		{2, "\x08\1", 2},
		{2, "\015abc", 4},
		{3, "\x0a\2\x01\xff", 4},
		{3, "\x0a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13},
		{3, "\015abcd", 5},
	};
	_cleanup_(buf_release) struct buf f = BUF_INIT(65536);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		buf_clear(&f);
		put_feature(&f, "x", lists[i].kind, lists[i].list, lists[i].len);
		assert_int_equal(split_example(&f, NULL), -(int)PENSTOCK_E_CORRUPT);
	}
	/* the same name twice, a feature of two kinds, and text */
	buf_clear(&f);
	put_feature(&f, "x", 3, "\x08\1", 2);
	put_feature(&f, "x", 3, "\x08\1", 2);
	assert_int_equal(split_example(&f, &err), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "a.tfrecord"));
	buf_clear(&f);
	buf_add(&f, "\x0a\x0d\x0a\1x\x12\x08\x1a\2\x08\1\x1a\2\x08\1", 15);
	assert_int_equal(split_example(&f, NULL), -(int)PENSTOCK_E_CORRUPT);
	buf_clear(&f);
	buf_add_str(&f, "no protocol buffer at all");
	assert_int_equal(split_example(&f, NULL), -(int)PENSTOCK_E_CORRUPT);
}

static void test_more_features_than_the_limit_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf f = BUF_INIT(65536);
	char name[8];

	(void)state;
	for (int i = 0; i < LIMIT_FORMAT_FIELDS; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		put_feature(&f, name, 3, "\x08\1", 2);
	}
	assert_int_equal(split_example(&f, NULL), 0);
	assert_int_equal(fields.n, LIMIT_FORMAT_FIELDS);
	put_feature(&f, "one more", 3, "\x08\1", 2);
	assert_int_equal(split_example(&f, NULL), -(int)PENSTOCK_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_are_found_by_their_lengths),
		cmocka_unit_test(test_checksums_are_those_of_tensorflow),
		cmocka_unit_test(test_cut_and_damaged_files_are_corrupt),
		cmocka_unit_test(test_compressed_files_are_refused),
		cmocka_unit_test(test_features_of_an_example_are_fields),
		cmocka_unit_test(test_unknown_fields_of_an_example_are_skipped),
		cmocka_unit_test(test_invalid_examples_are_corrupt),
		cmocka_unit_test(test_more_features_than_the_limit_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
