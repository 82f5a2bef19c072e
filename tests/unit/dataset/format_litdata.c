/* Chunks of litData: index, items and fields. */
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
#include "dataset/format/litdata/litdata.h"
#include "memory_shard.h"

static struct found found;
static struct format_fields fields;

#define LEAF "{\\\"type\\\":null,\\\"context\\\":null,\\\"children_spec\\\":[]}"
/* The text of a dictionary's node, within JSON text; `keys` is a list of words. */
#define DICT(keys, children)                                                                       \
	"{\\\"type\\\":\\\"builtins.dict\\\",\\\"context\\\":\\\"[" keys                           \
	"]\\\",\\\"children_spec\\\":[" children "]}"
#define KEY(word) "\\\\\\\"" word "\\\\\\\""

static int parse(struct litdata_index **out, const char *formats, const char *spec,
	const char *more, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(1 * MIB);

	buf_printf(&text,
		"{\"chunks\":[{\"chunk_bytes\":1,\"chunk_size\":1,\"dim\":null,"
		"\"filename\":\"chunk-0-0.bin\"}],\"config\":{%s\"data_format\":[%s],"
		"\"data_spec\":\"[1, %s]\"}}",
		more, formats, spec);
	return litdata_index_parse(out, text.data, text.len, "index.json", err);
}

static int split_value(const char *format, const void *value, size_t len)
{
	static struct litdata_index *index;
	static unsigned char item[256];
	struct format_piece piece = {.shard = "chunk-0-0.bin", .data = item, .size = 4 + len};
	char formats[64];

	litdata_index_free(index);
	index = NULL;
	snprintf(formats, sizeof(formats), "\"%s\"", format);
	assert_int_equal(parse(&index, formats, LEAF, "", NULL), 0);
	memset(item, 0, 4);
	item[0] = (unsigned char)len;
	memcpy(item + 4, value, len);
	return index->chunks[0].format.split(&index->chunks[0].format, &piece, &fields, NULL);
}

static void test_fields_have_the_names_of_the_dictionary(void **state)
{
	static const unsigned char chunk[] = {1, 0, 0, 0, 12, 0, 0, 0, 38, 0, 0, 0, 3, 0, 0, 0, 8,
		0, 0, 0, 2, 0, 0, 0, 'J', 'P', 'G', 5, 0, 0, 0, 0, 0, 0, 0, 'h', 'i', 0};
	_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;
	struct memory_shard m = {.data = chunk, .size = 37};
	struct shard_reader reader = memory_shard_reader(&m, "chunk-0-0.bin");
	struct format_piece piece;
	const struct format *f;

	(void)state;
	assert_int_equal(parse(&index, "\"jpeg\",\"int\",\"str\"",
				 DICT(KEY("image") "," KEY("more"), LEAF
					 "," DICT(KEY("label") "," KEY("text"), LEAF "," LEAF)),
				 "\"item_loader\":\"PyTreeLoader\",\"compression\":null,", NULL),
		0);
	assert_int_equal(index->n, 1);
	assert_string_equal(index->chunks[0].filename, "chunk-0-0.bin");
	f = &index->chunks[0].format;
	memset(&found, 0, sizeof(found));
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), -(int)PENSTOCK_E_CORRUPT);
	m.size = reader.size = 38;
	memset(&found, 0, sizeof(found));
	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), 0);
	assert_int_equal(found.n, 1);
	piece = found_piece(&m, "chunk-0-0.bin", &found, 0);
	assert_int_equal(f->split(f, &piece, &fields, NULL), -(int)PENSTOCK_E_CORRUPT);
	piece.size--;

	assert_int_equal(f->split(f, &piece, &fields, NULL), 0);

	assert_int_equal(fields.n, 3);
	assert_memory_equal(field_of(&fields, "image")->data, "JPG", 3);
	assert_int_equal(field_of(&fields, "more.label")->dtype, DTYPE_I64);
	assert_int_equal(field_of(&fields, "more.text")->type, FORMAT_TEXT);
	piece.size = 11;
	assert_int_equal(f->split(f, &piece, &fields, NULL), -(int)PENSTOCK_E_CORRUPT);
	piece.size = 14;
	assert_int_equal(f->split(f, &piece, &fields, NULL), -(int)PENSTOCK_E_CORRUPT);
}

