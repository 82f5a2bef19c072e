#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "dataset/dataset.h"
#include "dataset/internal.h"
#include "dataset/index/index.h"
#include "dataset/index/internal.h"
#include "s3/sum/checksum.h"

struct fixture {
	char dir[64], home[64];
	struct dataset *set;
	struct penstock_error err;
};

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/penstock-index-XXXXXX");
	strcpy(f->home, "/tmp/penstock-home-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_non_null(mkdtemp(f->home));
	setenv("PENSTOCK_HOME", f->home, 1);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	dataset_free(f->set);
	penstock_error_release(&f->err);
	assert_int_equal(fs_remove_tree(f->dir, NULL), 0);
	assert_int_equal(fs_remove_tree(f->home, NULL), 0);
	free(f);
	return 0;
}

static void write_file(const struct fixture *f, const char *name, const void *data, size_t size)
{
	_cleanup_free_ char *path = path_join(f->dir, name);

	assert_int_equal(fs_write_atomic(path, data, size, 0644, NULL), 0);
}

static int open_set(struct fixture *f, struct dataset_options options)
{
	options.place.url = f->dir;
	dataset_free(f->set);
	f->set = NULL;
	penstock_error_release(&f->err);
	return dataset_open(&f->set, &options, &f->err);
}

/* Opens, writes the index, and opens again. */
static void index_set(struct fixture *f, struct dataset_options options)
{
	struct dataset_options again = {0};

	options.fresh = true;
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(dataset_write_index(f->set, NULL, &f->err), 0);
	assert_int_equal(open_set(f, again), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_INDEXED);
}

static void assert_sample(struct fixture *f, uint64_t id, const char *expected)
{
	uint64_t offsets[2];
	char data[64];

	assert_int_equal(dataset_layout(f->set, &id, 1, offsets, NULL), 0);
	assert_int_equal(offsets[1], strlen(expected));
	assert_int_equal(dataset_read(f->set, &id, 1, data, NULL, NULL), 0);
	assert_memory_equal(data, expected, offsets[1]);
}

/* ---- the file ---- */

static const struct source_entry entries[] = {
	{.size = 10, .name = 0, .mtime_ns = 1}, {.size = 20, .name = 2, .mtime_ns = 2}};
static const struct index_part parts[] = {{0, 0}, {1, 0}, {3, 0}};
static const struct index_range ranges[] = {{0, 10}, {0, 5}, {5, 15}};
static const uint32_t sums[] = {1, 2, 3};

static struct index example(void)
{
	return (struct index){.format = "tar",
		.list = {.n = 2, .entries = entries, .text = "a\0b/c", .text_len = 6},
		.samples = 3,
		.parts = parts,
		.ranges = ranges,
		.sums = sums,
		.document = "{}",
		.document_len = 2};
}

static int read_back(const struct buf *out, struct index *index)
{
	return index_read(index, out->data, out->len, "x", NULL);
}

static void an_index_is_read_as_it_was_written(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct index index = example(), got;

	(void)state;
	assert_int_equal(index_write(&index, &out, NULL), 0);
	assert_int_equal(read_back(&out, &got), 0);

	assert_string_equal(got.format, "tar");
	assert_int_equal(got.samples, 3);
	assert_int_equal(got.list.n, 2);
	assert_memory_equal(got.list.entries, entries, sizeof(entries));
	assert_memory_equal(got.parts, parts, sizeof(parts));
	assert_memory_equal(got.ranges, ranges, sizeof(ranges));
	assert_memory_equal(got.sums, sums, sizeof(sums));
	assert_memory_equal(got.list.text, "a\0b/c", 6);
	assert_int_equal(got.document_len, 2);
	assert_memory_equal(got.document, "{}", 2);
}

/* A wrong bit or a missing byte is detected at any position. */
static void damage_is_found(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct index index = example(), got;

	(void)state;
	assert_int_equal(index_write(&index, &out, NULL), 0);
	for (size_t i = 0; i < out.len; i++) {
		out.data[i] ^= 4;
		assert_true(read_back(&out, &got) < 0);
		out.data[i] ^= 4;
		assert_true(index_read(&got, out.data, i, "x", NULL) < 0);
	}
	assert_int_equal(read_back(&out, &got), 0);
}

