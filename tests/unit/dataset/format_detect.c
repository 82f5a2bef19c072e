/* Detection of formats by names, sizes and first bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "dataset/format/detect.h"

static enum format_kind detect(const char *name, uint64_t size, const void *head, size_t len)
{
	struct detect_object o = {.name = name, .size = size, .head = head, .head_len = len};
	const char *reason = NULL;
	enum format_kind kind = format_detect(&o, &reason);

	assert_true(reason && *reason);
	assert_true(format_kind_name(kind) && *format_kind_name(kind));
	return kind;
}

static void test_formats_are_known_by_their_first_bytes(void **state)
{
	static const struct {
		const char *name;
		uint64_t size;
		const char *head;
		size_t len;
		enum format_kind kind;
	} cases[] = {
		{"d/index.json", 900, "{\"shards\": [{\"column", 20, FORMAT_KIND_MDS},
		{"index.json", 900, "{\"chunks\": [{\"chunk_", 20, FORMAT_KIND_LITDATA},
		{"index.json", 9, "{\"a\": 1}\n", 9, FORMAT_KIND_OBJECTS},
		{"myindex.json", 900, "{\"chunks\": [{\"chunk_", 20, FORMAT_KIND_OBJECTS},
		{"a.idx", 100, "v1.2 3\n", 7, FORMAT_KIND_PART},
		{"a", 16, "\0\0\0\0\0\0\0\0\x29\x03\x98\x07", 12, FORMAT_KIND_TFRECORD},
		{"a", 16, "\0\0\0\0\0\0\0\0\x29\x03\x98\x08", 12, FORMAT_KIND_OBJECTS},
		{"a.npy", 200, "\x93NUMPY\1\0", 8, FORMAT_KIND_NPY},
		{"train-labels-idx1-ubyte", 10, "\0\0\x08\1\0\0\0\2", 8, FORMAT_KIND_IDX},
		{"train-labels-idx1-ubyte", 11, "\0\0\x08\1\0\0\0\2", 8, FORMAT_KIND_IDX},
		{"labels", 10, "\0\0\x08\1\0\0\0\2", 8, FORMAT_KIND_IDX},
		{"labels", 11, "\0\0\x08\1\0\0\0\2", 8, FORMAT_KIND_OBJECTS},
		{"cut.npy", 4, "\x93NUM", 4, FORMAT_KIND_NPY},
		{"x", 0, "\0\0\x0a\1\0\0\0\2", 8, FORMAT_KIND_OBJECTS},
		{"a.parquet", 200, "PAR1\x15", 5, FORMAT_KIND_UNSUPPORTED},
		{"a.h5", 200, "\x89HDF\r\n\x1a\n", 8, FORMAT_KIND_UNSUPPORTED},
		{"train.tfrecord", 200, "\x1f\x8b\x08", 3, FORMAT_KIND_UNSUPPORTED},
		{"train-images-idx3-ubyte.gz", 200, "\x1f\x8b\x08", 3, FORMAT_KIND_IDX},
		{"scan.nii.gz", 200, "\x1f\x8b\x08", 3, FORMAT_KIND_OBJECTS},
		{"a.jpg", 200, "\xff\xd8\xff", 3, FORMAT_KIND_OBJECTS},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(detect(cases[i].name, cases[i].size, cases[i].head, cases[i].len),
			cases[i].kind);
}

static void test_a_header_of_tar_is_enough(void **state)
{
	char head[DETECT_BYTES] = "a.jpg";

	(void)state;
	memcpy(head + 257, "ustar", 6);
	assert_int_equal(detect("shard-000", 10240, head, sizeof(head)), FORMAT_KIND_TAR);
	assert_int_equal(detect("shard-000", 10240, head, 100), FORMAT_KIND_OBJECTS);
}

static void test_other_formats_are_known_by_name_and_size(void **state)
{
	static const struct {
		const char *name;
		uint64_t size;
		enum format_kind kind;
	} cases[] = {
		{"p/data_batch_1.bin", 30730000, FORMAT_KIND_CIFAR10},
		{"p/data_batch_1.bin", 30730001, FORMAT_KIND_CIFAR10},
		{"p/data_batch_1", 31035704, FORMAT_KIND_OBJECTS},
		{"test_batch.bin", 30730000, FORMAT_KIND_CIFAR10},
		{"train.bin", 153700000, FORMAT_KIND_CIFAR100},
		{"train.bin", 153700002, FORMAT_KIND_OBJECTS},
		{"d.tar/x.png", 10, FORMAT_KIND_OBJECTS},
		{"x.TAR", 10, FORMAT_KIND_TAR},
		{"x.tar.gz", 10, FORMAT_KIND_UNSUPPORTED},
		{"x.tgz", 10, FORMAT_KIND_UNSUPPORTED},
		{"shard.00000.mds", 10, FORMAT_KIND_PART},
		{"shard.00000.mds.zstd", 10, FORMAT_KIND_PART},
		{"shard.00000.mds.br", 10, FORMAT_KIND_UNSUPPORTED},
		{"chunk-0-0.bin", 10, FORMAT_KIND_PART},
		{"other-0-0.bin", 10, FORMAT_KIND_OBJECTS},
		{"train-00000-of-00010.tfrecord", 10, FORMAT_KIND_TFRECORD},
		{"imagenet.beton", 10, FORMAT_KIND_UNSUPPORTED},
		{"volume.raw", LIMIT_SAMPLE, FORMAT_KIND_OBJECTS},
		{"volume.raw", LIMIT_SAMPLE + 1, FORMAT_KIND_UNSUPPORTED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(detect(cases[i].name, cases[i].size, NULL, 0), cases[i].kind);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formats_are_known_by_their_first_bytes),
		cmocka_unit_test(test_a_header_of_tar_is_enough),
		cmocka_unit_test(test_other_formats_are_known_by_name_and_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
