#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "dataset/dataset.h"

struct fixture {
	char dir[64];
	struct dataset *set;
	struct penstock_error err;
};

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/penstock-dataset-XXXXXX");
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
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
}

static int open_set(struct fixture *f, struct dataset_options options)
{
	options.place.url = options.place.url ? options.place.url : f->dir;
	dataset_free(f->set);
	f->set = NULL;
	penstock_error_release(&f->err);
	return dataset_open(&f->set, &options, &f->err);
}

static void assert_read(struct fixture *f, const uint64_t *ids, size_t n, const char *expected)
{
	_cleanup_free_ uint64_t *offsets = calloc(n + 1, sizeof(*offsets));
	_cleanup_free_ char *data = NULL;

	assert_int_equal(dataset_layout(f->set, ids, n, offsets, NULL), 0);
	assert_int_equal(offsets[n], strlen(expected));
	data = malloc(offsets[n] + 1);
	assert_int_equal(dataset_read(f->set, ids, n, data, NULL, NULL), 0);
	assert_memory_equal(data, expected, offsets[n]);
}

static void names_and_sizes_of_files_may_be_odd(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *deep = path_join(f->dir, "a b");
	uint64_t ids[] = {4, 0, 0, 1, 2, 3, 4, 1};

	assert_int_equal(mkdir(deep, 0755), 0);
	write_file(f, "a b/%41 \xc3\xa4", "one", 3);
	write_file(f, "a b-c", "two", 3);
	write_file(f, "empty", "", 0);
	write_file(f, "z..", "three", 5);
	write_file(f, ".hidden", "x", 1);
	write_file(f, "y", "", 0);
	assert_int_equal(open_set(f, (struct dataset_options){.format = "objects"}), 0);
	assert_int_equal(dataset_count(f->set), 5);
	assert_string_equal(source_name(dataset_source(f->set), 0), "a b-c");
	assert_read(f, ids, 8, "threetwotwoonethreeone");
	assert_read(f, ids + 4, 2, "");
	assert_read(f, ids, 0, "");
}

/* Windows of 4 tokens, each 1 token after the previous one. */
static void overlapping_and_repeated_samples_are_read_in_any_order(void **state)
{
	struct fixture *f = *state;
	char text[401];
	uint64_t ids[500];
	_cleanup_(buf_release) struct buf expected = BUF_INIT(1 << 20);

	for (int i = 0; i < 200; i++)
		snprintf(text + 2 * i, 3, "%02x", (unsigned)i);
	write_file(f, "a.bin", text, 200);
	write_file(f, "b.bin", text + 200, 200);
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "tokens", .window = 4, .stride = 1}),
		0);
	assert_int_equal(dataset_count(f->set), 2 * 97);
	for (size_t i = 0; i < 500; i++) {
		ids[i] = i * 31 % 194;
		buf_add(&expected, text + 200 * (ids[i] / 97) + 2 * (ids[i] % 97), 8);
	}
	assert_read(f, ids, 500, buf_str(&expected));
	for (size_t i = 0; i < 97; i++)
		ids[i] = i;
	buf_clear(&expected);
	for (size_t i = 0; i < 97; i++)
		buf_add(&expected, text + 2 * i, 8);
	assert_read(f, ids, 97, buf_str(&expected));
	ids[2] = 194;
	assert_int_equal(
		dataset_read(f->set, ids, 3, text, NULL, &f->err), -(int)PENSTOCK_E_INVALID);
	ids[2] = UINT64_MAX;
	assert_int_equal(
		dataset_layout(f->set, ids, 3, (uint64_t[4]){0}, NULL), -(int)PENSTOCK_E_INVALID);
}

static int read_first(struct fixture *f)
{
	char data[64];

	penstock_error_release(&f->err);
	return dataset_read(f->set, (uint64_t[]){0}, 1, data, NULL, &f->err);
}

/* After the set was opened, the file is truncated, replaced by another file of the same size,
 * removed, or replaced by a FIFO. */
static void a_changed_file_is_reported(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = path_join(f->dir, "a"), *other = path_join(f->dir, ".b");
	struct timespec times[2] = {{1000, 0}, {1000, 0}};
	struct dataset_options options = {.format = "records", .record_size = 4};

	write_file(f, "a", "12345678", 8);
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(read_first(f), 0);
	assert_int_equal(truncate(path, 2), 0);
	assert_int_equal(read_first(f), -(int)PENSTOCK_E_CHANGED);
	assert_non_null(strstr(f->err.message, "'a'"));

	write_file(f, "a", "12345678", 8);
	assert_int_equal(open_set(f, options), 0);
	write_file(f, ".b", "abcdefgh", 8);
	assert_int_equal(utimensat(AT_FDCWD, other, times, 0), 0);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(read_first(f), -(int)PENSTOCK_E_CHANGED);
	assert_non_null(strstr(f->err.message, path));

	write_file(f, "a", "12345678", 8);
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(read_first(f), -(int)PENSTOCK_E_NOT_FOUND);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(read_first(f), -(int)PENSTOCK_E_CHANGED);
	options.place.url = path;
	assert_int_equal(open_set(f, options), -(int)PENSTOCK_E_INVALID);
	options.place.url = "/no/such file ";
	assert_int_equal(open_set(f, options), -(int)PENSTOCK_E_NOT_FOUND);
}

