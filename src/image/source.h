/* Where an image's manifests and blobs come from: a registry, or a layout in a directory. */
#ifndef IMAGE_SOURCE_H
#define IMAGE_SOURCE_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "image/manifest.h"
#include "image/reference.h"

struct http_engine;
struct penstock_error;
struct ring;

struct image_source;

struct image_source_ops {
	/* By tag (NULL: the reference's) or digest. What comes is not verified here. */
	int (*manifest)(struct image_source *source, const char *digest, struct buf *out,
		struct penstock_error *err);
	int (*config)(struct image_source *source, const struct image_blob *blob, struct buf *out,
		struct penstock_error *err);
	/* Writes the blob into the ring, on the calling thread; closes it, or breaks it on failure. Any thread. */
	int (*layer)(struct image_source *source, const struct image_blob *blob, struct ring *ring,
		struct penstock_error *err);
	/* The ring's reader has made room. Any thread. */
	void (*drained)(struct image_source *source);
	void (*free)(struct image_source *source);
};

struct image_source {
	const struct image_source_ops *ops;
};

struct registry_options {
	const struct image_reference *reference; /* borrowed, outlives the source */
	const char *username; /* borrowed; NULL: what the user has logged in with */
	const char *password;
	struct http_engine *engine;
	const atomic_int *cancel;
	/* Bytes of layers as they come, negative for what has to come again; any thread. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie;
};
int registry_open(struct image_source **out, const struct registry_options *options,
	struct penstock_error *err);
/* An OCI image layout: `oci-layout`, `index.json`, `blobs/`. */
int layout_open(struct image_source **out, const char *dir, const atomic_int *cancel,
	struct penstock_error *err);

static inline void image_source_free(struct image_source *source)
{
	if (source)
		source->ops->free(source);
}

static inline void image_source_freep(struct image_source **source)
{
	image_source_free(*source);
}

/*
 * What the user has logged in with at the registry, from $REGISTRY_AUTH_FILE, podman's auth.json and Docker's
 * config.json; NULLs where there is nothing. Passed to log_redact().
 */
int login_find(struct image_login *login, const struct image_reference *reference,
	const atomic_int *cancel, struct penstock_error *err);

#endif
