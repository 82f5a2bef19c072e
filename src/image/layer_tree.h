/* Where the members of a layer are written; one thread's. */
#ifndef IMAGE_LAYER_TREE_H
#define IMAGE_LAYER_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/buf.h"
#include "base/dir_cache.h"

struct penstock_error;

struct layer_tree {
	const char *root; /* borrowed */
	int root_fd;
	bool owners; /* may be given away */
	struct dir_cache dirs;
	struct buf later; /* modes and times of directories, set when all members are there */
	uint64_t members, bytes, unchecked;
	bool replaced; /* a directory or link that was made before */
};

/* What a member is to have beside its contents. */
struct layer_meta {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};

int layer_tree_init(struct layer_tree *t, const char *root, struct penstock_error *err);
void layer_tree_release(struct layer_tree *t);

/*
 * The name of a member taken apart: its place in the tree and the directory that it lies in, which is made.
 * `base` points into `text`; empty for the root of the layer itself.
 */
struct layer_place {
	char text[4096];
	size_t len;
	int parent; /* the tree's, until the next place is taken */
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
/* The descriptor of a new file to be written; layer_file_end() closes it, also after a failure. */
int layer_file_begin(
	struct layer_tree *t, struct layer_place *place, int *fd, struct penstock_error *err);
int layer_file_end(struct layer_tree *t, const struct layer_place *place,
	const struct layer_meta *meta, int fd, struct penstock_error *err);
/* Before more bytes are written: whether there is room. */
int layer_room(struct layer_tree *t, uint64_t bytes, struct penstock_error *err);

/* If the name is that of a mark (".wh.NAME"), does what it says: 1. 0: it is an ordinary member. */
int layer_mark(struct layer_tree *t, const struct layer_place *place, struct penstock_error *err);

/* Modes and times of directories, at the very end. */
int layer_tree_finish(struct layer_tree *t, struct penstock_error *err);

#endif