static int write_and_read(const struct index *index)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct index got;

	assert_int_equal(index_write(index, &out, NULL), 0);
	return read_back(&out, &got);
}

/* Another program may write an invalid index with a correct checksum. */
static void numbers_and_names_are_checked(void **state)
{
	static const struct {
		const char *text;
		struct source_entry entries[2];
		struct index_part parts[3];
		struct index_range ranges[3];
	} cases[] = {
		{"b\0aaa", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0a\0x", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 6, {0}}}, {{0}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0../", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}}, {{0}}},
		{"/\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{1, 0}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {4, 0}, {3, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {2, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0, UINT64_MAX}, {1, 0}, {3, 0}}, {{0}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}}, {{1, 10}}},
		{"a\0b/c", {{10, 0, {0}}, {20, 2, {0}}}, {{0}, {1, 0}, {3, 0}},
			{{0}, {0}, {UINT64_MAX, 2}}},
	};
	struct index index = example();

	(void)state;
	assert_int_equal(write_and_read(&index), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		index.list.text = cases[i].text;
		index.list.entries = cases[i].entries;
		index.parts = cases[i].parts;
		index.ranges = cases[i].ranges;
		assert_int_equal(write_and_read(&index), -(int)PENSTOCK_E_CORRUPT);
	}
}

static void a_later_version_is_unsupported(void **state)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	struct index index = example(), got;

	(void)state;
	assert_int_equal(index_write(&index, &out, NULL), 0);
	((struct index_header *)(void *)out.data)->version++;
	assert_int_equal(read_back(&out, &got), -(int)PENSTOCK_E_UNSUPPORTED);
}

/* ---- next to the shards ---- */

static void an_index_replaces_the_listing_and_the_scan(void **state)
{
	struct fixture *f = *state;

	write_file(f, "a", "one", 3);
	write_file(f, "b", "three", 5);
	index_set(f, (struct dataset_options){.format = "objects"});
	assert_int_equal(dataset_count(f->set), 2);
	assert_sample(f, 1, "three");
	/* A new file is not seen before the index is rebuilt. */
	write_file(f, "c", "new", 3);
	assert_int_equal(open_set(f, (struct dataset_options){0}), 0);
	assert_int_equal(dataset_count(f->set), 2);
	assert_int_equal(open_set(f, (struct dataset_options){.fresh = true}), 0);
	assert_int_equal(dataset_count(f->set), 3);
}

/* An index of objects may contain keys with "..", and may be copied next to files later. */
static void no_name_leads_out_of_a_directory(void **state)
{
	static const char *const names[] = {"../secret\0e", "a/../../secret\0e", "/etc/secret\0e"};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
		struct source_entry entry = {.size = 3, .etag = strlen(names[i]) + 1};
		uint32_t sum = 0;
		struct index index = {.format = "objects",
				     .list = {.n = 1,
					     .objects = true,
					     .entries = &entry,
					     .text = names[i],
					     .text_len = strlen(names[i]) + 3},
				     .samples = 1,
				     .sums = &sum,
				     .document = "",
				     .document_len = 0},
			     got;

		assert_int_equal(index_write(&index, &out, NULL), 0);
		assert_int_equal(read_back(&out, &got), 0);
		write_file(f, INDEX_NAME, out.data, out.len);
		assert_int_equal(
			open_set(f, (struct dataset_options){0}), -(int)PENSTOCK_E_CORRUPT);
	}
}

/* The index also contains the settings that the format needs. */
static void settings_come_from_the_index(void **state)
{
	struct fixture *f = *state;
	struct dataset_options records = {.format = "records", .record_size = 4, .header = 1};

	write_file(f, "a", "-onetwo2", 9);
	index_set(f, records);
	assert_int_equal(dataset_count(f->set), 2);
	assert_int_equal(dataset_sample_size(f->set), 4);
	assert_sample(f, 0, "onet");
	/* With other settings, the index is not used. */
	records.record_size = 8;
	assert_int_equal(open_set(f, records), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_SCANNED);
	assert_int_equal(dataset_count(f->set), 1);

	write_file(f, "a", "-onetwo2", 8);
	index_set(f, (struct dataset_options){.format = "tokens", .window = 2, .stride = 1});
	assert_int_equal(dataset_count(f->set), 3);
	assert_sample(f, 1, "netw");
}

