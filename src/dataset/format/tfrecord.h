/*
 * TFRecord files. A sample is one record with its length and checksums. A scan verifies the
 * checksums of the lengths and reads little else; a split also verifies the checksum of the record.
 *
 * format_tfrecord splits tf.train.Example by feature: lists of floats and integers are arrays with
 * one dimension, and a list of several byte strings becomes several fields with an index. Integers
 * and unpacked floats need scratch memory. format_tfrecord_raw has the record as one field "data".
 *
 *	format_tfrecord.scan(&format_tfrecord, &shard, add, cookie, err);
 *
 * Compressed files are refused with PENSTOCK_E_UNSUPPORTED.
 */
#ifndef DATASET_FORMAT_TFRECORD_H
#define DATASET_FORMAT_TFRECORD_H

#include "dataset/format/format.h"

extern const struct format format_tfrecord, format_tfrecord_raw;

/* Bytes before a record's content, and after it. */
#define TFRECORD_HEAD 12
#define TFRECORD_TAIL 4
/* Returns the size of the content of a record, from its first TFRECORD_HEAD bytes. */
uint64_t tfrecord_size(const unsigned char *head);
/* Returns true if the checksum after the content is valid. */
bool tfrecord_is_content(const unsigned char *content, uint64_t size);
/* Returns the masked CRC32C of a length or a content. */
uint32_t tfrecord_crc(const void *data, size_t len);
/* Returns true if `head` is the first TFRECORD_HEAD bytes of a record: the checksum of its length
 * is right. */
bool tfrecord_is_head(const unsigned char *head);

/* Adds the features of an Example in `data`, which is part of the piece. */
int example_split(const struct format_piece *piece, const unsigned char *data, size_t len,
	struct format_fields *out, struct penstock_error *err);

#endif
