/*
 * The images that are kept: what there is, and removing what nobody uses.
 *
 *	struct image_kept_list list = {0};
 *
 *	image_kept_read(&list, dir, err);		least recently used first
 *	image_kept_remove(dir, &list.items[0], err);	BUSY while a run has it
 *	image_kept_sweep(dir, &bytes, err);		layers that no image has any more
 *	image_kept_release(&list);
 *
 * Whoever gets an image (image.h) holds a lock of it until he frees it, and one of the whole store until then.
 */
#ifndef IMAGE_KEPT_H
#define IMAGE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "image/image.h"

struct image_kept {
	char digest[IMAGE_DIGEST_SIZE];
	struct strlist names;  /* tags that stand for it; none for those of files */
	struct strlist layers; /* their directories */
	uint64_t *sizes;       /* of these, on disk */
	uint64_t bytes;	 /* on disk, of all its layers; those of others are counted there, too */
	int64_t used_ns; /* when somebody asked for it last; wall clock */
	bool in_use;
};

struct image_kept_list {
	struct image_kept *items;
	size_t n;
};

int image_kept_read(struct image_kept_list *list, const char *dir, struct penstock_error *err);
void image_kept_release(struct image_kept_list *list);

/* Its manifest and tags; the layers go with the next sweep. EXISTS: a run has it. */
int image_kept_remove(const char *dir, const struct image_kept *image, struct penstock_error *err);
/* Which of them go. Of what images share nothing is freed before the last of them goes, and it counts once. */
struct image_prune {
	int64_t before_ns; /* those that nobody asked for since; INT64_MIN: none for that reason */
	uint64_t
		max_bytes; /* the least recently used, until all take no more; UINT64_MAX: likewise */
	void (*removed)(void *cookie, const struct image_kept *image); /* may be NULL */
	void *cookie;
};
/* What a run has, or takes meanwhile, stays. EXISTS: one is being brought, and the rest stays until the next pruning. */
int image_kept_prune(const char *dir, const struct image_kept_list *list,
	const struct image_prune *how, struct penstock_error *err);
/* The same with the list and the sweep, for whoever has just brought one. `bytes` as of the sweep. */
int image_kept_bound(
	const char *dir, uint64_t max_bytes, uint64_t *bytes, struct penstock_error *err);

/* Adds to `bytes` what was freed. EXISTS: an image is being brought, which may need them. */
int image_kept_sweep(const char *dir, uint64_t *bytes, struct penstock_error *err);

#endif
