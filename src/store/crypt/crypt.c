#include "store/crypt/crypt.h"

#include <endian.h>
#include <errno.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/must.h"

#define NONCE 12

/* The cipher is fetched once: in OpenSSL 3 a fetch takes longer than the encryption of a small
 * body. */
static const EVP_CIPHER *gcm;
static pthread_once_t fetch_once = PTHREAD_ONCE_INIT;

static void fetch(void)
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
	gcm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
#else
	gcm = EVP_aes_256_gcm();
#endif
}

static const EVP_CIPHER *cipher(struct penstock_error *err)
{
	pthread_once(&fetch_once, fetch);
	if (!gcm)
		error_set(err, PENSTOCK_E_UNSUPPORTED,
			"cannot use encryption: OpenSSL has no AES-256-GCM");
	return gcm;
}

int crypt_random(void *out, size_t len, struct penstock_error *err)
{
	if (getrandom(out, len, 0) == (ssize_t)len)
		return 0;
	return error_set(err, PENSTOCK_E_INTERNAL, "cannot generate a key: getrandom() failed");
}

/* --- keys ------------------------------------------------------------------------------------ */

void seal_encode(const struct seal *seal, uint8_t out[static SEAL_SIZE])
{
	uint64_t key = htole64(seal->key);

	memcpy(out, &key, sizeof(key));
	memcpy(out + sizeof(key), seal->salt, sizeof(seal->salt));
}

int seal_decode(struct seal *out, const void *data, size_t len)
{
	uint64_t key;

	if (len != SEAL_SIZE)
		return -1;
	memcpy(&key, data, sizeof(key));
	out->key = le64toh(key);
	memcpy(out->salt, (const uint8_t *)data + sizeof(key), sizeof(out->salt));
	return 0;
}

int crypt_derive(const struct store_key *key, const char *label, const uint8_t salt[static 16],
	struct store_key *out, struct penstock_error *err)
{
	uint8_t text[64];
	size_t n = strlen(label) + 1;
	unsigned len = sizeof(out->bytes);

	MUST(n + 16 <= sizeof(text));
	memcpy(text, label, n);
	memcpy(text + n, salt, 16);
	if (HMAC(EVP_sha256(), key->bytes, sizeof(key->bytes), text, n + 16, out->bytes, &len))
		return 0;
	return error_memory(err);
}

static int set_key(
	struct crypt *c, const struct store_key *key, bool encrypts, struct penstock_error *err)
{
	const EVP_CIPHER *type = cipher(err);

	if (!type)
		return -PENSTOCK_E_UNSUPPORTED;
	if (!c->ctx)
		c->ctx = EVP_CIPHER_CTX_new();
	c->encrypts = encrypts;
	if (c->ctx && EVP_CipherInit_ex(c->ctx, type, NULL, key->bytes, NULL, encrypts) == 1)
		return 0;
	return error_memory(err);
}

int crypt_init(struct crypt *c, const struct store_key *key, const struct seal *seal, bool encrypts,
	struct penstock_error *err)
{
	struct store_key data;
	int rc = crypt_derive(key, "penstock data", seal->salt, &data, err);

	if (rc == 0)
		rc = set_key(c, &data, encrypts, err);
	explicit_bzero(&data, sizeof(data));
	if (rc < 0)
		crypt_release(c);
	return rc;
}

void crypt_release(struct crypt *c)
{
	EVP_CIPHER_CTX_free(c->ctx); /* wipes the key */
	*c = (struct crypt){0};
}

/* --- one chunk ------------------------------------------------------------------------------- */

static int encrypt(struct crypt *c, const uint8_t nonce[static NONCE], const void *plain,
	size_t len, uint8_t *out)
{
	int n = 0;

	MUST(c->encrypts && len <= CRYPT_CHUNK);
	if (EVP_CipherInit_ex(c->ctx, NULL, NULL, NULL, nonce, 1) != 1 ||
		(len && EVP_CipherUpdate(c->ctx, out, &n, plain, (int)len) != 1) ||
		EVP_CipherFinal_ex(c->ctx, out + n, &n) != 1 ||
		EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_GET_TAG, CRYPT_TAG, out + len) != 1)
		return -1;
	return 0;
}

static int decrypt(struct crypt *c, const uint8_t nonce[static NONCE], const uint8_t *data,
	size_t len, uint8_t *out)
{
	uint8_t tag[CRYPT_TAG];
	int n = 0;

	MUST(!c->encrypts && len <= CRYPT_STRIDE);
	if (len < CRYPT_TAG)
		return -1;
	len -= CRYPT_TAG;
	memcpy(tag, data + len, CRYPT_TAG);
	if (EVP_CipherInit_ex(c->ctx, NULL, NULL, NULL, nonce, 0) != 1 ||
		EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_SET_TAG, CRYPT_TAG, tag) != 1 ||
		(len && EVP_CipherUpdate(c->ctx, out, &n, data, (int)len) != 1) ||
		EVP_CipherFinal_ex(c->ctx, out + n, &n) != 1)
		return -1;
	return 0;
}

static void nonce_of(uint64_t chunk, uint8_t out[static NONCE])
{
	chunk = htole64(chunk);
	memset(out, 0, NONCE);
	memcpy(out, &chunk, sizeof(chunk));
}

int crypt_encrypt(struct crypt *c, uint64_t chunk, const void *plain, size_t len, uint8_t *out)
{
	uint8_t nonce[NONCE];

	nonce_of(chunk, nonce);
	return encrypt(c, nonce, plain, len, out);
}

