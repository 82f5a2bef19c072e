/* Samples of a fixed size: records, rows of arrays, windows of tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/records.h"
#include "memory_shard.h"

static struct found found;
static struct format_fields fields;

static int scan(const struct records *r, struct memory_shard *m)
{
	struct shard_reader shard = memory_shard_reader(m, "shard");

	memset(&found, 0, sizeof(found));
	return r->format.scan(&r->format, &shard, found_add, &found, NULL);
}

static void split(const struct records *r, const struct memory_shard *m, size_t i)
{
	struct format_piece piece = found_piece(m, "shard", &found, i);

	assert_int_equal(r->format.split(&r->format, &piece, &fields, NULL), 0);
}

static int open_npy(struct records *r, struct memory_shard *m, struct penstock_error *err)
{
	struct shard_reader shard = memory_shard_reader(m, "a.npy");

	return npy_open(r, &shard, err);
}

/* Builds a .npy file of the given version. Returns its size. */
static size_t make_npy(unsigned char *out, int version, const char *dict, size_t data)
{
	size_t len = strlen(dict), start = version == 1 ? 10 : 12;

	memset(out, 0, start + len + data);
	memcpy(out, "\x93NUMPY", 6);
	out[6] = (unsigned char)version;
	out[8] = (unsigned char)len;
	out[9] = (unsigned char)(len >> 8);
	memcpy(out + start, dict, len);
	for (size_t i = 0; i < data; i++)
		out[start + len + i] = (unsigned char)i;
	return start + len + data;
}

static void test_records_have_a_header_and_a_trailer(void **state)
{
	struct memory_shard m = {.data = "HHaaabbbcccT", .size = 12};
	struct records r;

	(void)state;
	assert_int_equal(records_init(&r, 2, 3, 1, NULL), 0);
	assert_int_equal(scan(&r, &m), 0);

	assert_int_equal(found.n, 3);
	assert_int_equal(found.items[2].offset, 8);
	split(&r, &m, 1);
	assert_int_equal(fields.n, 1);
	assert_true(field_is(&fields.items[0], "data"));
	assert_memory_equal(fields.items[0].data, "bbb", 3);
	/* The offsets of the samples are computed without a read. */
	assert_int_equal(m.reads, 0);
}

static void test_a_callback_ends_a_scan(void **state)
{
	struct memory_shard m = {.data = "abcdef", .size = 6};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	struct records r;

	(void)state;
	assert_int_equal(records_init(&r, 0, 1, 0, NULL), 0);
	memset(&found, 0, sizeof(found));
	found.stop_at = 2;

	assert_int_equal(r.format.scan(&r.format, &shard, found_add, &found, NULL), 7);
	assert_int_equal(found.n, 2);
}