/* litdata.bin was written by litData at commit 8805bae0. */
static void test_a_chunk_of_litdata_can_be_read(void **state)
{
	_cleanup_(buf_release) struct buf data = BUF_INIT(1 * MIB), text = BUF_INIT(1 * MIB);
	_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;
	struct memory_shard m;
	struct shard_reader reader;
	struct format_piece piece;
	const struct format *f;

	(void)state;
	assert_int_equal(memory_shard_file("litdata.bin", &data), 0);
	assert_int_equal(memory_shard_file("litdata.json", &text), 0);
	assert_int_equal(litdata_index_parse(&index, text.data, text.len, "index.json", NULL), 0);
	f = &index->chunks[0].format;
	m = (struct memory_shard){.data = data.data, .size = data.len};
	reader = memory_shard_reader(&m, "chunk-0-0.bin");
	memset(&found, 0, sizeof(found));

	assert_int_equal(f->scan(f, &reader, found_add, &found, NULL), 0);
	assert_int_equal(found.n, 2);
	piece = found_piece(&m, "chunk-0-0.bin", &found, 1);
	assert_int_equal(f->split(f, &piece, &fields, NULL), 0);

	assert_int_equal(fields.n, 12);
	assert_int_equal(*(const char *)field_of(&fields, "i")->data, 1);
	assert_memory_equal(field_of(&fields, "pil")->mode, "RGB", 3);
	assert_memory_equal(field_of(&fields, "s")->data, "text", 4);
	assert_int_equal(field_of(&fields, "t2")->dtype, DTYPE_I64);
	assert_int_equal(field_of(&fields, "t2")->dims[1], 2);
	assert_int_equal(field_of(&fields, "t1")->dims[0], 3);
	assert_int_equal(field_of(&fields, "n2")->dtype, DTYPE_I16);
	assert_int_equal(field_of(&fields, "n1")->dtype, DTYPE_F32);
	assert_int_equal(*(const char *)field_of(&fields, "nest.a.1")->data, 2);
}

static void test_values_have_types(void **state)
{
	(void)state;
	assert_int_equal(split_value("image:png", "PNG", 3), 0);
	assert_int_equal(fields.items[0].type, FORMAT_BYTES);
	assert_true(field_is(&fields.items[0], "0"));
	assert_int_equal(split_value("bool", "\1", 1), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_BOOL);
	assert_int_equal(split_value("float", "abcdefgh", 8), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_F64);
	assert_int_equal(split_value("int", "abcd", 4), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("no_header_tensor:10", "abcd", 4), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_BF16);
	assert_int_equal(fields.items[0].dims[0], 2);
	assert_int_equal(split_value("no_header_numpy:8", "abc", 3), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("pil", "\1\0\0\0\1\0\0\0\1\0\0\0Lx", 14), 0);
	assert_int_equal(fields.items[0].ndim, 3);
	assert_int_equal(split_value("jpeg_array", "\1\0\0\0\1\0\0\0J", 9), 0);
	assert_int_equal(fields.items[0].count, 1);
	assert_int_equal(
		split_value("jpeg_array", "\1\0\0\0\2\0\0\0J", 9), -(int)PENSTOCK_E_CORRUPT);
}

