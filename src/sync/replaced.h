/*
 * Copies of objects, which a run made before it overwrote the objects. keep.c makes the copies,
 * below `<state>replaced/` in the bucket, where <state> is "PREFIX.penstock/runs/ID/".
 *
 *	#include "transfer/objects.h"
 *
 *	struct replaced_list list = {0};
 *
 *	replaced_read(&list, object_at(client, "bucket", "run7/.penstock/runs/ID/"), NULL, err);
 *	replaced_choose(&list, &(struct replaced_bound){.keep = 3, .before_ns = INT64_MIN});
 *	replaced_remove(&list, object_at(client, "bucket", ""), &removed, err);
 *	replaced_release(&list);
 *
 * The name of a copy is `ETAG/path` if the user or another program made the object, and
 * `ETAG.run/path` if a run published it. The second copy with the same name has ETAG~2 instead of
 * ETAG, the third copy ETAG~3, …
 */
#ifndef SYNC_REPLACED_H
#define SYNC_REPLACED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer/objects.h"

struct buf;
struct penstock_error;

#define REPLACED_DIR "replaced/"

struct replaced_copy {
	char *key;
	/* path of the file below the output; "long-name-HASH" if the path was too long for a key */
	char *path;
	char *etag;
	uint64_t size;
	int64_t made_ns; /* by the store's clock */
	bool by_run; /* a run published the object; otherwise this may be the only copy */
	bool going; /* to be removed; set by replaced_choose() */
	bool gone; /* removed; set by replaced_remove() */
};

struct replaced_list {
	struct replaced_copy *items;
	size_t n;
};

struct replaced_sum {
	uint64_t copies, bytes;
};

struct replaced_bound {
	uint64_t keep; /* number of newest copies of each file that stay, unless they are too old */
	/* copies made before this time are removed; INT64_MIN if there is no limit */
	int64_t before_ns;
	bool all; /* also removes copies of objects that no run published */
};

/* Replaces the content of `key` with the key of copy `n` (from 1) of `there`, the object of the
 * file `path`. Needs the metadata of `there`: the name of the copy shows if a run published the
 * object. If the key would be longer than S3 allows, it ends with a hash of the path; fails with
 * PENSTOCK_E_LIMIT if even that key is too long. */
int replaced_key(const char *state, const char *path, const struct object_info *there, unsigned n,
	struct buf *key, struct penstock_error *err);
/* Returns the path of the file that a copy belongs to, or NULL if the path was too long for a key,
 * or if no copy has such a key. The result may point into `decoded`. */
const char *replaced_path(const char *state, const char *key, struct buf *decoded);
bool replaced_is_of_run(const char *state, const char *key);

/* Lists the copies, at most LIMIT_REPLACED; the key of `state` ends with a slash. */
int replaced_read(struct replaced_list *list, struct object_ref state, const atomic_int *cancel,
	struct penstock_error *err);
void replaced_release(struct replaced_list *list);

/* Sorts the list by path, the newest copy first, and marks the copies to remove. Returns the number
 * of marked copies. */
size_t replaced_choose(struct replaced_list *list, const struct replaced_bound *bound);
/* Removes the marked copies, each only if it is unchanged since it was listed, and adds them to
 * `removed`. Returns the first error. If a copy is refused, the removal of other copies continues;
 * if a whole request fails, the removal stops. */
int replaced_remove(struct replaced_list *list, struct object_ref in, struct replaced_sum *removed,
	struct penstock_error *err);

#endif
