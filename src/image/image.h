/*
 * Container images: pulled from a registry or a file, verified, unpacked, and stored by digest.
 *
 *	struct image *image = NULL;
 *
 *	image_get(&image, &(struct image_request){.reference = "curlimages/curl:latest",
 *		.dir = "/home/u/.local/share/penstock/images", .engine = engine}, err);
 *	... mount image->layers, lowest first, over each other; never write to them
 *	image_free(image);
 *
 * Each layer has its own directory and is unpacked while it arrives, once for all images and runs.
 * Several processes may request the same image: one process pulls each layer, and the other
 * processes wait for the lock of the layer. A reference with a digest needs no request if the
 * layers of the image are stored. The registry resolves a tag; if the registry is unreachable,
 * image_get() uses the image last pulled under that tag, and notifies the user.
 *
 * Below `dir`:
 *	indexes/SHA256		a list of manifests, one for each platform
 *	manifests/SHA256	a manifest as the registry sent it; written when all its layers are
 *				stored
 *	configs/SHA256		the configuration of an image
 *	layers/ID/		the files of a layer; ID is the start of its digest
 *	layers/ID.part/		a layer that the holder of the lock unpacks; garbage if not locked
 *	layers/ID.new		the boot ID at the time of unpacking, until the layer is synced
 *	locks/ID		locked while a layer is pulled
 *	locks/use-ID		locked while an image is used; ID is the start of its manifest's
 *				digest
 *	locks/all		locked shared while an image is looked up or pulled, exclusively
 *				while images or layers are removed
 *	image-XXXXXX/		contents of an image archive, while locks/image-XXXXXX is locked
 *	tags/SHA256		digest that a name referred to last; SHA256 is the hash of the name
 *	places/			mount points of containers (run/step/containers.c)
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

/* Settings for running the image. */
struct image_config {
	struct strlist entrypoint;
	struct strlist cmd;
	struct strlist env; /* "K=V" */
	char *working_dir; /* may be NULL */
	char *user; /* may be NULL */
};

struct image {
	char *name; /* full name, "ghcr.io/org/name:tag", or path of the file */
	char digest[IMAGE_DIGEST_SIZE]; /* digest of this platform's manifest */
	struct strlist layers; /* absolute paths, lowest first */
	struct image_config config;
	int use_fd; /* lock held while the image is in use; 0 if there is none */
	bool pulled; /* at least one layer was pulled */
};

struct image_request {
	const char *reference; /* see image/reference.h; an absolute path is a file or a layout */
	const char *registry; /* if NULL: the registry in the reference, or Docker's */
	const char *username; /* if NULL, the user's login files are used */
	const char *password;
	const char *dir; /* directory of the images; created if missing */
	struct http_engine *engine; /* borrowed */
	const atomic_int *cancel; /* may be NULL */
	int64_t patience_ms; /* as in net/http/http.h, for an image that is not stored yet */
	/* Reports the bytes of compressed layers received so far, and the bytes of all layers to
	 * pull. Called from any thread. May be NULL. */
	void (*progress)(void *cookie, const char *name, uint64_t done, uint64_t total);
	/* Reports one line for the user, from the calling thread. May be NULL. */
	void (*say)(void *cookie, const char *text);
	void *cookie;
};

/*
 * Gets the image and protects its layers from removal until image_free() (image/kept.h). Errors,
 * without PENSTOCK_E_: INVALID (the name), NOT_FOUND (no such image, tag or platform), PERMISSION
 * (the registry refuses the login or requires one), UNAVAILABLE (the registry does not reply),
 * CORRUPT (digest mismatch or broken archive), NO_SPACE, LIMIT, CANCELLED and the errors of the
 * formats and of the HTTP engine.
 */
int image_get(struct image **out, const struct image_request *request, struct penstock_error *err);
void image_free(struct image *image);

#endif
