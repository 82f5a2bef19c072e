/*
 * Names of images: [docker://][HOST/]PATH[:TAG][@sha256:DIGEST], as Docker reads them. Pure
 * functions.
 *
 * The part before the first "/" is a host if it contains "." or ":" or is "localhost". If a
 * registry is given separately, this part belongs to the path unless it names the same registry.
 * Docker's own registry has several names; its official images are below "library/".
 */
#ifndef IMAGE_REFERENCE_H
#define IMAGE_REFERENCE_H

#include <stdbool.h>

struct penstock_error;

struct image_reference {
	char *host; /* host of the API: "registry-1.docker.io" or "127.0.0.1:5000" */
	char *shown_host; /* the name that users know: "docker.io" */
	char *repository; /* "library/debian" */
	char *tag; /* NULL if there is only a digest */
	char *digest; /* "sha256:…", or NULL */
	bool plain_http; /* requested by "http://" before the registry */
	bool loopback; /* the host is this machine */
};

/* Parses a name. `registry` may be NULL, and may start with "https://" or "http://". Fails with
 * PENSTOCK_E_INVALID; the message has examples. */
int image_reference_parse(struct image_reference *ref, const char *text, const char *registry,
	struct penstock_error *err);
void image_reference_release(struct image_reference *ref);
/* Returns "docker.io/library/debian:12"; free() it. NULL if out of memory. */
char *image_reference_name(const struct image_reference *ref);

/* Returns true for "sha256:" and 64 lower-case hexadecimal digits, with nothing after them. */
bool image_digest_is_valid(const char *digest);

#endif
