/* Samples of WebDataset archives, found by their headers or by an index, and their fields. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/tar.h"
#include "memory_shard.h"

#define BLOCK 512

static struct found found;
static struct format_fields fields;
static char scratch[4096];

static void seal(unsigned char *h)
{
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

/* Adds the header of a member. */
static void add_header(struct buf *tar, const char *name, char type, uint64_t size)
{
	unsigned char h[BLOCK] = {0};

	memcpy(h, name, strlen(name) < 100 ? strlen(name) : 100);
	snprintf((char *)h + 124, 12, "%011" PRIo64, size);
	h[156] = (unsigned char)type;
	memcpy(h + 257, "ustar\00000", 8);
	seal(h);
	assert_int_equal(buf_add(tar, h, BLOCK), 0);
}

static void add_content(struct buf *tar, const void *data, size_t size)
{
	static const char zeros[BLOCK];

	buf_add(tar, data, size);
	assert_int_equal(buf_add(tar, zeros, (BLOCK - size % BLOCK) % BLOCK), 0);
}

static void add(struct buf *tar, const char *name, const char *text)
{
	add_header(tar, name, '0', strlen(text));
	add_content(tar, text, strlen(text));
}

static void add_end(struct buf *tar)
{
	static const char zeros[2 * BLOCK];

	assert_int_equal(buf_add(tar, zeros, sizeof(zeros)), 0);
}

static int scan_with(const struct buf *tar, struct memory_shard *m, struct penstock_error *err)
{
	struct shard_reader shard;

	*m = (struct memory_shard){.data = buf_str(tar), .size = tar->len};
	shard = memory_shard_reader(m, "a.tar");
	memset(&found, 0, sizeof(found));
	return format_tar.scan(&format_tar, &shard, found_add, &found, err);
}

static int scan(const struct buf *tar)
{
	struct memory_shard m;

	return scan_with(tar, &m, NULL);
}

static int split(const struct buf *tar, size_t i)
{
	struct memory_shard m = {.data = tar->data, .size = tar->len};
	struct format_piece piece = found_piece(&m, "a.tar", &found, i);

	fields.scratch = scratch;
	fields.scratch_size = sizeof(scratch);
	return format_tar.split(&format_tar, &piece, &fields, NULL);
}

static void assert_field(const char *name, const char *content)
{
	const struct format_field *f = field_of(&fields, name);

	assert_non_null(f);
	assert_int_equal(f->size, strlen(content));
	assert_memory_equal(f->data, content, f->size);
}

static void test_members_with_one_key_are_a_sample(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);

	(void)state;
	add(&tar, "a/0.jpg", "J0");
	add(&tar, "a/0.seg.PNG", "P0");
	add(&tar, "a/1.jpg", "J1");
	add(&tar, "a/1.json", "{}");
	add(&tar, "b/1.txt", "T");
	add_end(&tar);

	assert_int_equal(scan(&tar), 0);

	assert_int_equal(found.n, 3);
	assert_string_equal(found.items[0].key, "a/0");
	assert_string_equal(found.items[2].key, "b/1");
	assert_int_equal(found.items[1].offset, 4 * BLOCK);
	assert_int_equal(found.items[1].size, 4 * BLOCK);
	assert_int_equal(split(&tar, 0), 0);
	assert_int_equal(fields.n, 2);
	assert_field("jpg", "J0");
	assert_field("seg.png", "P0");
	assert_int_equal(split(&tar, 1), 0);
	assert_int_equal(field_of(&fields, "json")->type, FORMAT_JSON);
	assert_int_equal(split(&tar, 2), 0);
	assert_int_equal(field_of(&fields, "txt")->type, FORMAT_TEXT);
}

static void test_other_members_are_skipped(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);

	(void)state;
	add_header(&tar, "a/", '5', 0);
	add(&tar, "__meta__/x.txt", "M");
	add(&tar, "README", "R");
	add(&tar, "a/._0.jpg", "hidden");
	add_header(&tar, "a/9.jpg", '2', 77);
	add(&tar, "a/0.jpg", "J");
	add(&tar, "a/.hidden", "hidden");
	add(&tar, "a/0.cls", "7");
	add_header(&tar, "old/", '0', 0);
	add_end(&tar);

	assert_int_equal(scan(&tar), 0);
	assert_int_equal(found.n, 1);
	assert_int_equal(split(&tar, 0), 0);
	assert_int_equal(fields.n, 2);
	assert_field("cls", "7");
}

