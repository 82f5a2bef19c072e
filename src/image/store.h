/*
 * The directory that contains the images: names, locks, layers. src/image/image.h describes its
 * layout.
 */
#ifndef IMAGE_STORE_H
#define IMAGE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "image/manifest.h"

struct penstock_error;
struct image_source;

struct image_store {
	const char *dir; /* borrowed */
	const atomic_int *cancel;
};

/* Creates the directories. Removes the remains of killed processes, and layers that were not synced
 * before the machine was restarted. Syncs layers that are more than a minute old and not synced
 * yet. */
int image_store_open(struct image_store *store, struct penstock_error *err);

/* Returns "DIR/KIND/NAME"; free() it. NULL if out of memory. */
char *image_store_path(const struct image_store *store, const char *kind, const char *name);
/* Returns the directory of a layer; free() it. NULL if out of memory. */
char *image_store_layer_path(const struct image_store *store, const char *digest);
bool image_store_has_layer(const struct image_store *store, const char *digest);

/* Reads the document of this digest. Fails with PENSTOCK_E_NOT_FOUND if the document is missing,
 * and with PENSTOCK_E_CORRUPT if its content does not match the digest. */
int image_store_read(const struct image_store *store, const char *kind, const char *digest,
	struct buf *out, struct penstock_error *err);
int image_store_write(const struct image_store *store, const char *kind, const char *digest,
	const struct buf *text, struct penstock_error *err);

/* Reads the digest of the manifest that the name referred to last; "" if unknown. */
void image_store_tag_read(
	const struct image_store *store, const char *name, char digest[static IMAGE_DIGEST_SIZE]);
int image_store_tag_write(const struct image_store *store, const char *name, const char *digest,
	struct penstock_error *err);

int image_store_tag_remove(
	const struct image_store *store, const char *name, struct penstock_error *err);

/* Return a descriptor of a lock file, or -1 with errno on failure. The first is the lock of the
 * whole store: shared while a process looks up or pulls an image, exclusive while a process removes
 * images or layers. The second is the lock of one image, shared while the image is in use. */
int image_store_gate_fd(const struct image_store *store);
int image_store_use_fd(const struct image_store *store, const char *digest);

/* Sets `digest` to "sha256:…" of the text. */
int image_store_digest(
	const struct buf *text, char digest[static IMAGE_DIGEST_SIZE], struct penstock_error *err);

/* A directory for the duration of a pull. If this pull is killed, a later pull removes the
 * directory. */
struct image_scratch {
	char *dir; /* NULL if no directory was created */
	char *lock;
	int lock_fd;
};
#define IMAGE_SCRATCH_INIT                                                                         \
	{                                                                                          \
		NULL, NULL, -1                                                                     \
	}
/* Creates a directory and its lock. The caller releases `scratch`, even after a failure. */
int image_store_scratch(
	const struct image_store *store, struct image_scratch *scratch, struct penstock_error *err);
/* Removes the directory and its lock. */
void image_scratch_release(struct image_scratch *scratch);

/* Pulls the layers that are missing, several in parallel. */
int image_store_pull_layers(const struct image_store *store, struct image_source *source,
	const struct image_manifest *manifest, struct penstock_error *err);

#endif
