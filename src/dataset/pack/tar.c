/* Tars of WebDataset. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include "dataset/format/tar.h"
#include "dataset/format/tar_walk.h"
#include "dataset/jpeg/jpeg.h"
#include "dataset/pack/internal.h"

struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100],
		magic[8], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

static void pad(struct buf *out, size_t size)
{
	static const char zeros[TAR_BLOCK];

	buf_add(out, zeros, (size_t)(tar_padded(size) - size));
}

static void add_header(struct buf *out, const char *name, size_t size, char type)
{
	struct ustar h = {.mode = "0000644",
		.uid = "0000000",
		.gid = "0000000",
		.mtime = "00000000000",
		.type = type,
		.magic = "ustar"};
	const unsigned char *bytes = (const unsigned char *)&h;
	unsigned sum = 8 * ' ';
	char text[16];

	memcpy(h.magic + 6, "00", 2);
	memcpy(h.name, name, strlen(name) < sizeof(h.name) ? strlen(name) : sizeof(h.name));
	snprintf(text, sizeof(text), "%011zo", size);
	memcpy(h.size, text, sizeof(h.size));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += bytes[i];
	snprintf(text, sizeof(text), "%06o", sum);
	memcpy(h.sum, text, 7);
	h.sum[7] = ' ';
	buf_add(out, &h, sizeof(h));
}

/* Adds a pax header with a name that is too long for the header, or not ASCII. */
static void add_pax(struct buf *out, const char *name)
{
	char record[64];
	size_t len = strlen(" path=\n") + strlen(name), total = len + 1;

	while ((size_t)snprintf(record, sizeof(record), "%zu", total) + len != total)
		total = (size_t)snprintf(record, sizeof(record), "%zu", total) + len;
	add_header(out, "pax", total, 'x');
	buf_printf(out, "%zu path=%s\n", total, name);
	pad(out, total);
}

static void add_member(struct buf *out, const char *name, const void *data, size_t size)
{
	bool plain = strlen(name) <= sizeof(((struct ustar *)NULL)->name);

	for (const char *c = name; plain && *c; c++)
		plain = (unsigned char)*c < 0x80;
	if (!plain)
		add_pax(out, name);
	add_header(out, name, size, '0');
	buf_add(out, data, size);
	pad(out, size);
}

/* ---- values ---- */

static const char *descr(enum format_dtype dtype)
{
	static const char *const descrs[DTYPE_COUNT_] = {[DTYPE_BOOL] = "|b1",
		[DTYPE_U8] = "|u1",
		[DTYPE_I8] = "|i1",
		[DTYPE_U16] = "<u2",
		[DTYPE_I16] = "<i2",
		[DTYPE_F16] = "<f2",
		[DTYPE_U32] = "<u4",
		[DTYPE_I32] = "<i4",
		[DTYPE_F32] = "<f4",
		[DTYPE_U64] = "<u8",
		[DTYPE_I64] = "<i8",
		[DTYPE_F64] = "<f8"};

	return descrs[dtype];
}

int pack_npy_head(struct buf *out, const struct format_field *row, uint64_t rows, bool counted,
	struct penstock_error *err)
{
	const char *type = descr(row->dtype);
	char text[PACK_NPY_HEAD], shape[PACK_NPY_HEAD / 2];
	unsigned n = row->ndim + counted;
	int len = 0, head;

	if (!type)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot write an array of %s: NumPy has no such type",
			dtype_name(row->dtype));
	if (counted)
		len = snprintf(shape, sizeof(shape), "%" PRIu64 ",", rows);
	for (unsigned i = 0; i < row->ndim && len < (int)sizeof(shape) - 24; i++)
		len += snprintf(shape + len, sizeof(shape) - (size_t)len, "%" PRIu64 "%s",
			row->dims[i], i + 1 < row->ndim || n == 1 ? "," : "");
	shape[len] = '\0';
	head = snprintf(text, sizeof(text),
		"{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
	buf_add(out, "\x93NUMPY\1\0", 8);
	buf_add(out, (const unsigned char[]){(PACK_NPY_HEAD - 10) & 255, 0}, 2);
	buf_printf(out, "%-*s\n", PACK_NPY_HEAD - 10 - 1, head > 0 ? text : "");
	return 0;
}

