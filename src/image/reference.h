/*
 * Names of images: [docker://][HOST/]PATH[:TAG][@sha256:DIGEST], as Docker reads them. Pure functions.
 *
 * What stands before the first "/" is a host where it has a "." or a ":" or is "localhost", or where
 * no registry is given apart. Docker's own registry has several names, and its official images
 * lie below "library/".
 */
#ifndef IMAGE_REFERENCE_H
#define IMAGE_REFERENCE_H

#include <stdbool.h>

struct penstock_error;

struct image_reference {
	char *host;	  /* of its API, "registry-1.docker.io" or "127.0.0.1:5000" */
	char *shown_host; /* as people know it, "docker.io" */
	char *repository; /* "library/debian" */
	char *tag;	  /* NULL: only the digest counts */
	char *digest;	  /* "sha256:…", or NULL */
	bool plain_http;  /* asked for by "http://" before the registry */
	bool loopback;	  /* the host is this machine */
};

/* `registry` may be NULL, and may have "https://" or "http://" before it. */
int image_reference_parse(struct image_reference *ref, const char *text, const char *registry,
	struct penstock_error *err);
void image_reference_release(struct image_reference *ref);
/* "docker.io/library/debian:12"; free() it. NULL: out of memory. */
char *image_reference_name(const struct image_reference *ref);

/* Whether it is "sha256:" and 64 lower-case hexadecimal digits, with nothing behind. */
bool image_digest_is_valid(const char *digest);

#endif