/* If all threads scanned shards, too many files would be open. */
static void many_shards_need_few_open_files(void **state)
{
	struct fixture *f = *state;
	struct rlimit before, low;
	uint64_t ids[300];
	char data[600], name[32];

	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "%03u", i);
		write_file(f, name, "12", 2);
		ids[i] = i;
	}
	getrlimit(RLIMIT_NOFILE, &before);
	low = before;
	low.rlim_cur = 26;
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "idx"}), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "records", .record_size = 2}), 0);
	assert_int_equal(dataset_count(f->set), 300);
	assert_int_equal(dataset_read(f->set, ids, 300, data, NULL, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_memory_equal(data + 598, "12", 2);
}

static uint64_t bytes_read(void)
{
	FILE *file = fopen("/proc/thread-self/io", "r");
	uint64_t bytes = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "rchar: %" SCNu64, &bytes), 1);
	fclose(file);
	return bytes;
}

/* Reading the gaps, too, would cost 64 KiB for each sample of one byte. */
static void gaps_that_are_much_larger_than_the_samples_are_not_read(void **state)
{
	struct fixture *f = *state;
	static uint64_t ids[8192];
	uint64_t before;
	char data[8192];
	_cleanup_free_ char *path = path_join(f->dir, "a");
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, 8192LL * 65536), 0);
	for (size_t i = 0; i < 8192; i++) {
		assert_int_equal(pwrite(fd, &(char){(char)i}, 1, (off_t)i * 65536), 1);
		ids[i] = i * 65536;
	}
	close(fd);
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "records", .record_size = 1}), 0);
	before = bytes_read();
	assert_int_equal(dataset_read(f->set, ids, 8192, data, NULL, NULL), 0);
	assert_in_range(bytes_read() - before, 8192, 1 << 20);
	for (size_t i = 0; i < 8192; i++)
		assert_int_equal(data[i], (char)i);
}

static void shards_of_an_index_are_found_by_their_names(void **state)
{
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf index = BUF_INIT(64 << 20);
	/* A shard of one sample: the number of samples, the offsets of its start and its end, and
	 * the size and bytes of a column. */
	char shard[17] = {1, 0, 0, 0, 12, 0, 0, 0, 17, 0, 0, 0, 1, 0, 0, 0}, data[10];
	unsigned n = 1000;
	uint64_t ids[] = {999, 0};

	buf_add_str(&index, "{\"version\": 2, \"shards\": [");
	for (unsigned i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "shard.%05u.mds", i);
		buf_printf(&index,
			"%s{\"column_encodings\": [\"bytes\"], \"column_names\": [\"a\"], "
			"\"column_sizes\": [null], \"compression\": null, \"format\": \"mds\", "
			"\"hashes\": [], \"raw_data\": {\"basename\": \"%s\", \"bytes\": 17, "
			"\"hashes\": {}}, \"samples\": 1, \"size_limit\": null, "
			"\"version\": 2, \"zip_data\": null}",
			i ? "," : "", name);
		shard[16] = (char)i;
		write_file(f, name, shard, sizeof(shard));
	}
	buf_add_str(&index, "]}");
	write_file(f, "index.json", index.data, index.len);
	assert_int_equal(open_set(f, (struct dataset_options){0}), 0);
	assert_string_equal(dataset_format(f->set), "mds");
	assert_int_equal(dataset_count(f->set), n);
	assert_int_equal(dataset_read(f->set, ids, 2, data, NULL, NULL), 0);
	assert_int_equal(data[4], (char)999);
	assert_int_equal(data[9], 0);
}

static void an_empty_set_is_refused(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(open_set(f, (struct dataset_options){0}), -(int)PENSTOCK_E_NOT_FOUND);
	write_file(f, "empty.bin", "", 0);
	assert_int_equal(open_set(f, (struct dataset_options){.format = "cifar10"}),
		-(int)PENSTOCK_E_INVALID);
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "no"}), -(int)PENSTOCK_E_INVALID);
	open_set(f, (struct dataset_options){0});
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(names_and_sizes_of_files_may_be_odd),
		RULE(overlapping_and_repeated_samples_are_read_in_any_order),
		RULE(a_changed_file_is_reported),
		RULE(many_shards_need_few_open_files),
		RULE(gaps_that_are_much_larger_than_the_samples_are_not_read),
		RULE(shards_of_an_index_are_found_by_their_names),
		RULE(an_empty_set_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