static void test_bytes_after_the_last_record_are_refused(void **state)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct memory_shard m = {.data = "aaabbbc", .size = 7};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	struct records r;

	(void)state;
	assert_int_equal(records_init(&r, 0, 3, 0, NULL), 0);
	assert_int_equal(r.format.scan(&r.format, &shard, found_add, &found, &err),
		-(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(err.message, "'shard'"));
	assert_non_null(strstr(err.message, "byte 6"));
	assert_int_equal(records_init(&r, 8, 3, 0, NULL), 0);
	assert_int_equal(scan(&r, &m), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(records_init(&r, 0, 0, 0, NULL), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(records_init(&r, UINT64_MAX, 1, 1, NULL), -(int)PENSTOCK_E_INVALID);
}

static void test_cifar_has_labels_and_images(void **state)
{
	_cleanup_free_ unsigned char *data = calloc(2, 3074);
	struct memory_shard m = {.data = data, .size = 2 * 3073};
	struct records r;

	(void)state;
	assert_non_null(data);
	data[3073] = 7;
	data[3074] = 200;
	records_cifar10(&r);
	assert_int_equal(scan(&r, &m), 0);
	assert_int_equal(found.n, 2);
	split(&r, &m, 1);
	assert_int_equal(fields.n, 2);
	assert_int_equal(fields.items[0].type, FORMAT_NUMBER);
	assert_int_equal(*(const unsigned char *)field_of(&fields, "label")->data, 7);
	assert_int_equal(*(const unsigned char *)field_of(&fields, "image")->data, 200);
	assert_int_equal(field_of(&fields, "image")->ndim, 3);
	assert_int_equal(field_of(&fields, "image")->size, 3072);

	m.size = (uint64_t)2 * 3074;
	records_cifar100(&r);
	assert_int_equal(scan(&r, &m), 0);
	split(&r, &m, 0);
	assert_int_equal(fields.n, 3);
	assert_non_null(field_of(&fields, "fine"));
}

static void test_windows_of_tokens_may_overlap(void **state)
{
	struct memory_shard m = {.data = "00112233445566", .size = 14};
	struct records r;

	(void)state;
	assert_int_equal(records_tokens(&r, DTYPE_U16, 4, 2, NULL), 0);
	assert_int_equal(scan(&r, &m), 0);
	assert_int_equal(found.n, 2);
	assert_int_equal(found.items[1].offset, 4);
	assert_int_equal(found.items[1].size, 8);
	split(&r, &m, 1);
	assert_int_equal(fields.items[0].dims[0], 4);
	assert_int_equal(fields.items[0].dtype, DTYPE_U16);

	m.size = 6;
	assert_int_equal(scan(&r, &m), 0);
	assert_int_equal(found.n, 0);
	assert_int_equal(records_tokens(&r, DTYPE_F32, 4, 2, NULL), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(records_tokens(&r, DTYPE_U32, 4, 0, NULL), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(
		records_tokens(&r, DTYPE_U32, UINT64_MAX / 2, 1, NULL), -(int)PENSTOCK_E_INVALID);
}

static void test_rows_of_a_numpy_array_are_samples(void **state)
{
	unsigned char bytes[256];
	struct memory_shard m = {.data = bytes};
	struct records r;

	(void)state;
	for (int version = 1; version <= 3; version++) {
		m.size = make_npy(bytes, version,
			"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n", 24);
		assert_int_equal(open_npy(&r, &m, NULL), 0);
		assert_int_equal(scan(&r, &m), 0);
		assert_int_equal(found.n, 3);
		split(&r, &m, 2);
		assert_int_equal(fields.items[0].dtype, DTYPE_F32);
		assert_int_equal(fields.items[0].ndim, 1);
		assert_int_equal(fields.items[0].dims[0], 2);
		assert_int_equal(*(const unsigned char *)fields.items[0].data, 16);
	}
	/* An array with one dimension. The dictionary has double quotes and another order of keys,
	 * and the numbers are big-endian. */
	m.size = make_npy(
		bytes, 1, "{\"shape\": (5L,), \"fortran_order\":True,\"descr\":\">i2\"}", 10);
	assert_int_equal(open_npy(&r, &m, NULL), 0);
	assert_int_equal(scan(&r, &m), 0);
	assert_int_equal(found.n, 5);
	split(&r, &m, 0);
	assert_int_equal(fields.items[0].type, FORMAT_NUMBER);
	assert_true(fields.items[0].big_endian);
}

static void test_other_arrays_are_refused(void **state)
{
	static const struct {
		const char *dict;
		size_t data;
		enum penstock_code code;
	} cases[] = {
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}", 24,
			PENSTOCK_E_UNSUPPORTED},
		{"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", 24,
			PENSTOCK_E_UNSUPPORTED},
		{"{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", 24,
			PENSTOCK_E_UNSUPPORTED},
		{"{'descr': [('a','<f4')], 'fortran_order': False, 'shape': (3,)}", 12,
			PENSTOCK_E_UNSUPPORTED},
		{"{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 1,
			PENSTOCK_E_UNSUPPORTED},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, PENSTOCK_E_CORRUPT},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0)}", 0,
			PENSTOCK_E_CORRUPT},
		{"{'descr': '<f4', 'fortran_order': False}", 4, PENSTOCK_E_CORRUPT},
		{"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", 4, PENSTOCK_E_CORRUPT},
		{"{'descr': '<f8', 'fortran_order': False, "
		 "'shape': (1,4294967296,4294967296)}",
			8, PENSTOCK_E_CORRUPT},
		{"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8,
			PENSTOCK_E_CORRUPT},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (1", 4, PENSTOCK_E_CORRUPT},
		{"", 0, PENSTOCK_E_CORRUPT},
	};
	unsigned char bytes[512];
	struct memory_shard m = {.data = bytes};
	struct records r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		m.size = make_npy(bytes, 1, cases[i].dict, cases[i].data);
		assert_int_equal(open_npy(&r, &m, NULL), -(int)cases[i].code);
	}
	m.size = make_npy(bytes, 4, cases[0].dict, 24);
	assert_int_equal(open_npy(&r, &m, NULL), -(int)PENSTOCK_E_CORRUPT);
	/* a header that is longer than the file, and one that is longer than the limit */
	m.size = make_npy(bytes, 1, cases[7].dict, 0) - 1;
	assert_int_equal(open_npy(&r, &m, NULL), -(int)PENSTOCK_E_CORRUPT);
	m.size = make_npy(bytes, 2, cases[7].dict, 0);
	bytes[11] = 1;
	assert_int_equal(open_npy(&r, &m, NULL), -(int)PENSTOCK_E_LIMIT);
}

