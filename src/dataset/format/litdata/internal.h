/* Shared by the files of litData. */
#ifndef DATASET_FORMAT_LITDATA_INTERNAL_H
#define DATASET_FORMAT_LITDATA_INTERNAL_H

#include "dataset/format/litdata/litdata.h"

enum litdata_kind {
	LITDATA_BYTES,
	LITDATA_TEXT,
	LITDATA_NUMBER,
	LITDATA_VECTOR, /* values without a header */
	LITDATA_NUMPY, /* type, number of dimensions and dimensions, little endian */
	LITDATA_TENSOR, /* like LITDATA_NUMPY, but big endian */
	LITDATA_PIL,
	LITDATA_JPEG_ARRAY
};

struct litdata_field {
	char *name;
	enum litdata_kind kind;
	enum format_dtype dtype; /* DTYPE_NONE if each value has its own type */
};

struct litdata_fields {
	struct litdata_field *items;
	size_t n;
};

/* Sets kind and type from the name of a serializer. Returns NULL, or the reason why the serializer
 * is refused. */
const char *litdata_field_init(struct litdata_field *field, const char *serializer);

/* Initializes a chunk with the functions that scan and split it. */
void litdata_chunk_init(struct litdata_chunk *chunk, const struct litdata_fields *fields);

#endif
