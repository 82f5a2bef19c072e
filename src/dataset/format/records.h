/*
 * Samples of one size, with no bytes between them: records of any file, the rows of a NumPy array
 * or of an IDX file (MNIST), windows of a stream of tokens.
 *
 *	struct records r;
 *
 *	records_cifar10(&r);			// or one of the other functions
 *	r.format.scan(&r.format, &shard, add, cookie, err);
 *
 * A `struct records` owns no memory and needs no release. After npy_open() or idx_open(), the
 * struct is valid only for the shard that was read.
 */
#ifndef DATASET_FORMAT_RECORDS_H
#define DATASET_FORMAT_RECORDS_H

#include "dataset/format/format.h"

struct record_column {
	const char *name; /* static */
	uint64_t offset; /* bytes from the start of the record */
	size_t size; /* bytes */
	enum format_type type;
	enum format_dtype dtype;
	bool big_endian;
	unsigned ndim;
	uint64_t dims[LIMIT_FORMAT_DIMS];
};

#define RECORD_COLUMNS 3

struct records {
	struct format format;
	uint64_t header, trailer; /* bytes before the first record and after the last record */
	uint64_t size; /* bytes of a record */
	/* bytes from one record to the next; less than `size` if records overlap */
	uint64_t stride;
	bool ragged; /* the shard may end with an incomplete record, which is not a sample */
	/* number of records in the shard; UINT64_MAX to compute it from the size of the shard */
	uint64_t count;
	unsigned n_columns;
	struct record_column columns[RECORD_COLUMNS];
};

/* Sets `r` to records of `size` bytes, as one field "data" of bytes. Fails with PENSTOCK_E_INVALID
 * if `size` is 0, or if a number is larger than LIMIT_S3_OBJECT_MAX. */
int records_init(struct records *r, uint64_t header, uint64_t size, uint64_t trailer,
	struct penstock_error *err);
/* Set `r` to the records of the binary versions of CIFAR. CIFAR-10 has the fields "label" and
 * "image" (3, 32, 32), CIFAR-100 has "coarse", "fine" and "image". */
void records_cifar10(struct records *r);
void records_cifar100(struct records *r);
/* Sets `r` to windows of `length` tokens of DTYPE_U16 or DTYPE_U32 as one field "tokens"; each
 * window starts `stride` tokens after the start of the previous one. Tokens that do not fill a
 * window are dropped. */
int records_tokens(struct records *r, enum format_dtype dtype, uint64_t length, uint64_t stride,
	struct penstock_error *err);
/* Sets `r` to the rows (first axis) of the array in a .npy file, as one field "data". */
int npy_open(struct records *r, const struct shard_reader *shard, struct penstock_error *err);
/* Sets `r` to the rows of the array in an IDX file, as one field "data". */
int idx_open(struct records *r, const struct shard_reader *shard, struct penstock_error *err);

/* Computes the number of records in a shard. Fails with PENSTOCK_E_CORRUPT if the size of the shard
 * does not fit the records. */
int records_count(const struct records *r, const struct shard_reader *shard, uint64_t *count,
	struct penstock_error *err);

/* The array that the header of a .npy file describes; also used for other formats. */
struct npy {
	enum format_dtype dtype;
	bool big_endian;
	unsigned ndim;
	uint64_t dims[LIMIT_FORMAT_DIMS];
	uint64_t offset; /* bytes before the values */
};
/* Sets `r` to the rows of an array along its first axis, as records of the format `name` (static),
 * "npy" or "idx". Returns NULL, or the reason why the array is refused. */
const char *records_of_array(struct records *r, const char *name, const struct npy *array);
/* Number of bytes that npy_header_size() needs. */
#define NPY_START 12
/* Returns the size of the header in bytes, which the first NPY_START bytes of the file declare.
 * Returns 0 if the file is not a .npy file of version 1, 2 or 3. */
uint64_t npy_header_size(const unsigned char start[static NPY_START]);
/* Parses a header of `len` bytes, the result of npy_header_size(). Returns NULL, or the reason why
 * the header is refused; `*code` is then PENSTOCK_E_CORRUPT or PENSTOCK_E_UNSUPPORTED. */
const char *npy_parse(struct npy *npy, const unsigned char *header, size_t len, int *code);
/* Turns a field of bytes that is a .npy file into an array, or into a number if it has no
 * dimensions; leaves other fields unchanged. */
void npy_field(struct format_field *field);

#endif
