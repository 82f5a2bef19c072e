#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/dataset.h"
#include "dataset/pack/pack.h"

struct fixture {
	char dir[64];
	struct dataset *set;
	struct penstock_error err;
};

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/penstock-pack-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	dataset_free(f->set);
	penstock_error_release(&f->err);
	assert_int_equal(fs_remove_tree(f->dir, NULL), 0);
	free(f);
	return 0;
}

static void write_file(const struct fixture *f, const char *name, const void *data, size_t size)
{
	_cleanup_free_ char *path = path_join(f->dir, name);
	char *slash = strrchr(path, '/');

	*slash = '\0';
	assert_int_equal(fs_mkdirs(path, 0755, NULL), 0);
	*slash = '/';
	assert_int_equal(fs_write_atomic(path, data, size, 0644, NULL), 0);
}

static int open_set(struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_join(f->dir, name);

	dataset_free(f->set);
	f->set = NULL;
	penstock_error_release(&f->err);
	return dataset_open(&f->set, &(struct dataset_options){.place.url = path}, &f->err);
}

/* Packs the open set into the directory `format`. */
static int pack_into(struct fixture *f, const char *format, uint64_t shard_bytes)
{
	_cleanup_free_ char *path = path_join(f->dir, format);
	struct pack_result done;

	penstock_error_release(&f->err);
	return dataset_pack(f->set, &(struct pack_target){.url = path},
		&(struct pack_options){.format = format, .shard_bytes = shard_bytes, .jobs = 2},
		&done, &f->err);
}

/* Asserts that the named field of a sample has this type and these bytes, in little-endian
 * order. */
static void assert_field(struct fixture *f, uint64_t id, const char *name, enum format_dtype dtype,
	const char *bytes, size_t size)
{
	_cleanup_free_ struct format_fields *fields = calloc(1, sizeof(*fields));
	uint64_t offsets[2], scratch[256];
	char data[4096];

	assert_int_equal(dataset_layout(f->set, &id, 1, offsets, NULL), 0);
	assert_true(offsets[1] <= sizeof(data));
	assert_int_equal(dataset_read(f->set, &id, 1, data, NULL, NULL), 0);
	fields->scratch = scratch;
	fields->scratch_size = sizeof(scratch);
	assert_int_equal(dataset_split(f->set, id, data, offsets[1], fields, NULL), 0);
	for (size_t i = 0; i < fields->n; i++) {
		const struct format_field *item = &fields->items[i];

		if (item->name_len != strlen(name) || memcmp(item->name, name, item->name_len) != 0)
			continue;
		assert_int_equal(item->dtype, dtype);
		assert_false(item->big_endian);
		assert_int_equal(item->size, size);
		assert_memory_equal(item->data, bytes, size);
		return;
	}
	fail_msg("no field '%s'", name);
}

/* The numbers of IDX are big-endian; formats without big-endian numbers get little-endian ones. */
static void numbers_are_little_endian_in_each_format(void **state)
{
	static const char idx[] = "\0\0\x0b\2\0\0\0\2\0\0\0\2"
				  "\0\1\0\2\xff\xfd\0\4";
	struct fixture *f = *state;

	write_file(f, "in/a", idx, sizeof(idx) - 1);
	assert_int_equal(open_set(f, "in"), 0);
	assert_string_equal(dataset_format(f->set), "idx");
	assert_int_equal(pack_into(f, "npy", MIB), 0);
	assert_int_equal(pack_into(f, "tar", MIB), 0);
	assert_int_equal(pack_into(f, "mds", MIB), 0);
	assert_int_equal(pack_into(f, "tfrecord", MIB), 0);
	assert_int_equal(open_set(f, "npy"), 0);
	assert_field(f, 1, "data", DTYPE_I16, "\xfd\xff\4\0", 4);
	assert_int_equal(open_set(f, "tar"), 0);
	assert_field(f, 1, "data.npy", DTYPE_I16, "\xfd\xff\4\0", 4);
	assert_int_equal(open_set(f, "mds"), 0);
	assert_field(f, 1, "data", DTYPE_I16, "\xfd\xff\4\0", 4);
	assert_int_equal(open_set(f, "tfrecord"), 0);
	assert_field(
		f, 1, "data", DTYPE_I64, "\xfd\xff\xff\xff\xff\xff\xff\xff\4\0\0\0\0\0\0\0", 16);
}

