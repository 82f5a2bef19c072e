/* Shared by the files of this folder. */
#ifndef DATASET_SOURCE_INTERNAL_H
#define DATASET_SOURCE_INTERNAL_H

#include <sys/stat.h>

#include "base/buf.h"
#include "base/clock.h"
#include "dataset/source/source.h"
#include "transfer/location.h"
#include "transfer/objects.h"

struct shard {
	uint64_t size;
	size_t name; /* offset in `text` */
	union {
		size_t etag; /* of an object: offset in `text` */
		int64_t mtime_ns; /* of a file */
	};
};

struct source {
	char *url; /* as given */
	struct object_client *client; /* NULL: local files */
	/* For source_after_fork(). */
	int (*open)(
		void *cookie, bool google, struct object_client **out, struct penstock_error *err);
	void *cookie;
	bool google;
	char bucket[sizeof(((struct location *)NULL)->bucket)];
	char *prefix; /* of the keys, or the path; of a single shard the whole of it */
	bool single;
	struct buf text;
	struct shard *shards;
	size_t n;
	bool borrowed; /* `text` and `shards` belong to an index */
};

/* hidden.c: takes the list of an index. Returns 1 if there is one. */
int source_listed(struct source *s, const struct source_place *place, struct penstock_error *err);

#endif