static void arrays_have_their_type_in_the_index(void **state)
{
	struct fixture *f = *state;
	static const char head[] = "\x93NUMPY\1\0\x46\0{'descr': '>i2', 'fortran_order': False, "
				   "'shape': (2, 2)}";
	struct format_fields fields = {0};
	char file[88];
	uint64_t id = 1;

	memset(file, ' ', 80);
	memcpy(file, head, sizeof(head) - 1);
	memcpy(file + 80, "abcdefgh", 8);
	write_file(f, "a.npy", file, 88);
	write_file(f, "b.npy", file, 88);
	write_file(f, "notes.txt", "-", 1);
	index_set(f, (struct dataset_options){.format = "npy"});
	assert_int_equal(dataset_count(f->set), 4);
	assert_sample(f, 3, "efgh");
	assert_int_equal(dataset_split(f->set, id, "efgh", 4, &fields, NULL), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_I16);
	assert_true(fields.items[0].big_endian);
	assert_int_equal(fields.items[0].ndim, 1);
	assert_int_equal(fields.items[0].dims[0], 2);
}

/* Chunks of litData have offsets before their tokens, so the index has the place of the tokens. */
static void tokens_have_their_place_in_the_index(void **state)
{
	static const char json[] =
		"{\"chunks\":[{\"chunk_size\":1,\"filename\":\"a\"}],\"config\":{\"data_format\":"
		"[\"no_header_numpy:5\"],\"item_loader\":\"TokensLoader\",\"data_spec\":"
		"\"[1,{\\\"type\\\":null,\\\"children_spec\\\":[]}]\"}}";
	_cleanup_(buf_release) struct buf bytes = BUF_INIT(MIB);
	_cleanup_free_ char *path = NULL;
	struct fixture *f = *state;
	struct index_part *first;
	struct index index;

	write_file(f, "index.json", json, sizeof(json) - 1);
	write_file(f, "a", "\1\0\0\0\14\0\0\0\24\0\0\0abcdefgh", 20);
	write_file(f, "b", "of a writer that was killed", 27);
	index_set(f, (struct dataset_options){.format = "tokens", .window = 2});
	assert_int_equal(dataset_count(f->set), 2);
	assert_sample(f, 1, "efgh");

	path = path_join(f->dir, INDEX_NAME);
	assert_int_equal(fs_read(path, &bytes, NULL), 0);
	assert_int_equal(index_read(&index, bytes.data, bytes.len, "x", NULL), 0);
	first = (struct index_part *)(uintptr_t)index.parts;
	assert_int_equal(first->header, 12);
	for (size_t i = 0; i < 2; i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);

		first->header = i ? UINT64_MAX - 1 : 4;
		assert_int_equal(index_write(&index, &out, NULL), 0);
		write_file(f, INDEX_NAME, out.data, out.len);
		assert_int_equal(
			open_set(f, (struct dataset_options){0}), -(int)PENSTOCK_E_CORRUPT);
	}
}

static void a_shard_that_changed_names_the_remedy(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *a = path_join(f->dir, "a");
	uint64_t id = 0;
	char data[8];

	write_file(f, "a", "one", 3);
	write_file(f, "b", "two", 3);
	index_set(f, (struct dataset_options){.format = "objects"});
	write_file(f, "a", "three", 5);
	assert_int_equal(
		dataset_read(f->set, &id, 1, data, NULL, &f->err), -(int)PENSTOCK_E_CHANGED);
	assert_non_null(strstr(f->err.message, "penstock dataset index"));
	penstock_error_release(&f->err);
	assert_int_equal(unlink(a), 0);
	assert_int_equal(open_set(f, (struct dataset_options){0}), 0);
	assert_int_equal(
		dataset_read(f->set, &id, 1, data, NULL, &f->err), -(int)PENSTOCK_E_CHANGED);
	assert_non_null(strstr(f->err.message, "penstock dataset index"));
}

static void a_damaged_index_is_an_error_with_a_remedy(void **state)
{
	struct fixture *f = *state;

	write_file(f, "a", "one", 3);
	write_file(f, INDEX_NAME, "PSINDEX1", 8);
	assert_int_equal(open_set(f, (struct dataset_options){0}), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(f->err.message, "penstock dataset index"));
	assert_int_equal(open_set(f, (struct dataset_options){.fresh = true}), 0);
}

