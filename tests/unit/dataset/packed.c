/* Compressed shards: MosaicML's, litData's, and gzipped IDX files. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <isa-l/igzip_lib.h>
#include <zstd.h>

#include <penstock/error.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "dataset/dataset.h"
#include "dataset/source/internal.h"
#include "s3/sum/checksum.h"

#define SAMPLES 50
#define SHARDS	6
#define BYTES	8000 /* size of a sample; makes a shard larger than one fetch of a scan */

struct fixture {
	char dir[64];
	struct dataset *set;
	struct penstock_error err;
	struct buf content, stored; /* the last shard */
};

static int begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/penstock-packed-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->content = f->stored = (struct buf)BUF_INIT(16 * MIB);
	*state = f;
	return 0;
}

static int finish(void **state)
{
	struct fixture *f = *state;

	dataset_free(f->set);
	penstock_error_release(&f->err);
	buf_release(&f->content);
	buf_release(&f->stored);
	assert_int_equal(fs_remove_tree(f->dir, NULL), 0);
	free(f);
	return 0;
}

static void write_file(const struct fixture *f, const char *name, const void *data, size_t size)
{
	_cleanup_free_ char *path = path_join(f->dir, name);

	assert_int_equal(fs_write_atomic(path, data, size, 0644, NULL), 0);
}

static int open_set(struct fixture *f)
{
	dataset_free(f->set);
	f->set = NULL;
	penstock_error_release(&f->err);
	return dataset_open(
		&f->set, &(struct dataset_options){.place.url = f->dir, .fresh = true}, &f->err);
}

/* ---- MosaicML ---- */

/* Bytes that cannot be compressed, different for each sample. */
static void sample(unsigned id, char out[BYTES])
{
	uint32_t x = id * 2654435761u + 1;

	for (size_t i = 0; i < BYTES; i++) {
		x = x * 1664525u + 1013904223u;
		out[i] = (char)(x >> 24);
	}
}

static void add_u32(struct buf *out, uint32_t n)
{
	buf_add(out, &n, 4);
}

static void make_content(struct fixture *f, unsigned shard)
{
	char bytes[BYTES];

	buf_clear(&f->content);
	add_u32(&f->content, SAMPLES);
	for (unsigned i = 0; i <= SAMPLES; i++)
		add_u32(&f->content, 4 * (SAMPLES + 2) + i * (4 + BYTES));
	for (unsigned i = 0; i < SAMPLES; i++) {
		sample(shard * SAMPLES + i, bytes);
		add_u32(&f->content, BYTES);
		buf_add(&f->content, bytes, BYTES);
	}
	assert_false(buf_failed(&f->content));
}

static void compress(struct fixture *f)
{
	size_t cap = ZSTD_compressBound(f->content.len);
	char *out;

	buf_clear(&f->stored);
	out = buf_reserve(&f->stored, cap);
	assert_non_null(out);
	buf_grown(&f->stored, ZSTD_compress(out, cap, f->content.data, f->content.len, 1));
}

/* The fault of the last shard of a set. */
struct fault {
	const char *method;
	int content, stored; /* added to the sizes in the index */
	const char *sum, *stored_sum; /* hashes in the index */
};

static void write_set(struct fixture *f, unsigned shards, struct fault fault)
{
	_cleanup_(buf_release) struct buf index = BUF_INIT(1 * MIB);

	buf_add_str(&index, "{\"version\": 2, \"shards\": [");
	for (unsigned i = 0; i < shards; i++) {
		bool last = i + 1 == shards;
		char name[32];

		make_content(f, i);
		compress(f);
		snprintf(name, sizeof(name), "shard.%05u.mds.zstd", i);
		write_file(f, name, f->stored.data, f->stored.len);
		buf_printf(&index,
			"%s{\"column_encodings\": [\"bytes\"], \"column_names\": [\"a\"], "
			"\"column_sizes\": [null], \"compression\": \"%s\", \"format\": \"mds\", "
			"\"hashes\": [], \"samples\": %d, \"size_limit\": null, \"version\": 2, "
			"\"raw_data\": {\"basename\": \"%.15s\", \"bytes\": %zu, \"hashes\": "
			"{%s}}, \"zip_data\": {\"basename\": \"%s\", \"bytes\": %zu, \"hashes\": "
			"{%s}}}",
			i ? "," : "", last && fault.method ? fault.method : "zstd:3", SAMPLES, name,
			f->content.len + (size_t)(last ? fault.content : 0),
			last && fault.sum ? fault.sum : "", name,
			f->stored.len + (size_t)(last ? fault.stored : 0),
			last && fault.stored_sum ? fault.stored_sum : "");
	}
	buf_add_str(&index, "]}");
	write_file(f, "index.json", index.data, index.len);
}