static void test_arrays_have_a_header(void **state)
{
	(void)state;
	assert_int_equal(split_value("tensor", "\0\0\0\x0b\0\0\0\2\0\0\0\1\0\0\0\2ab", 18), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_U8);
	assert_int_equal(fields.items[0].dims[1], 2);
	assert_memory_equal(fields.items[0].data, "ab", 2);
	assert_int_equal(split_value("numpy", "\1\0\0\0\2\0\0\0\1\0\0\0\1\0\0\0ab", 18), 0);
	assert_int_equal(fields.items[0].dtype, DTYPE_I16);
	assert_int_equal(split_value("tensor", "\0\0\0\0\0\0\0\0abcd", 12), 0);
	assert_int_equal(fields.items[0].type, FORMAT_NUMBER);

	assert_int_equal(split_value("tensor", "\0\0\0\0\0\0\0", 7), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("tensor", "\0\0\0\4\0\0\0\0", 8), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("tensor", "\0\0\0\x63\0\0\0\0", 8), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("numpy", "\x0b\0\0\0\0\0\0\0", 8), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("tensor", "\0\0\0\x0b\xff\0\0\2", 8), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(
		split_value("tensor", "\0\0\0\x0b\0\0\0\2\0\0\0\1", 12), -(int)PENSTOCK_E_CORRUPT);
	assert_int_equal(split_value("tensor", "\0\0\0\x0b\0\0\0\1\0\0\0\3ab", 14),
		-(int)PENSTOCK_E_CORRUPT);
}

static void test_other_data_sets_are_refused(void **state)
{
	static const struct {
		const char *formats, *spec, *more;
		enum penstock_code code;
	} cases[] = {
		{"\"pickle\"", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"\"graph:pickle\"", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"\"hologram\"", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"\"no_header_tensor\"", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"\"no_header_tensor:4\"", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"3", LEAF, "", PENSTOCK_E_UNSUPPORTED},
		{"\"int\"", LEAF, "\"compression\":\"lz4\",", PENSTOCK_E_UNSUPPORTED},
		{"\"int\"", LEAF, "\"compression\":\"zstd\",\"compression_level\":\"batch\",",
			PENSTOCK_E_UNSUPPORTED},
		{"\"int\"", LEAF, "\"encryption\":{},", PENSTOCK_E_UNSUPPORTED},
		{"\"int\"", LEAF, "\"item_loader\":\"TokensLoader\",", PENSTOCK_E_UNSUPPORTED},
		{"", LEAF, "", PENSTOCK_E_CORRUPT},
		{"\"int\"", DICT(KEY("a") "," KEY("b"), LEAF "," LEAF), "", PENSTOCK_E_CORRUPT},
		{"\"int\",\"int\"", LEAF, "", PENSTOCK_E_CORRUPT},
		{"\"int\",\"int\"", DICT(KEY("a") "," KEY("a"), LEAF "," LEAF), "",
			PENSTOCK_E_CORRUPT},
		{"\"int\"", "{}", "", PENSTOCK_E_CORRUPT},
		{"\"int\"", "7", "", PENSTOCK_E_CORRUPT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;

		assert_int_equal(
			parse(&index, cases[i].formats, cases[i].spec, cases[i].more, NULL),
			-(int)cases[i].code);
	}
}

static void test_invalid_indexes_are_refused(void **state)
{
#define CONFIG "\"config\":{\"data_format\":[\"int\"],\"data_spec\":\"[1," LEAF "]\"}"
	static const char *const cases[] = {
		"",
		"[]",
		"{\"chunks\":[]}",
		"{\"chunks\":[3]," CONFIG "}",
		"{\"chunks\":[{\"filename\":\"../x\",\"chunk_size\":1}]," CONFIG "}",
		"{\"chunks\":[{\"filename\":\"x\",\"chunk_size\":-1}]," CONFIG "}",
		"{\"chunks\":[{\"filename\":\"x\"}]," CONFIG "}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(litdata_index_freep) struct litdata_index *index = NULL;

		assert_int_equal(
			litdata_index_parse(&index, cases[i], strlen(cases[i]), "index.json", NULL),
			-(int)PENSTOCK_E_CORRUPT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_have_the_names_of_the_dictionary),
		cmocka_unit_test(test_a_chunk_of_litdata_can_be_read),
		cmocka_unit_test(test_values_have_types),
		cmocka_unit_test(test_arrays_have_a_header),
		cmocka_unit_test(test_other_data_sets_are_refused),
		cmocka_unit_test(test_invalid_indexes_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
