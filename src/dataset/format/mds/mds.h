/*
 * Shards of MosaicML Streaming (MDS, version 2): an index.json with the columns and the shards, and
 * shards whose samples consist of columns.
 *
 *	struct mds_index *index = NULL;
 *
 *	if (mds_index_parse(&index, text, len, "s3://b/d/index.json", err) < 0)
 *		return -err->code;
 *	struct mds_shard *shard = &index->shards[0];
 *	// With a reader of the object shard->raw.basename:
 *	shard->format.scan(&shard->format, &reader, add, cookie, err);
 *	mds_index_free(index);
 *
 * Writing an index and shards. Columns, and the values of a sample, are sorted by the name of the
 * column, byte by byte:
 *
 *	struct mds_columns *columns = NULL;
 *
 *	mds_columns_new(&columns, (struct mds_spec[]){{"x", "jpeg"}, {"y", "int"}}, 2, err);
 *	mds_sample_add(columns, values, &samples, err);		// for each sample
 *	mds_header_add(columns, sizes, n, &header, err);	// goes before the samples
 *	mds_index_add(columns, &(struct mds_written){"shard.00000.mds", bytes, n}, 1, &out, err);
 *	mds_columns_free(columns);
 *
 * Pickled columns are refused with PENSTOCK_E_UNSUPPORTED, because loading them can run arbitrary
 * code. A compressed shard must be unpacked before it is scanned.
 */
#ifndef DATASET_FORMAT_MDS_MDS_H
#define DATASET_FORMAT_MDS_MDS_H

#include "base/str.h"
#include "dataset/format/format.h"

struct buf;

enum mds_kind {
	MDS_BYTES, /* bytes, jpeg, png */
	MDS_TEXT,
	MDS_JSON,
	MDS_NUMBER,
	MDS_NDARRAY,
	MDS_PIL,
	MDS_JPEG_ARRAY,
	MDS_LIST, /* list of byte strings */
	MDS_LIST_PIL
};

struct mds_column {
	char *name;
	char *encoding; /* "ndarray:uint8:32,32,3" */
	enum mds_kind kind;
	enum format_dtype dtype; /* DTYPE_NONE if each value has its own type */
	unsigned ndim; /* 0 if each value has its own shape */
	uint64_t dims[LIMIT_FORMAT_DIMS];
	size_t size; /* bytes; 0 if each value has its own size */
};

struct mds_columns {
	struct mds_column *items;
	size_t n;
};

struct mds_file {
	char *basename; /* below the directory of the index; NULL if there is no such file */
	uint64_t bytes;
	struct strlist hashes; /* "sha1=…" */
};

struct mds_shard {
	struct format format;
	const struct mds_columns *columns;
	struct mds_file raw, zip;
	char *compression; /* "zstd:7"; NULL if there is none */
	uint64_t samples;
};

struct mds_index {
	struct mds_shard *shards;
	size_t n;
	struct mds_columns **columns; /* each is shared by adjacent shards with the same columns */
	size_t n_columns;
};

/* Parses an index.json. `name` is the name of the file in messages. */
int mds_index_parse(struct mds_index **out, const char *data, size_t len, const char *name,
	struct penstock_error *err);
void mds_index_free(struct mds_index *index);
static inline void mds_index_freep(struct mds_index **index)
{
	mds_index_free(*index);
}

struct mds_spec {
	const char *name, *encoding;
};
/* Creates columns, in the order of their names. Fails with PENSTOCK_E_INVALID if a name appears
 * twice, is too long or is not UTF-8, or if `n` is 0 or more than LIMIT_FORMAT_FIELDS, and with
 * PENSTOCK_E_UNSUPPORTED if an encoding cannot be written. The encodings bytes, str, int, json,
 * jpeg, png, ndarray and the types of NumPy can be written. */
int mds_columns_new(struct mds_columns **out, const struct mds_spec *specs, size_t n,
	struct penstock_error *err);
void mds_columns_free(struct mds_columns *columns);
static inline void mds_columns_freep(struct mds_columns **columns)
{
	mds_columns_free(*columns);
}

/* Appends a sample. `values` are in the order of the columns; their names are not used. Fails with
 * PENSTOCK_E_INVALID if a value does not fit its column. */
int mds_sample_add(const struct mds_columns *columns, const struct format_field *values,
	struct buf *out, struct penstock_error *err);
/* Appends the header of a shard with samples of these sizes. Fails with PENSTOCK_E_LIMIT if the
 * shard would have 4 GiB or more. */
int mds_header_add(const struct mds_columns *columns, const uint64_t *sizes, size_t n,
	struct buf *out, struct penstock_error *err);

struct mds_written {
	const char *basename;
	uint64_t bytes, samples;
	/* The compressed file that replaces `basename`; NULL if the shard is not compressed. */
	const char *zip, *compression; /* "zstd:3" */
	uint64_t zip_bytes;
	const char *zip_sha1; /* in hexadecimal digits */
};
/* Appends the index.json. */
int mds_index_add(const struct mds_columns *columns, const struct mds_written *shards, size_t n,
	struct buf *out, struct penstock_error *err);

#endif