static void assert_samples(struct dataset *set, const uint64_t *ids, size_t n)
{
	_cleanup_free_ char *data = malloc(n * (4 + BYTES));
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	char expected[BYTES];

	assert_int_equal(dataset_read(set, ids, n, data, NULL, &err), 0);
	for (size_t i = 0; i < n; i++) {
		sample((unsigned)ids[i], expected);
		assert_memory_equal(data + i * (4 + BYTES) + 4, expected, BYTES);
	}
}

static void samples_of_compressed_shards_are_read(void **state)
{
	struct fixture *f = *state;
	uint64_t ids[] = {0, SAMPLES * SHARDS - 1, 51, 52, 53, 120, 3, 51};
	const struct source *source;

	write_set(f, SHARDS, (struct fault){0});
	assert_int_equal(open_set(f), 0);
	assert_string_equal(dataset_format(f->set), "mds");
	assert_int_equal(dataset_count(f->set), SAMPLES * SHARDS);
	source = dataset_source(f->set);
	/* The scan needs only the first block of each shard, so no shard is unpacked completely. */
	assert_int_equal(source->unpacked, 0);
	assert_samples(f->set, ids, ARRAY_SIZE(ids));
	assert_int_equal(source->unpacked, 4 * f->content.len);
}

/* MDSWriter can leave both forms of a shard; the uncompressed one is read in ranges. */
static void a_shard_that_is_there_uncompressed_is_read_as_it_is(void **state)
{
	struct fixture *f = *state;
	uint64_t ids[] = {3, 60};

	write_set(f, 2, (struct fault){.method = "br"});
	write_file(f, "shard.00001.mds", f->content.data, f->content.len);
	assert_int_equal(open_set(f), 0);
	assert_samples(f->set, ids, 2);
	assert_int_equal(dataset_source(f->set)->unpacked, f->content.len);
}

static void faults_are_reported_with_the_shard(void **state)
{
	static const struct {
		struct fault fault;
		enum penstock_code code;
		const char *words;
	} cases[] = {
		{{.method = "gz"}, PENSTOCK_E_UNSUPPORTED, "'gz'"},
		{{.method = "br:11"}, PENSTOCK_E_UNSUPPORTED, "'br:11'"},
		{{.stored = 1}, PENSTOCK_E_CORRUPT, "index.json"},
		{{.content = -1}, PENSTOCK_E_CORRUPT, NULL},
		{{.content = 1}, PENSTOCK_E_CORRUPT, NULL},
		{{.content = 1 << 30}, PENSTOCK_E_LIMIT, "1024 MiB"},
		{{.stored_sum = "\"sha1\": \"0000000000000000000000000000000000000000\""},
			PENSTOCK_E_CORRUPT, "hash"},
		{{.sum = "\"xxh64\": \"00\", \"md5\": \"00000000000000000000000000000000\""},
			PENSTOCK_E_CORRUPT, "hash"},
	};
	struct fixture *f = *state;
	uint64_t id = 2 * SAMPLES - 1;
	char data[4 + BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int r;

		write_set(f, 2, cases[i].fault);
		r = open_set(f);
		if (r == 0)
			r = dataset_read(f->set, &id, 1, data, NULL, &f->err);
		assert_int_equal(r, -(int)cases[i].code);
		assert_non_null(strstr(f->err.message, "shard.00001.mds.zstd"));
		assert_non_null(strstr(f->err.message, cases[i].words ? cases[i].words : ""));
	}
}

static void hashes_of_the_index_are_verified(void **state)
{
	struct fixture *f = *state;
	char hex[2 * CHECKSUM_MAX_SIZE + 1], *text;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	uint64_t id = SAMPLES - 1;

	write_set(f, 1, (struct fault){0});
	assert_int_equal(
		checksum_of(CHECKSUM_SHA256, f->content.data, f->content.len, digest, NULL), 0);
	str_hex(digest, 32, hex);
	text = str_printf("\"sha256\": \"%s\"", hex);
	write_set(f, 1, (struct fault){.sum = text});
	free(text);
	assert_int_equal(open_set(f), 0);
	assert_samples(f->set, &id, 1);
}

/* The size of a truncated shard differs from the index, so the index of this test has the new
 * size. */
