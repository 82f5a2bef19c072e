/* Writes the members of a layer below its root. Used by one thread. */
#ifndef IMAGE_LAYER_TREE_H
#define IMAGE_LAYER_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/buf.h"
#include "archive/dir_cache.h"

struct penstock_error;

struct layer_tree {
	const char *root; /* borrowed */
	int root_fd;
	bool owners; /* chown() is permitted */
	struct dir_cache dirs;
	struct buf later; /* modes and times of directories, set after the last member */
	uint64_t members, bytes, unchecked;
	bool replaced; /* a directory or link of an earlier member was replaced */
};

/* Attributes of a member. */
struct layer_meta {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};

int layer_tree_init(struct layer_tree *t, const char *root, struct penstock_error *err);
void layer_tree_release(struct layer_tree *t);

/* A member's name, split into its place in the tree and its parent directory, which is created.
 * `base` points into `text`; it is empty for the root of the layer. */
struct layer_place {
	char text[4096];
	size_t len;
	int parent; /* owned by the tree, valid until the next place is opened */
	const char *base;
};
int layer_place(struct layer_tree *t, struct layer_place *place, const char *name,
	struct penstock_error *err);

int layer_directory(struct layer_tree *t, struct layer_place *place, const struct layer_meta *meta,
	struct penstock_error *err);
int layer_symlink(struct layer_tree *t, struct layer_place *place, const char *target,
	const struct layer_meta *meta, struct penstock_error *err);
int layer_hardlink(struct layer_tree *t, struct layer_place *place, const char *target,
	struct penstock_error *err);
int layer_fifo(struct layer_tree *t, struct layer_place *place, const struct layer_meta *meta,
	struct penstock_error *err);
/* Creates a file and returns its descriptor for writing. layer_file_end() closes it, also after a
 * failure. */
int layer_file_begin(
	struct layer_tree *t, struct layer_place *place, int *fd, struct penstock_error *err);
int layer_file_end(struct layer_tree *t, const struct layer_place *place,
	const struct layer_meta *meta, int fd, struct penstock_error *err);
/* Call it before writing: accounts the bytes and fails with NO_SPACE if the disk is nearly full. */
int layer_room(struct layer_tree *t, uint64_t bytes, struct penstock_error *err);

/* Returns 1 if the name is a whiteout (".wh.NAME"), after applying it; 0 for an ordinary member. */
int layer_mark(struct layer_tree *t, const struct layer_place *place, struct penstock_error *err);

/* Sets the modes and times of directories. Call it last. */
int layer_tree_finish(struct layer_tree *t, struct penstock_error *err);

#endif