/* Writes integers as text, as WebDataset decodes them. Returns false for other numbers. */
static bool number_text(const struct format_field *f, char out[static 32])
{
	uint64_t value = 0;
	unsigned bits = 8 * (unsigned)f->size;
	bool is_signed = f->dtype == DTYPE_I8 || f->dtype == DTYPE_I16 || f->dtype == DTYPE_I32 ||
			 f->dtype == DTYPE_I64;

	if (f->dtype == DTYPE_F16 || f->dtype == DTYPE_BF16 || f->dtype == DTYPE_F32 ||
		f->dtype == DTYPE_F64 || f->size > sizeof(value))
		return false;
	memcpy(&value, f->data, f->size);
	if (is_signed && bits < 64 && value >> (bits - 1))
		value |= UINT64_MAX << bits;
	snprintf(out, 32, is_signed ? "%" PRId64 : "%" PRIu64, value);
	return true;
}

static bool is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++) {
		if (strcmp(word, *words) == 0)
			return true;
	}
	return false;
}

/* Returns the extension that lets readers decode the value, or "" if the name already has it. */
static const char *suffix_of(const struct format_field *f, const char *name)
{
	static const char *const images[] = {"jpg", "jpeg", "png", "ppm", "pgm", "pbm", "webp",
		"mp3", "flac", "wav", "mp4", "bin", "pth", NULL};
	const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;

	switch (f->type) {
	case FORMAT_TEXT:
		return tar_type_of(name) == FORMAT_TEXT ? "" : ".txt";
	case FORMAT_JSON:
		return tar_type_of(name) == FORMAT_JSON ? "" : ".json";
	case FORMAT_NUMBER:
	case FORMAT_ARRAY:
		return tar_type_of(name) == FORMAT_ARRAY ? "" : ".npy";
	case FORMAT_BYTES:
		break;
	}
	if (is_one_of(last, images))
		return "";
	if (jpeg_is(f->data, f->size))
		return ".jpg";
	return f->size > 4 && memcmp(f->data, "\x89PNG", 4) == 0 ? ".png" : ".bin";
}

/* Returns KEY.FIELD.EXT, KEY.FIELD.INDEX.EXT for a value of a list, or KEY.EXT for an object; NULL
 * if out of memory. FIELD is in lower case; characters that a name cannot have become '_'. */
static char *member_name(const struct pack_sample *s, const struct format_field *f)
{
	_cleanup_free_ char *name = strndup(f->name, f->name_len);
	char number[16] = "", text[32];

	if (!name)
		return NULL;
	if (s->of_objects)
		return str_printf("%s.%s", s->key, name);
	for (char *c = name; *c; c++)
		*c = (char)((unsigned char)*c <= ' ' || *c == '/' || *c == 0x7f ? '_'
			    : *c >= 'A' && *c <= 'Z'				? *c + 32
										: *c);
	if (f->count)
		snprintf(number, sizeof(number), ".%u", f->index);
	return str_printf("%s.%s%s%s", s->key, name, number,
		f->type == FORMAT_NUMBER && number_text(f, text) ? ".cls" : suffix_of(f, name));
}

static int add_field(const struct pack_sample *s, const struct format_field *f, struct buf *out,
	struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(LIMIT_SAMPLE);
	_cleanup_free_ char *name = member_name(s, f);
	char text[32];
	int r = 0;

	if (!name)
		return error_memory(err);
	if (f->type == FORMAT_NUMBER && number_text(f, text)) {
		add_member(out, name, text, strlen(text));
		return 0;
	}
	if (f->type != FORMAT_NUMBER && f->type != FORMAT_ARRAY) {
		add_member(out, name, f->data, f->size);
		return 0;
	}
	r = pack_npy_head(&value, f, 0, false, err);
	buf_add(&value, f->data, f->size);
	if (r == 0 && buf_failed(&value))
		r = buf_error(&value, "an array", err);
	if (r == 0)
		add_member(out, name, value.data, value.len);
	return r;
}

static int add(const struct pack *p, const struct pack_sample *s, struct buf *out,
	struct penstock_error *err)
{
	int r = 0;

	(void)p;
	for (size_t i = 0; r == 0 && i < s->n; i++)
		r = add_field(s, &s->fields[i], out, err);
	return r;
}

static int end(const struct pack *p, struct pack_shard *shard, struct penstock_error *err)
{
	static const char zeros[2 * TAR_BLOCK];

	(void)p;
	(void)err;
	buf_add(&shard->data, zeros, sizeof(zeros));
	return 0;
}

const struct pack_format pack_tar = {.name = "tar",
	.suffix = "tar",
	.fields = true,
	.copies = "tar",
	.add = add,
	.end = end,
	.scan = &format_tar};