/* Files have no checksums except those of an index. */
static void samples_are_verified_against_the_checksums_of_an_index(void **state)
{
	struct fixture *f = *state;
	_cleanup_(buf_release) struct buf out = BUF_INIT(MIB);
	uint32_t crcs[] = {crc32c_update(0, "one", 3), 7};
	uint64_t ids[] = {0, 1};
	struct index index = {.format = "objects", .samples = 2, .sums = crcs};
	char data[8];

	write_file(f, "a", "one", 3);
	write_file(f, "b", "two", 3);
	assert_int_equal(
		open_set(f, (struct dataset_options){.format = "objects", .fresh = true}), 0);
	index.list = source_list(dataset_source(f->set));
	assert_int_equal(index_write(&index, &out, NULL), 0);
	write_file(f, INDEX_NAME, out.data, out.len);
	assert_int_equal(open_set(f, (struct dataset_options){0}), 0);
	assert_int_equal(dataset_read(f->set, ids, 1, data, NULL, NULL), 0);
	assert_int_equal(dataset_read(f->set, ids, 2, data, NULL, NULL), -(int)PENSTOCK_E_CORRUPT);
}

/* ---- kept results of scans ---- */

/* Writes a tar with one member for each letter of `names`. */
static void write_tar(const struct fixture *f, const char *shard, const char *names)
{
	_cleanup_(buf_release) struct buf tar = BUF_INIT(MIB);

	for (; *names; names++) {
		char block[512] = {0};
		unsigned sum = 8 * ' ';

		snprintf(block, 100, "%c.txt", *names);
		memcpy(block + 100, "0000644", 8);
		memcpy(block + 124, "00000000003", 12);
		memcpy(block + 257, "ustar\00000", 8);
		block[156] = '0';
		for (int i = 0; i < 512; i++)
			sum += (unsigned char)block[i];
		snprintf(block + 148, 8, "%06o", sum);
		buf_add(&tar, block, 512);
		memset(block, 0, 512);
		memcpy(block, "abc", 3);
		buf_add(&tar, block, 512);
	}
	write_file(f, shard, tar.data, tar.len);
}

static char *kept_path(const struct fixture *f)
{
	_cleanup_free_ char *dir = path_join(f->home, "datasets");
	_cleanup_closedir_ DIR *d = opendir(dir);
	struct dirent *e = d ? fs_next_entry(d) : NULL;

	return e ? path_join(dir, e->d_name) : NULL;
}

static void a_scan_is_kept_for_the_same_list_of_shards(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *path = NULL;
	struct dataset_options options = {0};

	options.place.url = f->dir;
	write_tar(f, "a.tar", "ab");
	assert_int_equal(open_set(f, options), 0);
	dataset_keep(f->set, &options);
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_KEPT);
	assert_int_equal(dataset_count(f->set), 2);
	write_tar(f, "b.tar", "c");
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_SCANNED);
	assert_int_equal(dataset_count(f->set), 3);
	dataset_keep(f->set, &options);
	path = kept_path(f);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(open_set(f, options), 0);
	assert_int_equal(dataset_origin(f->set), DATASET_SCANNED);
	assert_int_equal(dataset_count(f->set), 3);
}

static void what_was_kept_for_long_is_removed(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *dir = path_join(f->home, "datasets"), *old = path_join(dir, "old");
	struct dataset_options options = {0};
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	options.place.url = f->dir;
	write_tar(f, "a.tar", "ab");
	assert_int_equal(fs_mkdirs(dir, 0700, NULL), 0);
	assert_int_equal(fs_write_atomic(old, "x", 1, 0600, NULL), 0);
	assert_int_equal(utimensat(AT_FDCWD, old, times, 0), 0);
	assert_int_equal(open_set(f, options), 0);
	dataset_keep(f->set, &options);
	assert_int_equal(access(old, F_OK), -1);
}

static void *open_in_thread(void *cookie)
{
	struct fixture *f = cookie;
	struct dataset_options options = {0};

	options.place.url = f->dir;
	return dataset_open(&f->set, &options, &f->err) < 0 ? f : NULL;
}

