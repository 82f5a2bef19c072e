#include <stdlib.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/mds/mds.h"
#include "dataset/format/mds/internal.h"

static const struct {
	const char *name;
	enum mds_kind kind;
	bool writable;
} encodings[] = {
	{"bytes", MDS_BYTES, true},
	{"str", MDS_TEXT, true},
	{"int", MDS_NUMBER, true},
	{"json", MDS_JSON, true},
	{"jpeg", MDS_BYTES, true},
	{"png", MDS_BYTES, true},
	{"ndarray", MDS_NDARRAY, true},
	{"str_int", MDS_TEXT, false},
	{"str_float", MDS_TEXT, false},
	{"str_decimal", MDS_TEXT, false},
	{"pil", MDS_PIL, false},
	{"jpeg_array", MDS_JPEG_ARRAY, false},
	{"jpegarray", MDS_JPEG_ARRAY, false},
	{"list[jpeg]", MDS_LIST, false},
	{"list[png]", MDS_LIST, false},
	{"list[pil]", MDS_LIST_PIL, false},
};

/* Codes of the types that MDS knows. */
static const unsigned char codes[DTYPE_COUNT_] = {
	[DTYPE_U8] = 8,
	[DTYPE_I8] = 9,
	[DTYPE_U16] = 16,
	[DTYPE_I16] = 17,
	[DTYPE_F16] = 18,
	[DTYPE_U32] = 32,
	[DTYPE_I32] = 33,
	[DTYPE_F32] = 34,
	[DTYPE_U64] = 64,
	[DTYPE_I64] = 65,
	[DTYPE_F64] = 66,
};

unsigned char mds_code_of_dtype(enum format_dtype dtype)
{
	return codes[dtype];
}

enum format_dtype mds_dtype_of_code(unsigned char code)
{
	for (size_t i = DTYPE_NONE + 1; i < DTYPE_COUNT_; i++) {
		if (codes[i] && codes[i] == code)
			return (enum format_dtype)i;
	}
	return DTYPE_NONE;
}

/* Parses ":TYPE:SHAPE", such as ":uint8:32,32,3"; the shape, or type and shape, may be missing.
 * Returns NULL, or the reason why the text is invalid. */
static const char *array_settings(struct mds_column *c, const char *text)
{
	size_t len = *text ? strcspn(text + 1, ":") : 0;

	if (!*text)
		return NULL;
	c->dtype = dtype_find(text + 1, len);
	if (!codes[c->dtype])
		return "its array has an unknown type";
	text += len + 1;
	while (*text) {
		char number[24];

		if (c->ndim == LIMIT_FORMAT_DIMS)
			return "its array has too many dimensions";
		if (text[0] != (c->ndim ? ',' : ':'))
			return "its array has an invalid shape";
		text += strspn(text + 1, " ");
		len = strcspn(text + 1, ",");
		if (len >= sizeof(number))
			return "its array has an invalid shape";
		memcpy(number, text + 1, len);
		number[len] = '\0';
		if (!str_to_u64(number, 1, INT64_MAX, &c->dims[c->ndim++]))
			return "its array has an invalid shape";
		text += len + 1;
	}
	if (c->ndim &&
		(!format_array_size(c->dtype, c->ndim, c->dims, &c->size) || c->size > UINT32_MAX))
		return "its array is too large";
	return NULL;
}

static const char *set_encoding(struct mds_column *c, int *code)
{
	size_t len = strcspn(c->encoding, ":");
	enum format_dtype dtype = dtype_find(c->encoding, strlen(c->encoding));

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		if (strlen(encodings[i].name) != len ||
			memcmp(encodings[i].name, c->encoding, len) != 0)
			continue;
		c->kind = encodings[i].kind;
		if (c->kind == MDS_NDARRAY)
			return array_settings(c, c->encoding + len);
		if (c->kind == MDS_NUMBER)
			dtype = DTYPE_I64;
		else if (!c->encoding[len])
			return NULL;
	}
	if (codes[dtype] && !c->encoding[len]) {
		c->kind = MDS_NUMBER;
		c->dtype = dtype;
		c->size = dtype_size(dtype);
		return NULL;
	}
	*code = PENSTOCK_E_UNSUPPORTED;
	if (strcmp(c->encoding, "pkl") == 0)
		return "it is pickled, and loading it can run any code; write the data set with "
		       "another encoding";
	return "its encoding is unknown";
}

const char *mds_column_init(
	struct mds_column *column, const char *name, const char *encoding, int *code)
{
	*column = (struct mds_column){.name = strdup(name), .encoding = strdup(encoding)};
	*code = PENSTOCK_E_MEMORY;
	if (!column->name || !column->encoding)
		return "out of memory";
	*code = PENSTOCK_E_CORRUPT;
	if (strlen(name) > LIMIT_FORMAT_NAME)
		return "its name is too long";
	return set_encoding(column, code);
}

void mds_column_release(struct mds_column *column)
{
	free(column->name);
	free(column->encoding);
}

void mds_columns_free(struct mds_columns *columns)
{
	if (!columns)
		return;
	for (size_t i = 0; i < columns->n; i++)
		mds_column_release(&columns->items[i]);
	free(columns->items);
	free(columns);
}

static int by_name(const void *a, const void *b)
{
	const struct mds_column *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static bool is_writable(const struct mds_column *c)
{
	if (c->kind == MDS_NUMBER || c->kind == MDS_NDARRAY)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		if (strcmp(encodings[i].name, c->encoding) == 0)
			return encodings[i].writable;
	}
	return false;
}

int mds_columns_new(struct mds_columns **out, const struct mds_spec *specs, size_t n,
	struct penstock_error *err)
{
	_cleanup_(mds_columns_freep) struct mds_columns *columns = calloc(1, sizeof(*columns));
	int code;

	if (n == 0 || n > LIMIT_FORMAT_FIELDS)
		return error_set(err, PENSTOCK_E_INVALID,
			"cannot write %zu columns: a data set has 1 to %d", n, LIMIT_FORMAT_FIELDS);
	if (columns)
		columns->items = calloc(n, sizeof(*columns->items));
	if (!columns || !columns->items)
		return error_memory(err);
	for (size_t i = 0; i < n; i++) {
		struct mds_column *c = &columns->items[columns->n++];
		const char *fault = mds_column_init(c, specs[i].name, specs[i].encoding, &code);

		if (!fault && !is_writable(c)) {
			code = PENSTOCK_E_UNSUPPORTED;
			fault = "its encoding can only be read";
		}
		if (!fault && !str_is_utf8(c->name, strlen(c->name))) {
			code = PENSTOCK_E_INVALID;
			fault = "its name is not UTF-8";
		}
		if (fault && code == PENSTOCK_E_MEMORY)
			return error_memory(err);
		if (fault)
			return error_set(err,
				code == PENSTOCK_E_CORRUPT ? PENSTOCK_E_INVALID
							   : (enum penstock_code)code,
				"cannot write column '%s' as '%s': %s", specs[i].name,
				specs[i].encoding, fault);
	}
	qsort(columns->items, n, sizeof(*columns->items), by_name);
	for (size_t i = 1; i < n; i++) {
		if (by_name(&columns->items[i - 1], &columns->items[i]) == 0)
			return error_set(err, PENSTOCK_E_INVALID,
				"cannot write column '%s': it appears twice",
				columns->items[i].name);
	}
	*out = take_pointer(columns);
	return 0;
}
