/* Shared by the files of src/dataset/pack. */
#ifndef DATASET_PACK_INTERNAL_H
#define DATASET_PACK_INTERNAL_H

#include "base/buf.h"
#include "dataset/dataset.h"
#include "dataset/index/index.h"
#include "dataset/order/order.h"
#include "dataset/pack/pack.h"
#include "transfer/location.h"
#include "transfer/objects.h"

struct mds_columns;

/* A sample that is to be written; numbers are little endian. */
struct pack_sample {
	const char *key; /* unique; begins the names of members of a tar */
	bool of_objects; /* names of the fields are extensions */
	const struct format_field *fields;
	size_t n;
	const void *raw; /* the bytes of the sample in the source */
	size_t raw_size;
};

/* A shard that is being written. */
struct pack_shard {
	struct buf data;
	uint64_t *ends; /* ends of the samples, counted from the start of the first sample */
	size_t n;
	size_t head; /* bytes before the first sample */
};

struct pack;

/* A format that can be written. */
struct pack_format {
	const char *name, *suffix;
	/* source samples are split into fields, and objects with the same key become one sample */
	bool fields;
	/* the source format whose samples are copied without a change; NULL if there is no such
	 * format */
	const char *copies;
	/* Determines the type of all samples from the first sample. May be NULL. */
	int (*begin)(struct pack *p, const struct pack_sample *first, struct penstock_error *err);
	int (*add)(const struct pack *p, const struct pack_sample *sample, struct buf *out,
		struct penstock_error *err);
	/* Writes the header and the trailer of a complete shard. May be NULL. */
	int (*end)(const struct pack *p, struct pack_shard *shard, struct penstock_error *err);
	const struct format *scan; /* finds the samples of a shard; NULL to use its `ends` */
};
extern const struct pack_format pack_tar, pack_tfrecord, pack_mds, pack_records, pack_npy;

/* A shard that was written. */
struct pack_done {
	bool begun; /* the write has begun, so the shard may exist at the target */
	uint64_t size;
	uint64_t unpacked; /* bytes before the compression; 0 if not compressed */
	char sha1[41]; /* SHA-1 of a compressed shard */
	uint64_t n; /* samples */
	struct index_range *ranges;
	uint32_t *sums;
	char *etag; /* ETag of an object */
	int64_t mtime_ns; /* time of a file */
};

struct pack {
	struct dataset *set;
	const struct pack_format *format;
	const struct pack_options *options;
	struct location at;
	struct object_client *client; /* NULL for a directory */
	char *prefix; /* prefix of the keys, or path of the directory */
	uint64_t units; /* number of units; a unit is a sample of the target */
	/* the first source sample of each unit; NULL if each unit is one source sample */
	uint64_t *first;
	struct order order;
	uint64_t *starts; /* position of each shard's first unit, and the end */
	size_t n;
	struct pack_done *done; /* one for each shard */
	atomic_int stop;
	atomic_ullong samples, bytes; /* so far */
	/* common to all samples */
	struct mds_columns *columns;
	size_t row_size;
	struct format_field row;
};

/* target.c: the names of shards, such as "shard-000000.tar", and the place to which they are
 * written. */
#define PACK_NAME_SIZE 64
void pack_name(const struct pack *p, size_t shard, char out[static PACK_NAME_SIZE]);
int pack_open_target(struct pack *p, const struct pack_target *target, struct penstock_error *err);
int pack_put(const struct pack *p, const char *name, const void *data, size_t len,
	struct pack_done *done, struct penstock_error *err);
/* Removes the shards and the indexes that were written, even after Ctrl-C. Returns false if a file
 * is left. */
bool pack_undo(const struct pack *p);

/* finish.c: writes the indexes. */
int pack_finish(const struct pack *p, struct penstock_error *err);

/* tar.c: appends the header of a .npy file with `rows` rows if `counted` is set, else with the
 * array `row` alone. */
int pack_npy_head(struct buf *out, const struct format_field *row, uint64_t rows, bool counted,
	struct penstock_error *err);
/* Number of bytes that pack_npy_head() appends. */
#define PACK_NPY_HEAD 256

#endif
