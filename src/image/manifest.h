/*
 * Parsers for the documents of an image as registries send them: the index of platforms, the
 * manifest, the configuration, and the login challenge. All these documents are untrusted input:
 * bounded and validated. Pure functions.
 */
#ifndef IMAGE_MANIFEST_H
#define IMAGE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/image.h"

struct image_blob {
	char digest[IMAGE_DIGEST_SIZE];
	uint64_t size;
};

struct image_manifest {
	/* if true, `config` is the manifest for this platform, and there are no layers */
	bool is_index;
	struct image_blob config;
	struct image_blob *layers; /* lowest first */
	size_t n_layers;
};

/* Returns the name that images use for this machine's architecture: "amd64", "arm64", …. */
const char *image_architecture(void);

/* Fails with PENSTOCK_E_NOT_FOUND if an index has no manifest for this machine's platform; the
 * message lists the platforms of the index. */
int image_manifest_parse(
	struct image_manifest *manifest, const char *data, size_t len, struct penstock_error *err);
void image_manifest_release(struct image_manifest *manifest);

int image_config_parse(
	struct image_config *config, const char *data, size_t len, struct penstock_error *err);
void image_config_release(struct image_config *config);

/* A parsed WWW-Authenticate header. */
struct image_challenge {
	bool basic;
	char *realm; /* Bearer only: address of the token service */
	char *service; /* may be NULL */
	char *scope; /* may be NULL */
};
/* Returns false if the scheme is neither Basic nor Bearer, or out of memory. */
bool image_challenge_parse(struct image_challenge *challenge, const char *header);
void image_challenge_release(struct image_challenge *challenge);

/* Returns the token in a token service's reply, or NULL if there is none; free() it. */
char *image_token_parse(const char *data, size_t len);

/* Login for one registry in a login file (Docker's config.json, podman's auth.json). */
struct image_login {
	char *username;
	char *password;
	char *helper; /* use docker-credential-HELPER; the other strings are then NULL */
	/* the file lists the registry itself, not only a default helper */
	bool named;
};
/* `host` is the host of the reference; `repository` matches podman's keys with a path. Returns 1 if
 * there is a login or a helper, 0 if there is neither. */
int image_login_parse(struct image_login *login, const char *data, size_t len, const char *host,
	const char *repository, struct penstock_error *err);
void image_login_release(struct image_login *login);

#endif
