/* Shards of MosaicML Streaming: index, samples and columns, read and written. */
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
#include "dataset/format/mds/mds.h"
#include "memory_shard.h"

static struct found found;
static struct format_fields fields;

/* Parses an index with one shard of one column; `size` is the JSON value of the column's size. */
static int parse_column(
	struct mds_index **out, const char *encoding, const char *size, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1 * MIB);

	buf_printf(&text,
		"{\"version\":2,\"shards\":[{\"column_encodings\":[\"%s\"],"
		"\"column_names\":[\"x\"],\"column_sizes\":[%s],\"compression\":null,"
		"\"format\":\"mds\",\"hashes\":[],\"raw_data\":{\"basename\":\"shard.00000.mds\","
		"\"bytes\":100,\"hashes\":{\"sha1\":\"00ff\"}},\"samples\":1,"
		"\"size_limit\":67108864,\"version\":2,\"zip_data\":null}]}",
		encoding, size);
	return mds_index_parse(out, text.data, text.len, "index.json", err);
}

/* Splits a sample with the value of one column. The value's size precedes it unless the size is
 * fixed. */
static int split_value(const char *encoding, const char *size, const void *value, size_t len)
{
	static struct mds_index *index;
	static unsigned char sample[4096];
	struct format_piece piece = {.shard = "shard.00000.mds", .data = sample};
	size_t head = strcmp(size, "null") == 0 ? 4 : 0;

	mds_index_free(index);
	index = NULL;
	assert_int_equal(parse_column(&index, encoding, size, NULL), 0);
	memset(sample, 0, sizeof(sample));
	sample[0] = (unsigned char)len;
	sample[1] = (unsigned char)(len >> 8);
	memcpy(sample + head, value, len);
	piece.size = head + len;
	return index->shards[0].format.split(&index->shards[0].format, &piece, &fields, NULL);
}

static void test_the_index_has_shards_and_columns(void **state)
{
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	const struct mds_shard *s;

	(void)state;
	assert_int_equal(parse_column(&index, "ndarray:uint8:32, 32,3", "3072", NULL), 0);

	assert_int_equal(index->n, 1);
	s = &index->shards[0];
	assert_string_equal(s->raw.basename, "shard.00000.mds");
	assert_int_equal(s->raw.bytes, 100);
	assert_string_equal(strlist_get(&s->raw.hashes, "sha1"), "00ff");
	assert_null(s->zip.basename);
	assert_null(s->compression);
	assert_int_equal(s->samples, 1);
	assert_int_equal(s->columns->n, 1);
	assert_int_equal(s->columns->items[0].ndim, 3);
	assert_int_equal(s->columns->items[0].size, 3072);
}

