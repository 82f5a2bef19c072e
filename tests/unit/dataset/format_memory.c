/* Each allocation of the formats fails once; the failure is reported, and no memory leaks. */
#include "alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "dataset/format/litdata/litdata.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/tar.h"
#include "memory_shard.h"

typedef int (*scenario)(struct penstock_error *err);

static struct buf text, data;

static void fail_each(scenario run)
{
	size_t n = 1;

	for (;; n++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		int r;

		alloc_fail_arm(n);
		r = run(&err);
		if (!alloc_fail_disarm()) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -(int)PENSTOCK_E_MEMORY);
	}
	assert_true(n > 1);
}

static int parse_mds(struct penstock_error *err)
{
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;

	return mds_index_parse(&index, text.data, text.len, "index.json", err);
}

static int parse_litdata(struct penstock_error *err)
{
	_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;

	return litdata_index_parse(&index, text.data, text.len, "index.json", err);
}

static int make_columns(struct penstock_error *err)
{
	static const struct mds_spec specs[] = {{"b", "int"}, {"a", "jpeg"}};
	_cleanup_(mds_columns_freep) struct mds_columns *columns = NULL;

	return mds_columns_new(&columns, specs, 2, err);
}

static int add(void *cookie, const struct format_sample *s, struct penstock_error *err)
{
	(void)cookie;
	(void)s;
	(void)err;
	return 0;
}

static int scan_tar(struct penstock_error *err)
{
	struct memory_shard m = {.data = data.data, .size = data.len};
	struct shard_reader shard = memory_shard_reader(&m, "a.tar");

	return format_tar.scan(&format_tar, &shard, add, NULL, err);
}

static void test_indexes(void **state)
{
	(void)state;
	assert_int_equal(memory_shard_file("mosaicml.json", &text), 0);
	fail_each(parse_mds);
	buf_clear(&text);
	assert_int_equal(memory_shard_file("litdata.json", &text), 0);
	fail_each(parse_litdata);
	buf_release(&text);
}

static void test_columns(void **state)
{
	(void)state;
	fail_each(make_columns);
}

static void test_scans(void **state)
{
	static char h[512] = "a.jpg";
	unsigned sum = 0;

	(void)state;
	memcpy(h + 124, "00000000000", 11);
	h[156] = '0';
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	assert_int_equal(buf_add(&data, h, sizeof(h)), 0);
	fail_each(scan_tar);
	buf_release(&data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_indexes),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_scans),
	};

	/* libjansson reports a failed allocation as invalid text. */
	alloc_fail_skip_library("libjansson");
	buf_init(&text, 1 * MIB);
	buf_init(&data, 1 * MIB);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