/* The size of a truncated file does not match its header. */
static void test_a_cut_array_is_corrupt(void **state)
{
	unsigned char bytes[256];
	struct memory_shard m = {.data = bytes};
	struct records r;
	size_t size = make_npy(
		bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n", 24);

	(void)state;
	for (m.size = size - 24; m.size < size; m.size++) {
		assert_int_equal(open_npy(&r, &m, NULL), 0);
		assert_int_equal(scan(&r, &m), -(int)PENSTOCK_E_CORRUPT);
	}
}

static void test_rows_of_mnist_are_samples(void **state)
{
	static const unsigned char images[16 + 12] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0,
		2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	static const unsigned char labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 4, 9};
	struct memory_shard m = {.data = images, .size = sizeof(images)};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	struct records r;

	(void)state;
	assert_int_equal(idx_open(&r, &shard, NULL), 0);
	assert_int_equal(scan(&r, &m), 0);
	assert_int_equal(found.n, 3);
	split(&r, &m, 1);
	assert_int_equal(fields.items[0].ndim, 2);
	assert_int_equal(*(const unsigned char *)fields.items[0].data, 5);

	m = (struct memory_shard){.data = labels, .size = sizeof(labels)};
	shard = memory_shard_reader(&m, "shard");
	assert_int_equal(idx_open(&r, &shard, NULL), 0);
	assert_int_equal(scan(&r, &m), 0);
	split(&r, &m, 1);
	assert_int_equal(fields.items[0].type, FORMAT_NUMBER);
	assert_int_equal(*(const unsigned char *)fields.items[0].data, 9);
}

static void test_invalid_idx_headers_are_refused(void **state)
{
	static const struct {
		const char *data;
		size_t size;
		enum penstock_code code;
	} cases[] = {
		{"\x1f\x8b\x08\x00\x00", 5, PENSTOCK_E_CORRUPT},
		{"\x00\x00\x0a\x01\x00\x00\x00\x00", 8, PENSTOCK_E_CORRUPT},
		{"\x00\x00\x08\x00", 4, PENSTOCK_E_UNSUPPORTED},
		{"\x00\x00\x08\x09", 4, PENSTOCK_E_UNSUPPORTED},
		{"\x00\x00\x08\x02\x00\x00\x00\x01", 8, PENSTOCK_E_CORRUPT},
		{"\x00\x00\x08", 3, PENSTOCK_E_CORRUPT},
	};
	struct records r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct memory_shard m = {.data = cases[i].data, .size = cases[i].size};
		struct shard_reader shard = memory_shard_reader(&m, "shard");

		assert_int_equal(idx_open(&r, &shard, NULL), -(int)cases[i].code);
	}
}

static void test_a_failed_read_is_passed_on(void **state)
{
	struct memory_shard m = {.data = "\0\0\x08\x01\0\0\0\0", .size = 8, .fail_at = 1};
	struct shard_reader shard = memory_shard_reader(&m, "shard");
	struct records r;

	(void)state;
	assert_int_equal(idx_open(&r, &shard, NULL), -(int)PENSTOCK_E_UNAVAILABLE);
	m.reads = 0;
	assert_int_equal(npy_open(&r, &shard, NULL), -(int)PENSTOCK_E_CORRUPT);
}

static void test_names_of_types_are_those_of_numpy(void **state)
{
	uint64_t dims[] = {UINT64_MAX, 2};
	size_t size;

	(void)state;
	assert_int_equal(dtype_find("float16", 7), DTYPE_F16);
	assert_int_equal(dtype_find("float", 5), DTYPE_NONE);
	assert_int_equal(dtype_find("none", 4), DTYPE_NONE);
	assert_string_equal(dtype_name(DTYPE_BF16), "bfloat16");
	assert_false(format_array_size(DTYPE_U8, 2, dims, &size));
	dims[0] = 3;
	assert_true(format_array_size(DTYPE_F64, 2, dims, &size));
	assert_int_equal(size, 48);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_have_a_header_and_a_trailer),
		cmocka_unit_test(test_a_callback_ends_a_scan),
		cmocka_unit_test(test_bytes_after_the_last_record_are_refused),
		cmocka_unit_test(test_cifar_has_labels_and_images),
		cmocka_unit_test(test_windows_of_tokens_may_overlap),
		cmocka_unit_test(test_rows_of_a_numpy_array_are_samples),
		cmocka_unit_test(test_other_arrays_are_refused),
		cmocka_unit_test(test_a_cut_array_is_corrupt),
		cmocka_unit_test(test_rows_of_mnist_are_samples),
		cmocka_unit_test(test_invalid_idx_headers_are_refused),
		cmocka_unit_test(test_a_failed_read_is_passed_on),
		cmocka_unit_test(test_names_of_types_are_those_of_numpy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
