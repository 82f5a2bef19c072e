/*
 * Encrypts bodies with AES-256-GCM in chunks, so that a range can be read and verified without the
 * other bytes of the file.
 *
 *	struct crypt c = {0};
 *
 *	r = crypt_init(&c, key, &seal, true, err);
 *	if (r == 0)
 *		r = crypt_encrypt(&c, 0, plain, len, out);	// len + CRYPT_TAG bytes
 *	crypt_release(&c);
 *
 * Each body has a data key of its own, derived from a key and the salt in its seal. The nonce of a
 * chunk can therefore be its number: no two chunks have the same key and the same nonce. A body is
 * encrypted once, and never changed.
 */
#ifndef STORE_CRYPT_CRYPT_H
#define STORE_CRYPT_CRYPT_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/limits.h"
#include "store/store.h"

struct penstock_error;

#define CRYPT_TAG    16
#define CRYPT_CHUNK  ((size_t)16 * KIB)
#define CRYPT_STRIDE (CRYPT_CHUNK + CRYPT_TAG) /* bytes of a chunk in a file */
#define CRYPT_BATCH  4 /* chunks that are read or written at a time */

/* The origin of a body's data key; stored with the body. */
struct seal {
	uint64_t key; /* the store key; 0 for the key of a customer */
	uint8_t salt[16];
};
#define SEAL_SIZE 24
void seal_encode(const struct seal *seal, uint8_t out[static SEAL_SIZE]);
/* Returns -1 if `len` is not SEAL_SIZE. */
int seal_decode(struct seal *out, const void *data, size_t len);

/* The cipher with the data key of a body, in one direction. */
struct crypt {
	EVP_CIPHER_CTX *ctx;
	bool encrypts;
};
int crypt_init(struct crypt *c, const struct store_key *key, const struct seal *seal, bool encrypts,
	struct penstock_error *err);
void crypt_release(struct crypt *c);
/* Encrypts a chunk of `len` bytes; `out` gets `len` + CRYPT_TAG bytes. Returns -1 on failure. */
int crypt_encrypt(struct crypt *c, uint64_t chunk, const void *plain, size_t len, uint8_t *out);
/* Decrypts `len` bytes, CRYPT_TAG more than `out` gets. Returns -1 if the bytes differ from the
 * bytes that were encrypted. */
int crypt_decrypt(struct crypt *c, uint64_t chunk, const uint8_t *data, size_t len, void *out);

/* Encrypts `key` with the key `with`, under a random nonce. */
#define CRYPT_WRAPPED (12 + STORE_KEY_SIZE + CRYPT_TAG)
int crypt_wrap(const struct store_key *with, const struct store_key *key,
	uint8_t out[static CRYPT_WRAPPED], struct penstock_error *err);
/* Returns 1 if `wrapped` was made with a key other than `with`, or is damaged. */
int crypt_unwrap(const struct store_key *with, const uint8_t wrapped[static CRYPT_WRAPPED],
	struct store_key *out, struct penstock_error *err);

/* Derives `out` as HMAC-SHA256 of the label, its NUL, and the salt. */
int crypt_derive(const struct store_key *key, const char *label, const uint8_t salt[static 16],
	struct store_key *out, struct penstock_error *err);
int crypt_random(void *out, size_t len, struct penstock_error *err);

/* Encrypts the bytes of a file in order. */
struct sealer {
	struct crypt crypt;
	uint64_t chunk; /* number of the next chunk */
	size_t fill;
	uint8_t plain[CRYPT_CHUNK]; /* the first `fill` bytes of that chunk */
	uint8_t out[CRYPT_BATCH * CRYPT_STRIDE];
};
/* Takes some bytes of `*data`. Returns the number of bytes in `out` to write, perhaps 0, or -1 on
 * failure. */
ssize_t sealer_take(struct sealer *s, const char **data, size_t *len);
/* Encrypts the bytes that are left. Returns the number of bytes in `out` to write, perhaps 0, or -1
 * on failure. */
ssize_t sealer_end(struct sealer *s);

/* Decrypts a file that a sealer has encrypted. */
struct opener {
	struct crypt crypt;
	bool has; /* `plain` has a chunk */
	uint64_t chunk; /* number of this chunk */
	size_t len;
	uint8_t plain[CRYPT_CHUNK];
	uint8_t in[CRYPT_BATCH * CRYPT_STRIDE];
};
/* Returns the size in clear text of an encrypted file of `size` bytes. */
uint64_t crypt_plain_size(uint64_t size);
/* Reads bytes in clear text. Returns fewer than `len` only at the end of the file, or -1 with errno
 * set: EBADMSG if the bytes differ from the bytes that were written. */
ssize_t opener_read(struct opener *o, int fd, uint64_t offset, void *data, size_t len);

#endif
