#include "dataset/format/format.h"

#include <string.h>

#include "base/cleanup.h"
#include "dataset/format/internal.h"

static const struct {
	const char *name;
	size_t size;
} dtypes[DTYPE_COUNT_] = {
	[DTYPE_NONE] = {"none", 0},
	[DTYPE_BOOL] = {"bool", 1},
	[DTYPE_U8] = {"uint8", 1},
	[DTYPE_I8] = {"int8", 1},
	[DTYPE_U16] = {"uint16", 2},
	[DTYPE_I16] = {"int16", 2},
	[DTYPE_F16] = {"float16", 2},
	[DTYPE_BF16] = {"bfloat16", 2},
	[DTYPE_U32] = {"uint32", 4},
	[DTYPE_I32] = {"int32", 4},
	[DTYPE_F32] = {"float32", 4},
	[DTYPE_U64] = {"uint64", 8},
	[DTYPE_I64] = {"int64", 8},
	[DTYPE_F64] = {"float64", 8},
};

size_t dtype_size(enum format_dtype dtype)
{
	return dtypes[dtype].size;
}

const char *format_type_name(enum format_type type)
{
	static const char *const names[] = {[FORMAT_BYTES] = "bytes",
		[FORMAT_TEXT] = "text",
		[FORMAT_JSON] = "json",
		[FORMAT_NUMBER] = "number",
		[FORMAT_ARRAY] = "array"};

	return names[type];
}

const char *dtype_name(enum format_dtype dtype)
{
	return dtypes[dtype].name;
}

enum format_dtype dtype_find(const char *name, size_t len)
{
	for (size_t i = DTYPE_NONE + 1; i < ARRAY_SIZE(dtypes); i++) {
		if (strlen(dtypes[i].name) == len && memcmp(dtypes[i].name, name, len) == 0)
			return (enum format_dtype)i;
	}
	return DTYPE_NONE;
}

bool format_array_size(enum format_dtype dtype, unsigned ndim, const uint64_t *dims, size_t *size)
{
	size_t total = dtype_size(dtype);

	for (unsigned i = 0; i < ndim; i++) {
		if (__builtin_mul_overflow(total, dims[i], &total))
			return false;
	}
	*size = total;
	return true;
}

bool shard_name_is_good(const char *name)
{
	if (strlen(name) > LIMIT_FORMAT_NAME)
		return false;
	for (const char *part = name;; part++) {
		size_t n = strcspn(part, "/");

		for (size_t i = 0; i < n; i++) {
			if ((unsigned char)part[i] < ' ' || part[i] == 0x7f)
				return false;
		}
		if (n == 0 || (n == 1 && part[0] == '.') ||
			(n == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		part += n;
		if (!*part)
			return true;
	}
}