static void damaged_bytes_are_an_error_and_never_samples(void **state)
{
	struct fixture *f = *state;
	uint64_t id = SAMPLES - 1;
	char data[4 + BYTES];

	write_set(f, 1, (struct fault){.stored = -100});
	write_file(f, "shard.00000.mds.zstd", f->stored.data, f->stored.len - 100);
	assert_int_equal(open_set(f), 0);
	assert_int_equal(
		dataset_read(f->set, &id, 1, data, NULL, &f->err), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(f->err.message, "shard.00000.mds.zstd"));

	write_set(f, 1, (struct fault){0});
	memset(f->stored.data + 5, 0xff, 30);
	write_file(f, "shard.00000.mds.zstd", f->stored.data, f->stored.len);
	assert_int_equal(open_set(f), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(f->err.message, "shard.00000.mds.zstd"));
}

/* ---- memory ---- */

static void *read_all(void *cookie)
{
	struct fixture *f = cookie;
	uint64_t ids[SHARDS * SAMPLES];

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = i * 7 % ARRAY_SIZE(ids);
	for (int i = 0; i < 3; i++)
		assert_samples(f->set, ids, ARRAY_SIZE(ids));
	return NULL;
}

/* The set has memory for two and a half unpacked shards. Unpacking a shard takes the memory of two,
 * for the stored and the unpacked bytes, so threads have to wait for each other. */
static void threads_share_the_memory_of_a_set(void **state)
{
	struct fixture *f = *state;
	struct source *source;
	pthread_t threads[4];

	write_set(f, SHARDS, (struct fault){0});
	assert_int_equal(open_set(f), 0);
	source = (struct source *)(uintptr_t)dataset_source(f->set);
	source->room = 2 * f->content.len + f->content.len / 2;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_all, f), 0);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_in_range(source->unpacked, f->content.len, 2 * f->content.len);
}

