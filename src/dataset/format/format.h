/*
 * Formats of data sets: where the samples of a shard are, and the fields of a sample. Pure parsers
 * without network, threads or state; any number of threads may use one format.
 *
 *	struct shard_reader shard = {.name = "train-0.tar", .size = size, .read = read_range};
 *	struct format_fields fields = {.scratch = memory, .scratch_size = sizeof(memory)};
 *
 *	// Calls add(cookie, &sample, err) for each sample, in order; add() keeps offset and size.
 *	if (format_tar.scan(&format_tar, &shard, add, cookie, err) < 0)
 *		return -err->code;
 *	// Later, with the bytes of one of them:
 *	struct format_piece piece = {.shard = shard.name, .offset = sample.offset};
 *	piece.data = bytes;
 *	piece.size = sample.size;
 *	if (format_tar.split(&format_tar, &piece, &fields, err) < 0)
 *		return -err->code;
 *	printf("%.*s\n", (int)fields.items[0].name_len, fields.items[0].name);
 *
 * All input is untrusted: nothing is read beyond `size`, no memory is allocated by a size that a
 * shard declares, and an error (PENSTOCK_E_CORRUPT, _UNSUPPORTED, _LIMIT) has the shard, the offset
 * and the reason.
 */
#ifndef DATASET_FORMAT_FORMAT_H
#define DATASET_FORMAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct penstock_error;

/* Random access to one object or file. read() fills all of `data`, or fails; it is never called for
 * bytes beyond `size`. */
struct shard_reader {
	const char *name; /* for messages */
	uint64_t size;
	int (*read)(
		void *cookie, uint64_t offset, void *data, size_t len, struct penstock_error *err);
	void *cookie;
};

/* One contiguous range of a shard. Ranges are in ascending order, and overlap only in windows of
 * tokens. */
struct format_sample {
	uint64_t offset, size;
	const char *key; /* valid during the call; NULL if the format has no keys */
};

/* Returns 0 to continue. Any other value ends the scan, which returns the value. */
typedef int (*format_sample_fn)(
	void *cookie, const struct format_sample *sample, struct penstock_error *err);

/* The bytes of one sample. */
struct format_piece {
	/* name of the shard, and offset of the sample in the shard, for messages */
	const char *shard;
	uint64_t offset;
	const void *data;
	size_t size;
};

enum format_type {
	FORMAT_BYTES,
	FORMAT_TEXT, /* UTF-8, not verified */
	FORMAT_JSON, /* text, not verified */
	FORMAT_NUMBER, /* one value of `dtype` */
	FORMAT_ARRAY, /* values of `dtype` in C order, as many as the product of `dims` */
};

enum format_dtype {
	DTYPE_NONE,
	DTYPE_BOOL,
	DTYPE_U8,
	DTYPE_I8,
	DTYPE_U16,
	DTYPE_I16,
	DTYPE_F16,
	DTYPE_BF16,
	DTYPE_U32,
	DTYPE_I32,
	DTYPE_F32,
	DTYPE_U64,
	DTYPE_I64,
	DTYPE_F64,
	DTYPE_COUNT_
};

struct format_field {
	/* Not NUL-terminated; points into the sample, the scratch memory or the format. */
	const char *name;
	size_t name_len;
	const void *data; /* points into the sample or the scratch memory; may be unaligned */
	size_t size; /* bytes */
	enum format_type type;
	enum format_dtype dtype;
	bool big_endian; /* false for little-endian values */
	unsigned ndim; /* 0 unless the field is an array */
	uint64_t dims[LIMIT_FORMAT_DIMS];
	/* Position in a list of values with the same name, and the number of these values; both are
	 * 0 if there is no list. A list without values has no field. */
	uint32_t index, count;
	/* Pillow's name for the pixels of an array (height, width, channels), such as "RGB"; not
	 * NUL-terminated, NULL if the field is not an image. */
	const char *mode;
	size_t mode_len;
};

/*
 * The fields of one sample. The caller owns the scratch memory, which holds values that the sample
 * has in another form; fields are valid as long as the scratch memory, the sample and the format
 * exist.
 *
 * If the scratch memory is too small, a split fails with PENSTOCK_E_LIMIT, and `scratch_used` is
 * the size that the split needs: at most FORMAT_SCRATCH() of the sample's size.
 */
struct format_fields {
	size_t n;
	void *scratch; /* NULL until memory is needed */
	size_t scratch_size, scratch_used;
	struct format_field items[LIMIT_FORMAT_FIELDS];
};

/* A varint of one byte becomes a number of eight bytes, and the alignment of a field takes up to
 * eight bytes. */
#define FORMAT_SCRATCH(size) (8 * (uint64_t)(size) + 8 * LIMIT_FORMAT_FIELDS)

/* First member of a format that has settings; see the other headers of this folder. */
struct format {
	const char *name;
	/* Calls `sample` for each sample of the shard, in order. */
	int (*scan)(const struct format *f, const struct shard_reader *shard,
		format_sample_fn sample, void *cookie, struct penstock_error *err);
	/* Splits a sample into fields. Replaces the content of `out`; allocates nothing. */
	int (*split)(const struct format *f, const struct format_piece *piece,
		struct format_fields *out, struct penstock_error *err);
};

/* Enlarges `*scratch` after a split of `size` bytes for which the scratch memory was too small, and
 * makes `fields` use it; the caller frees `*scratch`. Returns 0 if the split can be repeated;
 * otherwise fails with the error of the split, or with PENSTOCK_E_MEMORY. */
int fields_grow(
	struct format_fields *fields, void **scratch, size_t size, struct penstock_error *err);

/* Returns "bytes", "text", "json", "number" or "array"; static. */
const char *format_type_name(enum format_type type);
/* Returns the size of one value in bytes; 0 for DTYPE_NONE. */
size_t dtype_size(enum format_dtype dtype);
/* Returns the name, as in NumPy: "float32"; static. */
const char *dtype_name(enum format_dtype dtype);
/* Finds a type by its name in NumPy. Returns DTYPE_NONE if the name is unknown. */
enum format_dtype dtype_find(const char *name, size_t len);

/* Computes the size of an array in bytes. Returns false if a size_t cannot hold the size. */
bool format_array_size(enum format_dtype dtype, unsigned ndim, const uint64_t *dims, size_t *size);

#endif