static void test_columns_that_cannot_be_read_are_refused(void **state)
{
	static const struct {
		const char *encoding, *size;
		enum penstock_code code;
	} cases[] = {
		{"pkl", "null", PENSTOCK_E_UNSUPPORTED},
		{"webp", "null", PENSTOCK_E_UNSUPPORTED},
		{"int:3", "8", PENSTOCK_E_UNSUPPORTED},
		{"bfloat16", "2", PENSTOCK_E_UNSUPPORTED},
		{"int", "null", PENSTOCK_E_CORRUPT},
		{"int", "4", PENSTOCK_E_CORRUPT},
		{"int", "-8", PENSTOCK_E_CORRUPT},
		{"bytes", "8", PENSTOCK_E_CORRUPT},
		{"ndarray:bool", "null", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:", "null", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:3,0", "null", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:3:3", "null", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:1,1,1,1,1,1,1,1,1", "1", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:4294967296,4294967296,4294967296", "null", PENSTOCK_E_CORRUPT},
		{"ndarray:uint8:4294967296", "4294967296", PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
		_cleanup_(mds_index_freep) struct mds_index *index = NULL;

		assert_int_equal(parse_column(&index, cases[i].encoding, cases[i].size, &err),
			-(int)cases[i].code);
		assert_non_null(strstr(err.message, "'x'"));
		assert_non_null(strstr(err.message, cases[i].encoding));
	}
}

static void test_invalid_indexes_are_refused(void **state)
{
#define HEAD                                                                                       \
	"\"column_encodings\":[\"int\"],\"column_names\":[\"x\"],\"column_sizes\":[8],"            \
	"\"format\":\"mds\",\"samples\":1,\"version\":2,"
	static const struct {
		const char *text;
		enum penstock_code code;
	} cases[] = {
		{"", PENSTOCK_E_CORRUPT},
		{"[]", PENSTOCK_E_CORRUPT},
		{"{\"version\":2}", PENSTOCK_E_CORRUPT},
		{"{\"version\":1,\"shards\":[]}", PENSTOCK_E_UNSUPPORTED},
		{"{\"version\":2,\"shards\":[1]}", PENSTOCK_E_UNSUPPORTED},
		{"{\"version\":2,\"shards\":[{\"version\":2,\"format\":\"json\"}]}",
			PENSTOCK_E_UNSUPPORTED},
		{"{\"version\":2,\"shards\":[{" HEAD "\"raw_data\":null}]}", PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{" HEAD
		 "\"raw_data\":{\"basename\":\"../x\",\"bytes\":1}}]}",
			PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{" HEAD
		 "\"raw_data\":{\"basename\":\"/x\",\"bytes\":1}}]}",
			PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{" HEAD
		 "\"raw_data\":{\"basename\":\"x\",\"bytes\":-1}}]}",
			PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{" HEAD
		 "\"raw_data\":{\"basename\":\"x\",\"bytes\":1},\"zip_data\":3}]}",
			PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{\"column_names\":[],\"format\":\"mds\","
		 "\"samples\":1,\"version\":2}]}",
			PENSTOCK_E_CORRUPT},
		{"{\"version\":2,\"shards\":[{\"column_encodings\":[\"int\",\"int\"],"
		 "\"column_names\":[\"x\",\"x\"],\"column_sizes\":[8,8],\"format\":\"mds\","
		 "\"samples\":1,\"version\":2}]}",
			PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mds_index_freep) struct mds_index *index = NULL;

		assert_int_equal(mds_index_parse(&index, cases[i].text, strlen(cases[i].text),
					 "index.json", NULL),
			-(int)cases[i].code);
	}
}

static void test_values_of_simple_columns_have_types(void **state)
{
	(void)state;
	assert_int_equal(split_value("str", "null", "text", 4), 0);
	assert_int_equal(fields.items[0].type, FORMAT_TEXT);
	assert_memory_equal(fields.items[0].data, "text", 4);
	assert_int_equal(split_value("str_decimal", "null", "1.5", 3), 0);
	assert_int_equal(fields.items[0].type, FORMAT_TEXT);
	assert_int_equal(split_value("json", "null", "{}", 2), 0);
	assert_int_equal(fields.items[0].type, FORMAT_JSON);
	assert_int_equal(split_value("png", "null", "PNG", 3), 0);
	assert_int_equal(fields.items[0].type, FORMAT_BYTES);
	assert_int_equal(split_value("float16", "2", "ab", 2), 0);
	assert_int_equal(fields.items[0].type, FORMAT_NUMBER);
	assert_int_equal(fields.items[0].dtype, DTYPE_F16);
	assert_int_equal(split_value("int", "8", "abcdefgh", 8), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_I64);
	assert_int_equal(split_value("int", "8", "abcdefg", 7), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("int", "8", "abcdefghi", 9), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("str", "null", "", 0), 0);
	assert_int_equal(fields.items[0].size, 0);
}

static void test_arrays_have_static_or_dynamic_shapes(void **state)
{
	(void)state;
	assert_int_equal(split_value("ndarray:uint16:2,1", "4", "abcd", 4), 0);
	assert_int_equal(fields.items[0].dims[0], 2);
	assert_int_equal(fields.items[0].dtype, DTYPE_U16);
	assert_int_equal(split_value("ndarray:uint8", "null", "\x08\2\2abcd", 7), 0);
	assert_int_equal(fields.items[0].ndim, 2);
	assert_memory_equal(fields.items[0].data, "abcd", 4);
	assert_int_equal(split_value("ndarray", "null", "\x22\x05\1\0abcd", 8), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_F32);
	assert_int_equal(fields.items[0].dims[0], 1);
	assert_int_equal(split_value("ndarray", "null", "\x22\x06\1\0\0\0abcd", 10), 0);
	assert_int_equal(split_value("ndarray", "null", "\x22\x07\1\0\0\0\0\0\0\0abcd", 14), 0);

	assert_int_equal(split_value("ndarray", "null", "", 0), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("ndarray", "null", "\x22", 1), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("ndarray", "null", "\x21\x04\1a", 4), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("ndarray", "null", "\x22\x05\1\0abc", 7), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("ndarray", "null", "\x08\x05\1", 3), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("ndarray", "null",
				 "\x08\x0b\xff\xff\xff\xff\xff\xff\xff\xff"
				 "\xff\xff\xff\xff\xff\xff\xff\xff",
				 18),
		-(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("ndarray", "null", "\x08\xfc", 2), -(int)PENSTOCK_E_CORRUPT);
}

static void test_pixels_of_pillow_are_arrays(void **state)
{
	(void)state;
	assert_int_equal(split_value("pil", "null", "\2\0\0\0\1\0\0\0\3\0\0\0RGBabcdef", 21), 0);
	assert_int_equal(fields.items[0].type, FORMAT_ARRAY);
	assert_int_equal(fields.items[0].dims[0], 1);
	assert_int_equal(fields.items[0].dims[1], 2);
	assert_int_equal(fields.items[0].dims[2], 3);
	assert_int_equal(fields.items[0].mode_len, 3);
	assert_memory_equal(fields.items[0].mode, "RGB", 3);
	assert_memory_equal(fields.items[0].data, "abcdef", 6);

	assert_int_equal(split_value("pil", "null", "\2\0\0\0\1\0\0\0\3\0\0\0RGBabcde", 20),
		-(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("pil", "null", "\2\0\0\0\1\0\0\0\xff\0\0\0RGBabcdef", 21),
		-(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("pil", "null", "\2\0\0\0\1\0\0\0\1\0\0\0001a", 14),
		-(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("pil", "null", "\2\0\0\0\1\0\0\0\3", 9), -(int)PENSTOCK_E_CORRUPT);
}

static void test_lists_are_fields_with_an_index(void **state)
{
	static const char array[] = "\2\0\0\0\1\0\0\0\2\0\0\0abb";
	static const char list[] = "\0\0\0\0\1\0\0\0\x0e\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0Lp";

	(void)state;
	assert_int_equal(split_value("jpeg_array", "null", array, 15), 0);
	assert_int_equal(fields.n, 2);
	assert_int_equal(fields.items[1].index, 1);
	assert_int_equal(fields.items[1].count, 2);
	assert_memory_equal(fields.items[1].data, "bb", 2);
	assert_int_equal(split_value("list[pil]", "null", list, 26), 0);
	assert_int_equal(fields.n, 1);
	assert_int_equal(fields.items[0].type, FORMAT_ARRAY);
	assert_int_equal(split_value("list[png]", "null", "\0\0\0\0\0\0\0\0", 8), 0);
	assert_int_equal(fields.n, 0);

	for (size_t len = 0; len < 15; len++)
		assert_int_equal(
			split_value("jpeg_array", "null", array, len), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("jpeg_array", "null", "\0\0\0\0x", 5), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("list[jpeg]", "null", "\0\0\0\0\xff\xff\xff\xff", 8),
		-(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("list[pil]", "null", "\0\0\0\0\1\0\0\0\1\0\0\0x", 13),
		-(int)PENSTOCK_E_CORRUPT);
}

/* ---- whole shards ---- */

static const struct mds_spec specs[] = {
	{"label", "int"}, {"image", "jpeg"}, {"array", "ndarray"}, {"text", "str"}};

static void add_sample(const struct mds_columns *c, const char *text, int64_t label,
	struct buf *samples, uint64_t *size)
{
	const struct format_field values[] = {
		{.type = FORMAT_ARRAY,
			.dtype = DTYPE_F32,
			.ndim = 2,
			.dims = {1, 2},
			.data = "abcdefgh",
			.size = 8},
		{.data = "JPG", .size = 3},
		{.type = FORMAT_NUMBER, .dtype = DTYPE_I64, .data = &label, .size = 8},
		{.data = text, .size = strlen(text)},
	};
	size_t before = samples->len;

	assert_int_equal(mds_sample_add(c, values, samples, NULL), 0);
	*size = samples->len - before;
}

/* Writes a shard of two samples and its index. */
static void write_all(struct buf *shard, struct buf *index)
{
	_cleanup_(mds_columns_freep) struct mds_columns *c = NULL;
	_cleanup_(buf_release) struct buf samples = BUF_INIT(1 * MIB);
	struct mds_written written = {.basename = "shard.00000.mds", .samples = 2};
	uint64_t sizes[2];

	assert_int_equal(mds_columns_new(&c, specs, ARRAY_SIZE(specs), NULL), 0);
	add_sample(c, "first", 7, &samples, &sizes[0]);
	add_sample(c, "second é", -1, &samples, &sizes[1]);
	assert_int_equal(mds_header_add(c, sizes, 2, shard, NULL), 0);
	assert_int_equal(buf_add(shard, samples.data, samples.len), 0);
	written.bytes = shard->len;
	assert_int_equal(mds_index_add(c, &written, 1, index, NULL), 0);
}

static void test_a_shard_that_was_written_can_be_read(void **state)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	struct memory_shard m;
	struct shard_reader reader;
	struct format_piece piece;
	const struct format *f;
	int64_t label;

	(void)state;
	write_all(&data, &text);

	assert_int_equal(mds_index_parse(&index, text.data, text.len, "index.json", NULL), 0);

	f = &index->shards[0].format;
	m = (struct memory_shard){.data = data.data, .size = data.len};
	reader = memory_shard_reader(&m, "shard.00000.mds");
	memset(&found, 0, sizeof(found));
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), 0);
	assert_int_equal(found.n, 2);
	piece = found_piece(&m, "shard.00000.mds", &found, 1);
	assert_int_equal(f->split(f, &piece, &fields, NULL), 0);
	assert_int_equal(fields.n, 4);
	assert_true(field_is(&fields.items[0], "array"));
	assert_int_equal(fields.items[0].dims[1], 2);
	memcpy(&label, field_of(&fields, "label")->data, 8);
	assert_int_equal(label, -1);
	assert_memory_equal(field_of(&fields, "text")->data, "second é", 9);
}

/* mosaicml.mds was written by mosaicml-streaming 0.13.0, with all encodings except pkl and plain
 * numbers. */
static void test_a_shard_of_mosaicml_can_be_read(void **state)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	const struct format_field *field;
	struct memory_shard m;
	struct shard_reader reader;
	struct format_piece piece;
	const struct format *f;

	(void)state;
	assert_int_equal(memory_shard_file("mosaicml.mds", &data), 0);
	assert_int_equal(memory_shard_file("mosaicml.json", &text), 0);
	assert_int_equal(mds_index_parse(&index, text.data, text.len, "index.json", NULL), 0);
	f = &index->shards[0].format;
	m = (struct memory_shard){.data = data.data, .size = data.len};
	reader = memory_shard_reader(&m, "mosaicml.mds");
	memset(&found, 0, sizeof(found));

	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), 0);
	assert_int_equal(found.n, 2);
	piece = found_piece(&m, "mosaicml.mds", &found, 1);
	assert_int_equal(f->split(f, &piece, &fields, NULL), 0);

	field = field_of(&fields, "p");
	assert_memory_equal(field->mode, "RGB", 3);
	assert_int_equal(field->dims[1], 2);
	assert_memory_equal(field->data, "\1\2\3\4\5\6", 6);
	field = field_of(&fields, "lp");
	assert_int_equal(field[1].count, 2);
	assert_int_equal(field[1].dims[0], 2);
	assert_memory_equal(field_of(&fields, "d")->data, "1.25", 4);
	assert_int_equal(field_of(&fields, "n")->dtype, DTYPE_I16);
	assert_int_equal(field_of(&fields, "n")->dims[1], 3);
	assert_int_equal(field_of(&fields, "t")->dims[0], 2);
	assert_memory_equal(field_of(&fields, "s")->data, "\1\2\3\4", 4);
	assert_memory_equal(field_of(&fields, "ja")[1].data, "jj2", 3);
	assert_null(field_of(&fields, "lj"));
}

static void test_shards_of_another_size_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	struct memory_shard m;
	struct shard_reader reader;
	struct mds_shard *s;

	(void)state;
	write_all(&data, &text);
	assert_int_equal(mds_index_parse(&index, text.data, text.len, "index.json", NULL), 0);
	s = &index->shards[0];
	m = (struct memory_shard){.data = data.data, .size = data.len - 1};
	reader = memory_shard_reader(&m, "shard.00000.mds");
	assert_int_equal(s->format.scan(&s->format, &reader, found_add, &found, NULL),
		-(int)PENSTOCK_E_CORRUPT);
}

/* A table of offsets that does not describe contiguous samples is corrupt. */
static void test_invalid_offsets_are_corrupt(void **state)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	_cleanup_(mds_index_freep) struct mds_index *index = NULL;
	struct memory_shard m;
	struct shard_reader reader;
	const struct format *f;

	(void)state;
	write_all(&data, &text);
	assert_int_equal(mds_index_parse(&index, text.data, text.len, "index.json", NULL), 0);
	f = &index->shards[0].format;
	m = (struct memory_shard){.data = data.data, .size = data.len};
	reader = memory_shard_reader(&m, "shard.00000.mds");
	for (size_t i = 0; i < 16; i++) {
		if (i / 4 == 1 || i / 4 == 2)
			continue; /* a change would only divide the same bytes differently */
		data.data[i] = (char)~data.data[i];
		memset(&found, 0, sizeof(found));
		assert_int_equal(
			f->scan(f, &reader, found_add, &found, NULL), -(int)PENSTOCK_E_CORRUPT);
		data.data[i] = (char)~data.data[i];
	}
	/* one byte more than the last sample has */
	m.size = reader.size = ++index->shards[0].raw.bytes;
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), -(int)PENSTOCK_E_CORRUPT);
	m.size = reader.size = --index->shards[0].raw.bytes;
	data.data[5] = (char)0xff;
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), -(int)PENSTOCK_E_CORRUPT);
	memset(data.data + 4, 0, 4);
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), -(int)PENSTOCK_E_CORRUPT);
}