static void a_child_reads_what_its_parent_unpacked(void **state)
{
	struct fixture *f = *state;
	uint64_t ids[] = {1, 51};
	int status;
	pid_t pid;

	write_set(f, 2, (struct fault){0});
	assert_int_equal(open_set(f), 0);
	assert_samples(f->set, ids, 1);
	pid = fork();
	if (pid == 0) {
		assert_samples(f->set, ids, 2);
		_exit(dataset_source(f->set)->unpacked == 2 * f->content.len ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- litData ---- */

static void write_chunk(struct fixture *f, const char *name, const char *compression)
{
	_cleanup_(buf_release) struct buf index = BUF_INIT(1 * MIB);

	buf_printf(&index,
		"{\"chunks\": [{\"chunk_bytes\": 9, \"chunk_size\": 2, \"dim\": null, "
		"\"filename\": \"%s\"}], \"config\": {\"compression\": %s, \"data_format\": "
		"[\"bytes\"], \"data_spec\": \"[1, {\\\"type\\\": null, \\\"context\\\": null, "
		"\\\"children_spec\\\": []}]\", \"encryption\": null, \"item_loader\": "
		"\"PyTreeLoader\"}}",
		name, compression);
	write_file(f, "index.json", index.data, index.len);
}

static void chunks_of_litdata_are_unpacked(void **state)
{
	/* Two items of one field of 4 and 1 bytes. */
	static const char chunk[] = "\2\0\0\0\x10\0\0\0\x18\0\0\0\x1d\0\0\0\4\0\0\0abcd\1\0\0\0e";
	struct fixture *f = *state;
	uint64_t ids[] = {1, 0};
	char data[13];

	buf_add(&f->content, chunk, sizeof(chunk) - 1);
	compress(f);
	write_chunk(f, "chunk-0-0.zstd.bin", "\"zstd\"");
	write_file(f, "chunk-0-0.zstd.bin", f->stored.data, f->stored.len);
	assert_int_equal(open_set(f), 0);
	assert_string_equal(dataset_format(f->set), "litdata");
	assert_int_equal(dataset_read(f->set, ids, 2, data, NULL, NULL), 0);
	assert_memory_equal(data, "\1\0\0\0e\4\0\0\0abcd", 13);

	write_file(f, "chunk-0-0.zstd.bin", f->stored.data, 3);
	assert_int_equal(open_set(f), -(int)PENSTOCK_E_CORRUPT);
	assert_non_null(strstr(f->err.message, "chunk-0-0.zstd.bin"));
	write_file(f, "chunk-0-0.zstd.bin", "", 0);
	assert_int_equal(open_set(f), -(int)PENSTOCK_E_CORRUPT);
}

/* ---- IDX ---- */

#define ROWS 1000
#define ROW  300

/* Writes a gzipped IDX file of rows of bytes. Returns the number of bytes. */
static size_t write_idx(struct fixture *f)
{
	static const unsigned char head[] = {
		0, 0, 8, 2, 0, 0, ROWS >> 8, ROWS & 255, 0, 0, ROW >> 8, ROW & 255};
	struct isal_zstream zip;
	char row[BYTES];

	buf_add(&f->content, head, sizeof(head));
	for (unsigned i = 0; i < ROWS; i++) {
		sample(i, row);
		buf_add(&f->content, row, ROW);
	}
	isal_deflate_init(&zip);
	zip.gzip_flag = IGZIP_GZIP;
	zip.end_of_stream = 1;
	zip.flush = NO_FLUSH;
	zip.next_in = (uint8_t *)f->content.data;
	zip.avail_in = (uint32_t)f->content.len;
	zip.next_out = (uint8_t *)buf_reserve(&f->stored, 2 * f->content.len);
	zip.avail_out = (uint32_t)(2 * f->content.len);
	assert_int_equal(isal_deflate(&zip), COMP_OK);
	buf_grown(&f->stored, zip.total_out);
	write_file(f, "train-images-idx3-ubyte.gz", f->stored.data, f->stored.len);
	return f->stored.len;
}

static void gzipped_arrays_are_unpacked(void **state)
{
	struct fixture *f = *state;
	uint64_t ids[] = {ROWS - 1, 0};
	char data[2 * ROW], row[BYTES];

	write_idx(f);
	assert_int_equal(open_set(f), 0);
	assert_string_equal(dataset_format(f->set), "idx");
	assert_int_equal(dataset_count(f->set), ROWS);
	assert_int_equal(dataset_source(f->set)->unpacked, 0);
	assert_int_equal(dataset_read(f->set, ids, 2, data, NULL, NULL), 0);
	sample(ROWS - 1, row);
	assert_memory_equal(data, row, ROW);
	sample(0, row);
	assert_memory_equal(data + ROW, row, ROW);
}

static void damaged_gzip_files_are_corrupt(void **state)
{
	struct fixture *f = *state;
	size_t len = write_idx(f);
	uint64_t id = 0;
	char data[ROW];
	/* A wrong byte in the data, in the checksum, and in the size, which is then less than that
	 * of the content. */
	const struct {
		size_t at;
		char to;
	} cases[] = {{len / 2, (char)~f->stored.data[len / 2]},
		{len - 8, (char)~f->stored.data[len - 8]}, {len - 4, 0}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char before = f->stored.data[cases[i].at];
		int r;

		f->stored.data[cases[i].at] = cases[i].to;
		write_file(f, "train-images-idx3-ubyte.gz", f->stored.data, f->stored.len);
		f->stored.data[cases[i].at] = before;
		r = open_set(f);
		if (r == 0)
			r = dataset_read(f->set, &id, 1, data, NULL, &f->err);
		assert_int_equal(r, -(int)PENSTOCK_E_CORRUPT);
		assert_non_null(strstr(f->err.message, "train-images-idx3-ubyte.gz"));
	}
	/* The end of the file is missing, so its last bytes are not a size. */
	write_file(f, "train-images-idx3-ubyte.gz", f->stored.data, 19);
	assert_int_equal(open_set(f), -(int)PENSTOCK_E_CORRUPT);
	write_file(f, "train-images-idx3-ubyte.gz", f->stored.data, len - 4000);
	int r = open_set(f);

	if (r == 0)
		r = dataset_read(f->set, &id, 1, data, NULL, &f->err);
	assert_int_equal(r, -(int)PENSTOCK_E_CORRUPT);
}

int main(void)
{
#define RULE(name) cmocka_unit_test_setup_teardown(name, begin, finish)
	const struct CMUnitTest tests[] = {
		RULE(samples_of_compressed_shards_are_read),
		RULE(a_shard_that_is_there_uncompressed_is_read_as_it_is),
		RULE(faults_are_reported_with_the_shard),
		RULE(hashes_of_the_index_are_verified),
		RULE(damaged_bytes_are_an_error_and_never_samples),
		RULE(threads_share_the_memory_of_a_set),
		RULE(a_child_reads_what_its_parent_unpacked),
		RULE(chunks_of_litdata_are_unpacked),
		RULE(gzipped_arrays_are_unpacked),
		RULE(damaged_gzip_files_are_corrupt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
