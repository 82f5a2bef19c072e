/*
 * Detects the format of a data set from one of its objects: from the name, the size and the first
 * bytes.
 *
 *	struct detect_object object = {.name = "d/train-0.tar", .size = size, .head = bytes};
 *	const char *reason;
 *
 *	object.head_len = DETECT_BYTES;		// less if the object is shorter
 *	if (format_detect(&object, &reason) == FORMAT_KIND_TAR)
 *		printf("tar: %s\n", reason);	// "tar: its first block is the header of a tar"
 *
 * If a data set has an index.json, detect that file first: the shards alone are FORMAT_KIND_PART.
 */
#ifndef DATASET_FORMAT_DETECT_H
#define DATASET_FORMAT_DETECT_H

#include <stddef.h>
#include <stdint.h>

enum format_kind {
	FORMAT_KIND_OBJECTS, /* each object is one sample */
	FORMAT_KIND_TAR,
	FORMAT_KIND_TFRECORD,
	FORMAT_KIND_NPY,
	FORMAT_KIND_IDX,
	FORMAT_KIND_CIFAR10,
	FORMAT_KIND_CIFAR100,
	FORMAT_KIND_MDS, /* the object is the index.json of an MDS data set */
	FORMAT_KIND_LITDATA, /* the object is the index.json of a litData data set */
	FORMAT_KIND_PART, /* an index of another object, or a shard that an index lists */
	FORMAT_KIND_UNSUPPORTED,
	FORMAT_KIND_COUNT_
};

#define DETECT_BYTES 512

struct detect_object {
	const char *name;
	uint64_t size;
	const void *head; /* the first bytes */
	size_t head_len; /* up to DETECT_BYTES */
};

/* Returns the kind of the object. `*reason` is a static text with the reason for this kind. */
enum format_kind format_detect(const struct detect_object *object, const char **reason);
/* Returns the name of a kind, such as "tar" or "objects"; static. */
const char *format_kind_name(enum format_kind kind);

#endif