/* Dimensions are stored with the smallest width that can hold all of them. */
static void test_large_arrays_can_be_written(void **state)
{
	static const uint64_t dims[] = {255, 256, 65536};
	static const char values[65536];
	static const struct mds_spec spec = {"x", "ndarray"};
	_cleanup_(mds_columns_freep) struct mds_columns *c = NULL;

	(void)state;
	assert_int_equal(mds_columns_new(&c, &spec, 1, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(dims); i++) {
		_cleanup_(buf_release) struct buf out = BUF_INIT(1 * MIB);
		_cleanup_(mds_index_freep) struct mds_index *index = NULL;
		struct format_field value = {.type = FORMAT_ARRAY,
			.dtype = DTYPE_U8,
			.ndim = 1,
			.dims = {dims[i]},
			.data = values,
			.size = dims[i]};
		struct format_piece piece = {.shard = "s"};
		const struct format *f;

		assert_int_equal(mds_sample_add(c, &value, &out, NULL), 0);
		assert_int_equal(out.len, 4 + 2 + (1 << i) + dims[i]);
		assert_int_equal(parse_column(&index, "ndarray", "null", NULL), 0);
		f = &index->shards[0].format;
		piece.data = out.data;
		piece.size = out.len;
		assert_int_equal(f->split(f, &piece, &fields, NULL), 0);
		assert_int_equal(fields.items[0].dims[0], dims[i]);
	}
}

static void test_columns_that_cannot_be_written_are_refused(void **state)
{
	static const struct {
		struct mds_spec specs[2];
		enum penstock_code code;
	} cases[] = {
		{{{"a", "int"}, {"a", "str"}}, PENSTOCK_E_INVALID},
		{{{"a", "int"}, {"b", "pkl"}}, PENSTOCK_E_UNSUPPORTED},
		{{{"a", "int"}, {"b", "pil"}}, PENSTOCK_E_UNSUPPORTED},
		{{{"a", "int"}, {"b", "ndarray:uint8:0"}}, PENSTOCK_E_INVALID},
		{{{"a", "int"}, {"b\xff", "int"}}, PENSTOCK_E_INVALID},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mds_columns_freep) struct mds_columns *c = NULL;

		assert_int_equal(mds_columns_new(&c, cases[i].specs, 2, NULL), -(int)cases[i].code);
	}
}