static void test_long_names_come_from_extended_headers(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	_cleanup_free_ char *name = calloc(1, 300);
	_cleanup_(buf_release) struct buf record = BUF_INIT(4096);

	(void)state;
	assert_non_null(name);
	memset(name, 'n', 200);
	memcpy(name + 200, ".jpg", 4);
	add(&tar, "first.jpg", "1");
	/* a long name as GNU tar writes it */
	add_header(&tar, "././@LongLink", 'L', 205);
	add_content(&tar, name, 205);
	add(&tar, "nnnn", "J");
	/* the same name as pax writes it; the size in the pax record replaces the size in the
	 * header */
	memcpy(name + 200, ".txt", 4);
	buf_printf(&record, "20 mtime=1234567.89\n214 path=%s\n10 size=3\n", name);
	add_header(&tar, "pax", 'x', record.len);
	add_content(&tar, record.data, record.len);
	add_header(&tar, "nnnn", '0', 0);
	add_content(&tar, "abc", 3);
	add_header(&tar, "pax", 'g', 14);
	add_content(&tar, "14 comment=xy\n", 14);
	/* a name with a prefix */
	add(&tar, "b.jpg", "B");
	memcpy(tar.data + tar.len - (size_t)2 * BLOCK + 345, "dir/sub", 7);
	seal((unsigned char *)tar.data + tar.len - (size_t)2 * BLOCK);
	add_end(&tar);

	assert_int_equal(scan(&tar), 0);

	assert_int_equal(found.n, 3);
	assert_int_equal(strlen(found.items[1].key), 200);
	assert_string_equal(found.items[2].key, "dir/sub/b");
	assert_int_equal(found.items[1].offset, 2 * BLOCK);
	assert_int_equal(split(&tar, 1), 0);
	assert_field("jpg", "J");
	assert_field("txt", "abc");
}

static void test_sizes_may_be_binary(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	unsigned char *h;

	(void)state;
	add(&tar, "a.bin", "xyz");
	h = (unsigned char *)tar.data;
	memset(h + 124, 0, 12);
	h[124] = 0x80;
	h[135] = 3;
	seal(h);
	add_end(&tar);
	assert_int_equal(scan(&tar), 0);
	assert_int_equal(split(&tar, 0), 0);
	assert_field("bin", "xyz");

	h = (unsigned char *)tar.data;
	h[126] = 1;
	seal(h);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_CORRUPT);
	h[126] = 0;
	h[127] = 0x7f;
	seal(h);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_CORRUPT);
}

static void test_two_members_with_one_name_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m;

	(void)state;
	add(&tar, "a/0.jpg", "1");
	add(&tar, "a/0.JPG", "2");
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, &err), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "a/0"));
	assert_non_null(strstr(err.message, "byte 1024"));
	found.items[0].size = (uint64_t)4 * BLOCK;
	assert_int_equal(split(&tar, 0), -(int)PENSTOCK_E_CORRUPT);
}

/* A truncated archive is an error, or has fewer members if the cut is between two members. */
static void test_a_cut_archive_is_corrupt(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);

	(void)state;
	add(&tar, "a.jpg", "1");
	add(&tar, "b.jpg", "2");
	for (size_t len = 0; len < (size_t)4 * BLOCK; len++) {
		tar.len = len;
		assert_int_equal(
			scan(&tar), len == (size_t)2 * BLOCK ? 0 : -(int)PENSTOCK_E_CORRUPT);
	}
}

static void test_a_damaged_header_is_corrupt(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m;

	(void)state;
	add(&tar, "a.jpg", "1");
	add(&tar, "b.jpg", "2");
	tar.data[2 * BLOCK + 50] ^= 1;
	assert_int_equal(scan_with(&tar, &m, &err), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "a.tar"));
	assert_non_null(strstr(err.message, "byte 1024"));
}