static void names_of_objects_are_keys_and_extensions(void **state)
{
	struct fixture *f = *state;
	char deep[300] = "in/";

	memset(deep + 3, 'd', 120);
	memcpy(deep + 123, "/x.y.TXT", 9);
	write_file(f, "in/a.txt", "one", 3);
	write_file(f, "in/a.bin", "two", 3);
	write_file(f, "in/b", "three", 5);
	write_file(f, deep, "four", 4);
	assert_int_equal(open_set(f, "in"), 0);
	assert_int_equal(pack_into(f, "tar", 1), 0);
	assert_int_equal(open_set(f, "tar"), 0);
	assert_int_equal(dataset_count(f->set), 3);
	assert_int_equal(source_count(dataset_source(f->set)), 3);
	assert_field(f, 0, "txt", DTYPE_NONE, "one", 3);
	assert_field(f, 0, "bin", DTYPE_NONE, "two", 3);
	assert_field(f, 1, "bin", DTYPE_NONE, "three", 5);
	assert_field(f, 2, "y.txt", DTYPE_NONE, "four", 4);
}

static void samples_that_do_not_fit_are_refused(void **state)
{
	static const char idx[] = "\0\0\x0e\1\0\0\0\1\0\0\0\0\0\0\0\0";
	struct fixture *f = *state;
	_cleanup_free_ char *records = path_join(f->dir, "records/shard-000000.bin");

	write_file(f, "in/a", "one", 3);
	write_file(f, "in/b", "three", 5);
	assert_int_equal(open_set(f, "in"), 0);
	assert_int_equal(pack_into(f, "records", 1), -(int)PENSTOCK_E_INVALID);
	assert_int_equal(access(records, F_OK), -1);
	assert_int_equal(pack_into(f, "parquet", 1), -(int)PENSTOCK_E_INVALID);
	write_file(f, "float64/a", idx, sizeof(idx) - 1);
	assert_int_equal(open_set(f, "float64"), 0);
	assert_int_equal(pack_into(f, "tfrecord", 1), -(int)PENSTOCK_E_UNSUPPORTED);
}

/* Readers of tar archives skip some names. */
static void samples_that_readers_would_not_find_are_refused(void **state)
{
	struct fixture *f = *state;

	write_file(f, "in/__meta__/a.txt", "one", 3);
	write_file(f, "in/b.txt", "two", 3);
	assert_int_equal(open_set(f, "in"), 0);
	assert_int_equal(pack_into(f, "tar", MIB), -(int)PENSTOCK_E_UNSUPPORTED);
}

/* With `force`, packing a set over itself would remove its shards before they are read. */
static void a_set_is_not_packed_over_itself(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = path_join(f->dir, "in/"), *shard = NULL;
	struct pack_result done;

	write_file(f, "in/shard-1", "one", 3);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(open_set(f, i ? "in/shard-1" : "in"), 0);
		assert_int_equal(dataset_pack(f->set, &(struct pack_target){.url = path},
					 &(struct pack_options){.format = "tar",
						 .shard_bytes = 1,
						 .jobs = 1,
						 .force = true},
					 &done, &f->err),
			-(int)PENSTOCK_E_INVALID);
	}
	shard = path_join(f->dir, "in/shard-1");
	assert_int_equal(access(shard, F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		TEST(numbers_are_little_endian_in_each_format),
		TEST(names_of_objects_are_keys_and_extensions),
		TEST(samples_that_do_not_fit_are_refused),
		TEST(samples_that_readers_would_not_find_are_refused),
		TEST(a_set_is_not_packed_over_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
