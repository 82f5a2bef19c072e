#include <penstock/error.h>

#include "base/cleanup.h"
#include "dataset/format/internal.h"

/* Modes of Pillow whose pixels consist of whole bytes. */
static const struct {
	const char *name;
	enum format_dtype dtype;
	unsigned channels;
} modes[] = {
	{"L", DTYPE_U8, 1},
	{"P", DTYPE_U8, 1},
	{"LA", DTYPE_U8, 2},
	{"La", DTYPE_U8, 2},
	{"PA", DTYPE_U8, 2},
	{"RGB", DTYPE_U8, 3},
	{"YCbCr", DTYPE_U8, 3},
	{"LAB", DTYPE_U8, 3},
	{"HSV", DTYPE_U8, 3},
	{"RGBA", DTYPE_U8, 4},
	{"RGBa", DTYPE_U8, 4},
	{"RGBX", DTYPE_U8, 4},
	{"CMYK", DTYPE_U8, 4},
	{"I;16", DTYPE_U16, 1},
	{"I", DTYPE_I32, 1},
	{"F", DTYPE_F32, 1},
};

const char *pil_field(struct format_field *field)
{
	const unsigned char *p = field->data;
	size_t mode_len, size;

	if (field->size < 12 || get_le32(p + 8) > field->size - 12)
		return "an image ends within its header";
	mode_len = get_le32(p + 8);
	field->mode = (const char *)p + 12;
	field->mode_len = mode_len;
	field->type = FORMAT_ARRAY;
	field->ndim = 3;
	field->dims[0] = get_le32(p + 4);
	field->dims[1] = get_le32(p);
	field->data = p + 12 + mode_len;
	field->size -= 12 + mode_len;
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strlen(modes[i].name) != mode_len ||
			memcmp(modes[i].name, field->mode, mode_len) != 0)
			continue;
		field->dtype = modes[i].dtype;
		field->dims[2] = modes[i].channels;
		if (!format_array_size(field->dtype, 3, field->dims, &size) || size != field->size)
			return "the size of an image does not match its pixels";
		return NULL;
	}
	return "unknown mode of an image";
}

const char *images_list(
	const struct format_field *whole, size_t skip, bool pil, struct format_fields *out)
{
	const unsigned char *p = whole->data;
	size_t rest, count;

	if (whole->size < skip + 4)
		return "a list ends within its length field";
	count = get_le32(p + skip);
	p += skip + 4;
	rest = whole->size - skip - 4;
	if (count > rest / 4)
		return "a list ends within the table of its sizes";
	if (count > LIMIT_FORMAT_FIELDS - out->n)
		return "a list has too many values";
	rest -= 4 * count;
	for (size_t i = 0; i < count; i++) {
		struct format_field field = *whole;
		const char *fault = NULL;

		field.data = (const unsigned char *)whole->data + (whole->size - rest);
		field.size = get_le32(p + 4 * i);
		if (field.size > rest)
			return "a value is outside of its list";
		rest -= field.size;
		field.index = (uint32_t)i;
		field.count = (uint32_t)count;
		if (pil)
			fault = pil_field(&field);
		if (fault)
			return fault;
		out->items[out->n++] = field;
	}
	return rest ? "bytes follow the last value of a list" : NULL;
}
