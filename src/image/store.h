/* The directory that images are kept in: names, locks, layers. src/image/image.h says what lies where. */
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

/* Makes the directories, removes what killed ones have left, and makes durable what is not yet. */
int image_store_open(struct image_store *store, struct penstock_error *err);

/* "DIR/KIND/NAME"; free() it. NULL: out of memory. */
char *image_store_path(const struct image_store *store, const char *kind, const char *name);
/* The directory of a layer; free() it. */
char *image_store_layer_path(const struct image_store *store, const char *digest);
bool image_store_has_layer(const struct image_store *store, const char *digest);

/* A document by its digest. 0: read and as its digest says. */
int image_store_read(const struct image_store *store, const char *kind, const char *digest,
	struct buf *out, struct penstock_error *err);
int image_store_write(const struct image_store *store, const char *kind, const char *digest,
	const struct buf *text, struct penstock_error *err);

/* What a name stood for last: its manifest's digest, or "" where that is not known. */
void image_store_tag_read(
	const struct image_store *store, const char *name, char digest[static IMAGE_DIGEST_SIZE]);
int image_store_tag_write(const struct image_store *store, const char *name, const char *digest,
	struct penstock_error *err);

int image_store_tag_remove(
	const struct image_store *store, const char *name, struct penstock_error *err);

/* Files to be locked (image/kept.h): shared by who gets images, and by who has this one. -1: errno. */
int image_store_gate_fd(const struct image_store *store);
int image_store_use_fd(const struct image_store *store, const char *digest);

/* "sha256:…" of the text. */
int image_store_digest(
	const struct buf *text, char digest[static IMAGE_DIGEST_SIZE], struct penstock_error *err);

/* A directory for the time of a pull, which a later one removes where this one is killed. */
struct image_scratch {
	char *dir; /* NULL: none */
	char *lock;
	int lock_fd;
};
#define IMAGE_SCRATCH_INIT                                                                         \
	{                                                                                          \
		NULL, NULL, -1                                                                     \
	}
int image_store_scratch(
	const struct image_store *store, struct image_scratch *scratch, struct penstock_error *err);
/* Removes it. */
void image_scratch_release(struct image_scratch *scratch);

/* Brings the layers that are missing, several at a time. */
int image_store_bring_layers(const struct image_store *store, struct image_source *source,
	const struct image_manifest *manifest, struct penstock_error *err);

#endif
