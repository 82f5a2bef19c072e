/*
 * Tar archives of WebDataset: consecutive members KEY.EXT with the same key are one sample. EXT in
 * lower case is the name of a field. The key ends at the first dot of the last component.
 *
 * A sample is the range from the first header of its first member to the padded end of its last
 * member. A scan skips hidden files, members that are not files, names without an extension, and
 * names that begin with a component __NAME__. Types of fields follow from their extension: text,
 * JSON, NumPy arrays, bytes.
 *
 *	format_tar.scan(&format_tar, &shard, add, cookie, err);
 *
 *	// The index that DALI's wds2idx writes, version 1.2, instead of a scan:
 *	tar_index_scan(text, len, &shard, add, cookie, err);
 *	tar_index_format(&shard, &out, err);	// writes an index
 */
#ifndef DATASET_FORMAT_TAR_H
#define DATASET_FORMAT_TAR_H

#include "dataset/format/format.h"

struct buf;

extern const struct format format_tar;

/* Returns the type of the field of an extension: FORMAT_TEXT, FORMAT_JSON, FORMAT_ARRAY for "npy",
 * else FORMAT_BYTES. */
enum format_type tar_type_of(const char *ext);

/* Calls `sample` for each sample in the text of an index. `shard` is the archive; only its name and
 * size are used. */
int tar_index_scan(const char *text, size_t len, const struct shard_reader *shard,
	format_sample_fn sample, void *cookie, struct penstock_error *err);
/* Appends the index of an archive. Fails with PENSTOCK_E_INVALID if the name of a member of a
 * sample has white space. */
int tar_index_format(const struct shard_reader *shard, struct buf *out, struct penstock_error *err);

#endif
