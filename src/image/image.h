/*
 * Images of containers: brought from a registry or a file, verified, unpacked, and kept by digest.
 *
 *	struct image *image = NULL;
 *
 *	image_get(&image, &(struct image_request){.reference = "curlimages/curl:latest",
 *		.dir = "/home/u/.local/share/penstock/images", .engine = engine}, err);
 *	... image->layers, bottom first, are directories to be laid over each other, never to be written to
 *	image_free(image);
 *
 * Every layer is a directory of its own, unpacked once for all images and runs, while it arrives. Several
 * processes may ask for the same image: one brings each layer, the others wait for its lock. A name
 * with a digest whose layers are here costs no request; a tag is asked for at the registry, and
 * where that cannot be reached the image that the tag stood for last is taken, which is said.
 *
 * Below `dir`:
 *	manifests/SHA256	a manifest as the registry sent it; only once all of its layers are there
 *	configs/SHA256		the configuration of an image, likewise
 *	layers/ID/		the files of a layer; ID is the beginning of its digest
 *	layers/ID.part/		one that is being unpacked by whoever has the lock, else garbage
 *	locks/ID		locked while a layer is brought
 *	locks/use-ID		locked by those who have an image; ID is the beginning of its manifest's digest
 *	locks/all		locked by those who bring one, or look whether they have to, and alone by who removes any
 *	image-XXXXXX/		what an archive of an image was unpacked to, while locks/image-XXXXXX is locked
 *	tags/SHA256		the digest that a name stood for last; SHA256 is that of the name
 *	places/			not ours: where containers have mounts (run/containers.c)
 */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct http_engine;
struct penstock_error;

#define IMAGE_DIGEST_SIZE 72 /* "sha256:", 64 digits and a NUL */

/* What the image says about how it is run. */
struct image_config {
	struct strlist entrypoint;
	struct strlist cmd;
	struct strlist env; /* "K=V" */
	char *working_dir;  /* NULL: none */
	char *user;	    /* NULL: none */
};

struct image {
	char *name;			/* as people write it, "ghcr.io/org/name:tag" */
	char digest[IMAGE_DIGEST_SIZE]; /* of the manifest of this platform */
	struct strlist layers;		/* absolute paths, the lowest first */
	struct image_config config;
	int use_fd;   /* locked while we have it; 0: none */
	bool brought; /* it was not all here before */
};

struct image_request {
	const char *reference; /* see image/reference.h; an absolute path is a file or a layout */
	const char *registry;  /* NULL: that of the reference, else Docker's */
	const char *username;  /* NULL: what the user has logged in with, if anything */
	const char *password;
	const char *dir;	    /* where images are kept; created */
	struct http_engine *engine; /* borrowed */
	const atomic_int *cancel;   /* or NULL */
	/* From any thread: bytes of compressed layers so far, of all that had to be brought. May be NULL. */
	void (*progress)(void *cookie, const char *name, uint64_t done, uint64_t total);
	/* One line for people, from the calling thread. May be NULL. */
	void (*say)(void *cookie, const char *text);
	void *cookie;
};

/*
 * Nobody removes its layers before it is freed (image/kept.h).
 * Errors: INVALID (the name), NOT_FOUND (no such image, tag or platform), PERMISSION (the registry
 * refuses the login, or wants one), UNAVAILABLE (it does not answer), CORRUPT (a digest or an archive
 * is wrong), NO_SPACE, LIMIT, CANCELLED.
 */
int image_get(struct image **out, const struct image_request *request, struct penstock_error *err);
void image_free(struct image *image);

static inline void image_freep(struct image **image)
{
	image_free(*image);
}

#endif
