/* Writes the members of a layer below its root. Used by one thread. */
#ifndef IMAGE_LAYER_TREE_H
#define IMAGE_LAYER_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "archive/members.h"

struct penstock_error;

struct layer_tree {
	struct members members;
	const char *root; /* borrowed */
	bool owners; /* chown() is permitted */
	uint64_t unchecked; /* bytes written since the last check of the free space */
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

int layer_directory(struct layer_tree *t, struct member_place *place, const struct layer_meta *meta,
	struct penstock_error *err);
/* Creates a symbolic link or a FIFO. */
int layer_entry(struct layer_tree *t, struct member_place *place, const struct member_new *what,
	const struct layer_meta *meta, struct penstock_error *err);
/* Sets owner, mode and time of a regular file. */
int layer_file_meta(const struct layer_tree *t, const struct member_place *place,
	const struct layer_meta *meta, int fd, struct penstock_error *err);
/* Called before `bytes` are written. Fails with PENSTOCK_E_NO_SPACE if the disk is nearly full. */
int layer_room(struct layer_tree *t, uint64_t bytes, struct penstock_error *err);

/* Returns 1 if the name is a whiteout (".wh.NAME"), after applying it; 0 for an ordinary member. */
int layer_mark(struct layer_tree *t, const struct member_place *place, struct penstock_error *err);

#endif
