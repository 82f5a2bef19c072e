/*
 * Lists the stored images and removes unused ones.
 *
 *	struct image_kept_list list = {0};
 *
 *	image_kept_read(&list, dir, err);	// least recently used first
 *	image_kept_remove(dir, &list.items[0], err);	// EXISTS while a run uses it
 *	image_kept_sweep(dir, &bytes, err);	// layers that belong to no image
 *	image_kept_release(&list);
 *
 * image_get() holds the store's lock until it returns, and a lock of the image until image_free().
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
	struct strlist names; /* references to the image; empty for an image from a file */
	struct strlist layers; /* directories of the layers */
	uint64_t *sizes; /* bytes of each layer on disk */
	uint64_t bytes; /* bytes of all layers on disk, including shared layers */
	int64_t used_ns; /* last use; wall clock */
	bool in_use;
};

struct image_kept_list {
	struct image_kept *items;
	size_t n;
};

int image_kept_read(struct image_kept_list *list, const char *dir, struct penstock_error *err);
void image_kept_release(struct image_kept_list *list);

/* Returns the bytes of all images that are not `gone`; shared layers count once. */
uint64_t image_kept_bytes(const struct image_kept_list *list, const bool *gone);

/* Removes the manifest and the tags; the next sweep removes the layers. Fails with
 * PENSTOCK_E_EXISTS if a run uses the image or a pull is in progress. */
int image_kept_remove(const char *dir, const struct image_kept *image, struct penstock_error *err);
/* Selection of images to remove. A layer that several images share counts once. */
struct image_prune {
	/* remove images that were last used before this time; no image if INT64_MIN */
	int64_t before_ns;
	/* remove the least recently used images until the remaining images fit; no limit if
	 * UINT64_MAX */
	uint64_t max_bytes;
	void (*removed)(void *cookie, const struct image_kept *image); /* may be NULL */
	void *cookie;
};
/* Keeps images that a run uses. If a pull is in progress, images stay until the next pruning. */
int image_kept_prune(const char *dir, const struct image_kept_list *list,
	const struct image_prune *how, struct penstock_error *err);
/* Reads the list, prunes, and sweeps if an image was removed. Called after a pull. Adds the bytes
 * freed to `bytes`. */
int image_kept_bound(
	const char *dir, uint64_t max_bytes, uint64_t *bytes, struct penstock_error *err);

/* Removes layers that belong to no image, and adds the bytes freed to `bytes`. Fails with
 * PENSTOCK_E_EXISTS while an image is pulled, because that image may need the layers. */
int image_kept_sweep(const char *dir, uint64_t *bytes, struct penstock_error *err);

#endif