/* Returns the number of open descriptors for the locks of scans. */
static unsigned open_locks(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;
	struct dirent *e;

	while ((e = readdir(dir))) {
		char path[256] = {0};

		if (readlinkat(dirfd(dir), e->d_name, path, sizeof(path) - 1) > 0)
			n += strstr(path, ".lock") != NULL;
	}
	closedir(dir);
	return n;
}

static void one_scans_and_others_wait_for_its_result(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *large = path_join(f->dir, "b.tar");
	struct dataset_options options = {0}, own = {.fresh = true};
	struct dataset *set = NULL;
	pthread_t thread;
	void *failed;
	int claim;

	options.place.url = own.place.url = f->dir;
	write_tar(f, "a.tar", "ab");
	write_file(f, "b.tar", "", 0);
	assert_int_equal(truncate(large, LIMIT_DATASET_SCAN_MIN), 0);
	assert_int_equal(dataset_open(&set, &own, NULL), 0);
	assert_true(dataset_claim_scan(set, &options, &claim));
	assert_true(claim >= 0);
	assert_int_equal(pthread_create(&thread, NULL, open_in_thread, f), 0);
	while (open_locks() < 2)
		sched_yield();
	dataset_keep(set, &options);
	dataset_release_scan(set, &options, claim);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(dataset_origin(f->set), DATASET_KEPT);
	assert_int_equal(dataset_count(f->set), 2);
	assert_int_equal(open_locks(), 0);
	dataset_free(set);
}

static void a_wait_for_a_scan_can_be_cancelled(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *large = path_join(f->dir, "b.tar");
	atomic_int cancel = 1;
	struct dataset_options options = {.fresh = true};
	int claim, none;
	pid_t child;

	write_tar(f, "a.tar", "ab");
	write_file(f, "b.tar", "", 0);
	assert_int_equal(truncate(large, LIMIT_DATASET_SCAN_MIN), 0);
	assert_int_equal(open_set(f, options), 0);
	options.place.url = f->dir;
	assert_true(dataset_claim_scan(f->set, &options, &claim));
	options.place.cancel = &cancel;
	assert_true(dataset_claim_scan(f->set, &options, &none));
	assert_int_equal(none, -1);
	/* A forked child that inherits the descriptor does not hold the claim. */
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	dataset_release_scan(f->set, &options, claim);
	assert_true(dataset_claim_scan(f->set, &options, &claim));
	assert_true(claim >= 0);
	dataset_release_scan(f->set, &options, claim);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_small_set_and_a_compressed_one_are_not_waited_for(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *large = path_join(f->dir, "b.tar"),
			    *packed = path_join(f->dir, "b.gz");
	struct dataset_options options = {.format = "tar", .fresh = true};
	int claim;

	write_tar(f, "a.tar", "ab");
	assert_int_equal(open_set(f, options), 0);
	options.place.url = f->dir;
	assert_false(dataset_claim_scan(f->set, &options, &claim));
	assert_int_equal(claim, -1);
	write_file(f, "b.tar", "", 0);
	assert_int_equal(truncate(large, LIMIT_DATASET_SCAN_MIN), 0);
	assert_int_equal(rename(large, packed), 0);
	options.place.url = NULL;
	assert_int_equal(open_set(f, options), 0);
	options.place.url = f->dir;
	assert_false(dataset_claim_scan(f->set, &options, &claim));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_is_read_as_it_was_written),
		cmocka_unit_test(damage_is_found),
		cmocka_unit_test(numbers_and_names_are_checked),
		cmocka_unit_test(a_later_version_is_unsupported),
		TEST(an_index_replaces_the_listing_and_the_scan),
		TEST(no_name_leads_out_of_a_directory),
		TEST(settings_come_from_the_index),
		TEST(arrays_have_their_type_in_the_index),
		TEST(tokens_have_their_place_in_the_index),
		TEST(a_shard_that_changed_names_the_remedy),
		TEST(a_damaged_index_is_an_error_with_a_remedy),
		TEST(samples_are_verified_against_the_checksums_of_an_index),
		TEST(a_scan_is_kept_for_the_same_list_of_shards),
		TEST(what_was_kept_for_long_is_removed),
		TEST(one_scans_and_others_wait_for_its_result),
		TEST(a_wait_for_a_scan_can_be_cancelled),
		TEST(a_small_set_and_a_compressed_one_are_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
