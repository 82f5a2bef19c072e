/* Shared by the files of MDS. */
#ifndef DATASET_FORMAT_MDS_INTERNAL_H
#define DATASET_FORMAT_MDS_INTERNAL_H

#include "dataset/format/mds/mds.h"

/* Initializes a column. Returns NULL, or the reason why the column is refused; `*code` is then the
 * code of the error. */
const char *mds_column_init(
	struct mds_column *column, const char *name, const char *encoding, int *code);
void mds_column_release(struct mds_column *column);

/* Convert between types of arrays and their codes. Return DTYPE_NONE if the code is unknown, and 0
 * if the type has no code. */
enum format_dtype mds_dtype_of_code(unsigned char code);
unsigned char mds_code_of_dtype(enum format_dtype dtype);

/* Initializes a shard with the functions that scan and split it. */
void mds_shard_init(struct mds_shard *shard);

#endif