static void test_invalid_extended_headers_are_refused(void **state)
{
	static const struct {
		char type;
		const char *data;
		enum penstock_code code;
	} cases[] = {
		{'x', "99 path=a.jpg\n", PENSTOCK_E_CORRUPT},
		{'x', "14 path=a.jpg", PENSTOCK_E_CORRUPT},
		{'x', "path=a.jpg\n", PENSTOCK_E_CORRUPT},
		{'x', "5 ab\n", PENSTOCK_E_CORRUPT},
		{'x', "0 path=a.jpg\n", PENSTOCK_E_CORRUPT},
		{'x', "8 path=\n", PENSTOCK_E_CORRUPT},
		{'x', "11 size=-1\n", PENSTOCK_E_CORRUPT},
		{'x', "30 size=99999999999999999999\n", PENSTOCK_E_CORRUPT},
		{'x', "19 size=999999999\n\n", PENSTOCK_E_CORRUPT},
		{'x', "22 GNU.sparse.major=1\n", PENSTOCK_E_UNSUPPORTED},
		{'L', "", PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);

		add_header(&tar, "pax", cases[i].type, strlen(cases[i].data));
		add_content(&tar, cases[i].data, strlen(cases[i].data));
		add(&tar, "b.jpg", "2");
		add_end(&tar);
		assert_int_equal(scan(&tar), -(int)cases[i].code);
	}
}

static void test_unusual_members_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);

	(void)state;
	add_header(&tar, "sparse.bin", 'S', 0);
	add_end(&tar);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_UNSUPPORTED);
	/* an extended header without its member, and one that is too long */
	buf_clear(&tar);
	add_header(&tar, "pax", 'x', 14);
	add_content(&tar, "14 path=a.jpg\n", 14);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_CORRUPT);
	add_end(&tar);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_CORRUPT);
	buf_clear(&tar);
	add_header(&tar, "long", 'L', LIMIT_TAR_HEADERS + 1);
	assert_int_equal(scan(&tar), -(int)PENSTOCK_E_LIMIT);
}

static void test_arrays_in_members_have_a_shape(void **state)
{
	static const char npy[] = "\x93NUMPY\x01\0\x3a\0"
				  "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n"
				  "abcd";
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	const struct format_field *f;

	(void)state;
	add_header(&tar, "a.x.npy", '0', sizeof(npy) - 1);
	add_content(&tar, npy, sizeof(npy) - 1);
	add(&tar, "a.y.npy", "no array");
	add_end(&tar);
	assert_int_equal(scan(&tar), 0);
	assert_int_equal(split(&tar, 0), 0);

	f = field_of(&fields, "x.npy");
	assert_int_equal(f->type, FORMAT_ARRAY);
	assert_int_equal(f->dtype, DTYPE_I16);
	assert_int_equal(f->dims[0], 2);
	assert_memory_equal(f->data, "abcd", 4);
	assert_int_equal(field_of(&fields, "y.npy")->type, FORMAT_BYTES);
}

/* Scans read only the headers of large members, and small members in a few large pieces. */
static void test_scans_read_little_of_large_members(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(64 * MIB);
	_cleanup_free_ char *content = malloc(2 * MIB);
	char name[32];
	struct memory_shard m;

	(void)state;
	assert_non_null(content);
	memset(content, 'x', 2 * MIB);
	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "%d.bin", i);
		add_header(&tar, name, '0', 2 * MIB);
		add_content(&tar, content, 2 * MIB);
	}
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, NULL), 0);
	assert_int_equal(found.n, 10);
	assert_true(m.bytes < 12 * 8 * KIB);

	buf_clear(&tar);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%d.bin", i);
		add_header(&tar, name, '0', 3000);
		add_content(&tar, content, 3000);
	}
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, NULL), 0);
	assert_int_equal(found.n, 3000);
	assert_true(m.reads < 12);
}

static void test_a_failed_read_ends_a_scan(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	struct memory_shard m;
	struct shard_reader shard;

	(void)state;
	add(&tar, "a.jpg", "1");
	add_end(&tar);
	m = (struct memory_shard){.data = tar.data, .size = tar.len, .fail_at = 1};
	shard = memory_shard_reader(&m, "a.tar");
	assert_int_equal(format_tar.scan(&format_tar, &shard, found_add, &found, NULL),
		-(int)PENSTOCK_E_UNAVAILABLE);
}

static void test_too_little_memory_names_the_size_needed(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB);
	struct format_piece piece;
	struct memory_shard m;

	(void)state;
	add(&tar, "a.jpg", "1");
	add(&tar, "a.cls", "1");
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, NULL), 0);
	piece = found_piece(&m, "a.tar", &found, 0);
	fields.scratch = scratch;
	fields.scratch_size = 4;
	assert_int_equal(
		format_tar.split(&format_tar, &piece, &fields, NULL), -(int)PENSTOCK_E_LIMIT);
	fields.scratch_size = fields.scratch_used;
	assert_int_equal(format_tar.split(&format_tar, &piece, &fields, NULL), 0);
}

/* ---- the index ---- */