int crypt_decrypt(struct crypt *c, uint64_t chunk, const uint8_t *data, size_t len, void *out)
{
	uint8_t nonce[NONCE];

	nonce_of(chunk, nonce);
	return decrypt(c, nonce, data, len, out);
}

int crypt_wrap(const struct store_key *with, const struct store_key *key,
	uint8_t out[static CRYPT_WRAPPED], struct penstock_error *err)
{
	struct crypt c = {0};
	int rc = crypt_random(out, NONCE, err);

	if (rc == 0)
		rc = set_key(&c, with, true, err);
	if (rc == 0 && encrypt(&c, out, key->bytes, sizeof(key->bytes), out + NONCE) < 0)
		rc = error_memory(err);
	crypt_release(&c);
	return rc;
}

int crypt_unwrap(const struct store_key *with, const uint8_t wrapped[static CRYPT_WRAPPED],
	struct store_key *out, struct penstock_error *err)
{
	struct crypt c = {0};
	int rc = set_key(&c, with, false, err);

	if (rc == 0)
		rc = decrypt(&c, wrapped, wrapped + NONCE, CRYPT_WRAPPED - NONCE, out->bytes) < 0;
	crypt_release(&c);
	return rc;
}

/* --- files ----------------------------------------------------------------------------------- */

ssize_t sealer_take(struct sealer *s, const char **data, size_t *len)
{
	ssize_t n = 0;

	if (s->fill == 0 && *len >= CRYPT_CHUNK) {
		for (int i = 0; i < CRYPT_BATCH && *len >= CRYPT_CHUNK; i++) {
			if (crypt_encrypt(&s->crypt, s->chunk++, *data, CRYPT_CHUNK, s->out + n) <
				0)
				return -1;
			*data += CRYPT_CHUNK;
			*len -= CRYPT_CHUNK;
			n += (ssize_t)CRYPT_STRIDE;
		}
		return n;
	}
	n = (ssize_t)(*len < CRYPT_CHUNK - s->fill ? *len : CRYPT_CHUNK - s->fill);
	memcpy(s->plain + s->fill, *data, (size_t)n);
	s->fill += (size_t)n;
	*data += n;
	*len -= (size_t)n;
	return s->fill == CRYPT_CHUNK ? sealer_end(s) : 0;
}

ssize_t sealer_end(struct sealer *s)
{
	size_t len = s->fill;

	if (!len)
		return 0;
	s->fill = 0;
	if (crypt_encrypt(&s->crypt, s->chunk++, s->plain, len, s->out) < 0)
		return -1;
	return (ssize_t)(len + CRYPT_TAG);
}

uint64_t crypt_plain_size(uint64_t size)
{
	uint64_t chunks = size / CRYPT_STRIDE, rest = size % CRYPT_STRIDE;

	return chunks * CRYPT_CHUNK + (rest > CRYPT_TAG ? rest - CRYPT_TAG : 0);
}

/* Decrypts up to `n` chunks, at most CRYPT_BATCH, into `data`. Returns the number of decrypted
 * bytes, or -1 with errno set. */
static ssize_t read_chunks(struct opener *o, int fd, uint64_t chunk, void *data, size_t n)
{
	ssize_t got = fs_pread_all(
		fd, o->in, n * CRYPT_STRIDE, (off_t)(chunk * (uint64_t)CRYPT_STRIDE));
	size_t done = 0;

	if (got < 0)
		return -1;
	for (size_t at = 0; at < (size_t)got; at += CRYPT_STRIDE, chunk++) {
		size_t len = (size_t)got - at < CRYPT_STRIDE ? (size_t)got - at : CRYPT_STRIDE;

		if (crypt_decrypt(&o->crypt, chunk, o->in + at, len, (char *)data + done) < 0) {
			errno = EBADMSG;
			return -1;
		}
		done += len - CRYPT_TAG;
	}
	return (ssize_t)done;
}

/* Decrypts a chunk into `plain`, unless `plain` has it. Returns -1 with errno set on failure. */
static int open_chunk(struct opener *o, int fd, uint64_t chunk)
{
	ssize_t n;

	if (o->has && o->chunk == chunk)
		return 0;
	o->has = false;
	n = read_chunks(o, fd, chunk, o->plain, 1);
	if (n < 0)
		return -1;
	o->has = true;
	o->chunk = chunk;
	o->len = (size_t)n;
	return 0;
}

ssize_t opener_read(struct opener *o, int fd, uint64_t offset, void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		uint64_t chunk = (offset + done) / CRYPT_CHUNK;
		size_t within = (size_t)((offset + done) % CRYPT_CHUNK), left = len - done;

		if (within == 0 && left >= CRYPT_CHUNK) {
			size_t n = left / CRYPT_CHUNK < CRYPT_BATCH ? left / CRYPT_CHUNK
								    : CRYPT_BATCH;
			ssize_t got = read_chunks(o, fd, chunk, (char *)data + done, n);

			if (got < 0)
				return -1;
			done += (size_t)got;
			if ((size_t)got < n * CRYPT_CHUNK)
				break;
			continue;
		}
		if (open_chunk(o, fd, chunk) < 0)
			return -1;
		if (within >= o->len)
			break;
		if (left > o->len - within)
			left = o->len - within;
		memcpy((char *)data + done, o->plain + within, left);
		done += left;
		if (o->len < CRYPT_CHUNK && within + left == o->len)
			break;
	}
	return (ssize_t)done;
}
