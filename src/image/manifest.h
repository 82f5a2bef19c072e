/*
 * The documents that describe an image, as registries send them: the index over platforms, the manifest, the
 * configuration; and what a registry says about how to log in. All of it is foreign: bounded and
 * checked. Pure functions.
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
	bool is_index; /* then `config` is the manifest for this platform, and there are no layers */
	struct image_blob config;
	struct image_blob *layers; /* the lowest first */
	size_t n_layers;
};

/* "amd64", "arm64", …, as images call this machine. */
const char *image_architecture(void);

/* NOT_FOUND: an index without this platform, whose platforms the message names. */
int image_manifest_parse(
	struct image_manifest *manifest, const char *data, size_t len, struct penstock_error *err);
void image_manifest_release(struct image_manifest *manifest);

int image_config_parse(
	struct image_config *config, const char *data, size_t len, struct penstock_error *err);
void image_config_release(struct image_config *config);

/* What a WWW-Authenticate header asks for. */
struct image_challenge {
	bool basic;
	char *realm;   /* Bearer: the address that gives out tokens */
	char *service; /* or NULL */
	char *scope;   /* or NULL */
};
/* False: neither Basic nor Bearer, or no memory. */
bool image_challenge_parse(struct image_challenge *challenge, const char *header);
void image_challenge_release(struct image_challenge *challenge);

/* The token in the answer of a token service; free() it. NULL: none. */
char *image_token_parse(const char *data, size_t len);

/* What a login file (config.json of Docker, auth.json of podman) says about one registry. */
struct image_login {
	char *username;
	char *password;
	char *helper; /* the program docker-credential-HELPER knows; then the others are NULL */
	bool named; /* the file names the registry, and does not only have a helper for all of them */
};
/*
 * `host` as in the reference, `repository` for podman's keys per path. 1: found, 0: nothing there about it.
 */
int image_login_parse(struct image_login *login, const char *data, size_t len, const char *host,
	const char *repository, struct penstock_error *err);
void image_login_release(struct image_login *login);

#endif
