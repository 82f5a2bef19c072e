/* Shared by the files of MDS. */
#ifndef DATASET_FORMAT_MDS_INTERNAL_H
#define DATASET_FORMAT_MDS_INTERNAL_H

#include "dataset/format/mds/mds.h"

/* Initializes a column. Returns NULL, or the reason for which it is refused, with `*code`. */
const char *mds_column_init(
	struct mds_column *column, const char *name, const char *encoding, int *code);
void mds_column_release(struct mds_column *column);

/* Codes of types in arrays; DTYPE_NONE if unknown, 0 if there is none. */
enum format_dtype mds_dtype_of_code(unsigned char code);
unsigned char mds_code_of_dtype(enum format_dtype dtype);

/* Scans and splits as a shard of the index. */
void mds_shard_init(struct mds_shard *shard);

#endif
