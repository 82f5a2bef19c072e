/* Sources of an image's manifests and blobs: a registry, or a layout in a directory. */
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

struct image_scratch;
struct image_source;
struct image_store;

struct image_source_ops {
	/* Fetches the manifest with the digest `digest` or, if `digest` is NULL, the manifest of
	 * the reference or the index of a layout. The caller verifies the reply. */
	int (*manifest)(struct image_source *source, const char *digest, struct buf *out,
		struct penstock_error *err);
	int (*config)(struct image_source *source, const struct image_blob *blob, struct buf *out,
		struct penstock_error *err);
	/* Writes the whole blob into the ring, and then closes the ring, or breaks the ring on
	 * failure. May be called from any thread. */
	int (*layer)(struct image_source *source, const struct image_blob *blob, struct ring *ring,
		struct penstock_error *err);
	/* Reports that the ring's reader has freed space. May be called from any thread. May be
	 * NULL. */
	void (*drained)(struct image_source *source);
	void (*free)(struct image_source *source);
};

struct image_source {
	const struct image_source_ops *ops;
};

struct registry_options {
	const struct image_reference *reference; /* borrowed, outlives the source */
	const char *username; /* borrowed; if NULL, the user's login files are used */
	const char *password;
	struct http_engine *engine;
	const atomic_int *cancel;
	/* deadline of the request for the manifest, as in net/http/http.h; 0 if there is none */
	int64_t manifest_deadline_ms;
	int64_t patience_ms; /* patience of every request, as in net/http/http.h */
	/* Reports bytes of layers received; negative for bytes that must be fetched again. Called
	 * from any thread. */
	void (*progress)(void *cookie, int64_t bytes);
	void *cookie;
};
int registry_open(struct image_source **out, const struct registry_options *options,
	struct penstock_error *err);
/* Opens an OCI image layout: `oci-layout`, `index.json`, `blobs/`. */
int layout_open(struct image_source **out, const char *dir, const atomic_int *cancel,
	struct penstock_error *err);
/* Opens the layout directory or the image file at `path`. A file is an archived OCI layout, as
 * 'skopeo copy' writes it, or a 'docker save' archive, and is unpacked into `scratch`. */
int file_source(struct image_source **out, const char *path, const struct image_store *store,
	struct image_scratch *scratch, struct penstock_error *err);

static inline void image_source_free(struct image_source *source)
{
	if (source)
		source->ops->free(source);
}

/* Finds the user's login for the registry in $REGISTRY_AUTH_FILE, podman's auth.json and Docker's
 * config.json, and through their helpers. The strings of `login` are NULL if there is no login. The
 * password is passed to log_redact(). The caller releases `login`. */
int login_find(struct image_login *login, const struct image_reference *reference,
	const atomic_int *cancel, struct penstock_error *err);

#endif