static int index_scan(const char *text, uint64_t size, struct penstock_error *err)
{
	struct shard_reader shard = {.name = "a.tar", .size = size};

	memset(&found, 0, sizeof(found));
	return tar_index_scan(text, strlen(text), &shard, found_add, &found, err);
}

static void test_an_index_has_the_samples_of_a_scan(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	struct memory_shard m;
	struct shard_reader shard;
	struct found scanned;

	(void)state;
	add_header(&tar, "pax", 'x', 14);
	add_content(&tar, "14 path=a.jpg\n", 14);
	add(&tar, "x", "J");
	add(&tar, "a.cls", "1");
	add(&tar, "b.jpg", "2");
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, NULL), 0);
	scanned = found;
	shard = memory_shard_reader(&m, "a.tar");

	assert_int_equal(tar_index_format(&shard, &text, NULL), 0);
	assert_string_equal(text.data, "v1.2 2\njpg 1536 1 a.jpg cls 2560 1 a.cls\n"
				       "jpg 3584 1 b.jpg\n");
	assert_int_equal(index_scan(text.data, tar.len, NULL), 0);
	assert_int_equal(found.n, 2);
	assert_memory_equal(&found.items, &scanned.items, 2 * sizeof(found.items[0]));
}

/* wds2idx lists files without an extension, too. */
static void test_an_index_may_list_other_files(void **state)
{
	(void)state;
	assert_int_equal(index_scan("v1.2 3\nREADME 512 3 README\njpg 1536 1 a.jpg\n"
				    "jpg 999936 1 b.jpg\n",
				 1000448, NULL),
		0);
	assert_int_equal(found.n, 2);
	assert_int_equal(found.items[0].offset, 1024);
	assert_string_equal(found.items[0].key, "a");
	/* a sample after a large gap begins at its own header */
	assert_int_equal(found.items[1].offset, 999936 - BLOCK);
}

static void test_an_invalid_index_is_refused(void **state)
{
	static const struct {
		const char *text;
		enum penstock_code code;
	} cases[] = {
		{"", PENSTOCK_E_UNSUPPORTED},
		{"v1.1 1\njpg 512 1\n", PENSTOCK_E_UNSUPPORTED},
		{"v1.2\n", PENSTOCK_E_CORRUPT},
		{"v1.2 x\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 1\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 513 1 a.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 0 1 a.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 4097 a.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 9223372036854775807 a.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 -1 a.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 1 a.jpg cls 512 1 a.cls\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 1 a.jpg cls 1536 1 b.cls\n", PENSTOCK_E_CORRUPT},
		{"v1.2 1\njpg 512 1 a.jpg\njpg 1536 1 b.jpg\n", PENSTOCK_E_CORRUPT},
		{"v1.2 2\njpg 512 1 a.jpg\n", PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(index_scan(cases[i].text, 4096, NULL), -(int)cases[i].code);
}

static void test_names_with_spaces_have_no_index(void **state)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	struct memory_shard m;
	struct shard_reader shard;

	(void)state;
	add(&tar, "a b.jpg", "1");
	add_end(&tar);
	assert_int_equal(scan_with(&tar, &m, NULL), 0);
	shard = memory_shard_reader(&m, "a.tar");
	assert_int_equal(tar_index_format(&shard, &text, NULL), -(int)PENSTOCK_E_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_members_with_one_key_are_a_sample),
		cmocka_unit_test(test_other_members_are_skipped),
		cmocka_unit_test(test_long_names_come_from_extended_headers),
		cmocka_unit_test(test_sizes_may_be_binary),
		cmocka_unit_test(test_two_members_with_one_name_are_refused),
		cmocka_unit_test(test_a_cut_archive_is_corrupt),
		cmocka_unit_test(test_a_damaged_header_is_corrupt),
		cmocka_unit_test(test_invalid_extended_headers_are_refused),
		cmocka_unit_test(test_unusual_members_are_refused),
		cmocka_unit_test(test_arrays_in_members_have_a_shape),
		cmocka_unit_test(test_scans_read_little_of_large_members),
		cmocka_unit_test(test_a_failed_read_ends_a_scan),
		cmocka_unit_test(test_too_little_memory_names_the_size_needed),
		cmocka_unit_test(test_an_index_has_the_samples_of_a_scan),
		cmocka_unit_test(test_an_index_may_list_other_files),
		cmocka_unit_test(test_an_invalid_index_is_refused),
		cmocka_unit_test(test_names_with_spaces_have_no_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