static void test_values_that_do_not_fit_are_refused(void **state)
{
	static const struct {
		const char *encoding;
		struct format_field value;
	} cases[] = {
		{"str", {.data = "\xff", .size = 1}},
		{"int", {.type = FORMAT_NUMBER, .dtype = DTYPE_I32, .data = "abcd", .size = 4}},
		{"int", {.type = FORMAT_NUMBER, .dtype = DTYPE_I64, .data = "abcd", .size = 4}},
		{"ndarray:uint8", {.type = FORMAT_ARRAY,
					  .dtype = DTYPE_I8,
					  .ndim = 1,
					  .dims = {1},
					  .data = "a",
					  .size = 1}},
		{"ndarray:uint8:2", {.type = FORMAT_ARRAY,
					    .dtype = DTYPE_U8,
					    .ndim = 1,
					    .dims = {1},
					    .data = "a",
					    .size = 1}},
		{"ndarray", {.type = FORMAT_ARRAY,
				    .dtype = DTYPE_U8,
				    .ndim = 1,
				    .dims = {2},
				    .data = "a",
				    .size = 1}},
		{"ndarray", {.type = FORMAT_ARRAY,
				    .dtype = DTYPE_BOOL,
				    .ndim = 1,
				    .dims = {1},
				    .data = "a",
				    .size = 1}},
		{"ndarray", {.type = FORMAT_BYTES, .data = "a", .size = 1}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mds_spec spec = {"x", cases[i].encoding};
		_cleanup_(mds_columns_freep) struct mds_columns *c = NULL;
		_cleanup_(buf_release) struct buf out = BUF_INIT(1 * MIB);

		assert_int_equal(mds_columns_new(&c, &spec, 1, NULL), 0);
		assert_int_equal(
			mds_sample_add(c, &cases[i].value, &out, NULL), -(int)PENSTOCK_E_INVALID);
	}
}

static void test_shards_of_4_gib_are_refused(void **state)
{
	_cleanup_(mds_columns_freep) struct mds_columns *c = NULL;
	_cleanup_(buf_release) struct buf out = BUF_INIT(1 * MIB);
	uint64_t sizes[2] = {UINT32_MAX - 1000, 2000};

	(void)state;
	assert_int_equal(mds_columns_new(&c, specs, ARRAY_SIZE(specs), NULL), 0);
	assert_int_equal(mds_header_add(c, sizes, 2, &out, NULL), -(int)PENSTOCK_E_LIMIT);
	sizes[0] = UINT64_MAX;
	assert_int_equal(mds_header_add(c, sizes, 2, &out, NULL), -(int)PENSTOCK_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_index_has_shards_and_columns),
		cmocka_unit_test(test_columns_that_cannot_be_read_are_refused),
		cmocka_unit_test(test_invalid_indexes_are_refused),
		cmocka_unit_test(test_values_of_simple_columns_have_types),
		cmocka_unit_test(test_arrays_have_static_or_dynamic_shapes),
		cmocka_unit_test(test_pixels_of_pillow_are_arrays),
		cmocka_unit_test(test_lists_are_fields_with_an_index),
		cmocka_unit_test(test_a_shard_that_was_written_can_be_read),
		cmocka_unit_test(test_a_shard_of_mosaicml_can_be_read),
		cmocka_unit_test(test_shards_of_another_size_are_refused),
		cmocka_unit_test(test_invalid_offsets_are_corrupt),
		cmocka_unit_test(test_large_arrays_can_be_written),
		cmocka_unit_test(test_columns_that_cannot_be_written_are_refused),
		cmocka_unit_test(test_values_that_do_not_fit_are_refused),
		cmocka_unit_test(test_shards_of_4_gib_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
