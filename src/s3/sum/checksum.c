#include "s3/sum/checksum.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "s3/ascii.h"
#include "s3/sum/crc.h"
#include "s3/sum/digest.h"
#include "s3/sum/xxh.h"

#define FILE_BLOCK ((size_t)256 * KIB)

static const struct {
	const char *name;
	const char *header;
	const char *element;
	const char *openssl; /* NULL for CRCs and xxHashes */
	size_t size;
	uint64_t polynomial; /* polynomial of a CRC; 0 for hashes */
} kinds[CHECKSUM_KIND_COUNT_] = {
	[CHECKSUM_CRC32] = {"CRC32", "x-amz-checksum-crc32", "ChecksumCRC32", NULL, 4,
		CRC32_POLYNOMIAL},
	[CHECKSUM_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", "ChecksumCRC32C", NULL, 4,
		CRC32C_POLYNOMIAL},
	[CHECKSUM_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", "ChecksumCRC64NVME", NULL,
		8, CRC64NVME_POLYNOMIAL},
	[CHECKSUM_SHA1] = {"SHA1", "x-amz-checksum-sha1", "ChecksumSHA1", "SHA1", 20, 0},
	[CHECKSUM_SHA256] = {"SHA256", "x-amz-checksum-sha256", "ChecksumSHA256", "SHA256", 32, 0},
	[CHECKSUM_MD5] = {"MD5", "x-amz-checksum-md5", "ChecksumMD5", "MD5", 16, 0},
	[CHECKSUM_SHA512] = {"SHA512", "x-amz-checksum-sha512", "ChecksumSHA512", "SHA512", 64, 0},
	[CHECKSUM_XXHASH64] = {"XXHASH64", "x-amz-checksum-xxhash64", "ChecksumXXHASH64", NULL, 8,
		0},
	[CHECKSUM_XXHASH3] = {"XXHASH3", "x-amz-checksum-xxhash3", "ChecksumXXHASH3", NULL, 8, 0},
	[CHECKSUM_XXHASH128] = {"XXHASH128", "x-amz-checksum-xxhash128", "ChecksumXXHASH128", NULL,
		16, 0},
};

/* Fetched once, because in OpenSSL 3 a fetch takes longer than the hash of a small object. */
static const EVP_MD *fetched[CHECKSUM_KIND_COUNT_];
/* Keeps OpenSSL from registering its exit handler, unless the process uses OpenSSL already. The
 * handler waits for locks; a child process that is forked while a thread holds such a lock would
 * never end. */
static __attribute__((constructor)) void leave_out_exit_handler(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static pthread_once_t fetch_once = PTHREAD_ONCE_INIT;

static void fetch_all(void)
{
	for (int k = 0; k < CHECKSUM_KIND_COUNT_; k++) {
		if (!kinds[k].openssl)
			continue;
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
		fetched[k] = EVP_MD_fetch(NULL, kinds[k].openssl, NULL);
#else
		fetched[k] = EVP_get_digestbyname(kinds[k].openssl);
#endif
	}
}

const EVP_MD *digest_md(enum checksum_kind kind)
{
	pthread_once(&fetch_once, fetch_all);
	return fetched[kind];
}

static bool is_kind(enum checksum_kind kind)
{
	return kind > CHECKSUM_NONE && kind < CHECKSUM_KIND_COUNT_;
}

int checksum_init(struct checksum *c, enum checksum_kind kind, struct penstock_error *err)
{
	*c = (struct checksum){.kind = is_kind(kind) ? kind : CHECKSUM_NONE};
	if (c->kind == CHECKSUM_NONE || checksum_is_crc(kind))
		return 0;
	if (!kinds[kind].openssl) {
		c->xxh = xxh_new(kind);
		return c->xxh ? 0 : error_memory(err);
	}
	const EVP_MD *md = digest_md(kind);

	if (!md)
		return error_set(err, PENSTOCK_E_UNSUPPORTED,
			"the OpenSSL of this machine has no %s, which S3 requires",
			kinds[kind].openssl);
	c->md = EVP_MD_CTX_new();
	if (!c->md || EVP_DigestInit_ex(c->md, md, NULL) != 1) {
		checksum_release(c);
		return error_memory(err);
	}
	return 0;
}

void checksum_release(struct checksum *c)
{
	EVP_MD_CTX_free(c->md);
	free(c->xxh);
	*c = (struct checksum){0};
}

int checksum_reset(struct checksum *c)
{
	c->crc = 0;
	if (c->xxh)
		xxh_reset(c->kind, c->xxh);
	c->failed = c->md && EVP_DigestInit_ex(c->md, NULL, NULL) != 1;
	return c->failed ? -1 : 0;
}

void checksum_update(struct checksum *c, const void *data, size_t len)
{
	if (len == 0)
		return;
	switch (c->kind) {
	case CHECKSUM_CRC32:
		c->crc = crc32_update((uint32_t)c->crc, data, len);
		break;
	case CHECKSUM_CRC32C:
		c->crc = crc32c_update((uint32_t)c->crc, data, len);
		break;
	case CHECKSUM_CRC64NVME:
		c->crc = crc64nvme_update(c->crc, data, len);
		break;
	default:
		if (c->xxh)
			xxh_update(c->kind, c->xxh, data, len);
		else if (c->md && !c->failed)
			EVP_DigestUpdate(c->md, data, len);
	}
}

static void put_crc(enum checksum_kind kind, uint64_t crc, uint8_t *digest)
{
	if (kinds[kind].size == 4) {
		uint32_t wire = htobe32((uint32_t)crc);

		memcpy(digest, &wire, 4);
	} else {
		uint64_t wire = htobe64(crc);

		memcpy(digest, &wire, 8);
	}
}

static uint64_t get_crc(enum checksum_kind kind, const uint8_t *digest)
{
	uint64_t value = 0;

	for (size_t i = 0; i < kinds[kind].size; i++)
		value = value << 8 | digest[i];
	return value;
}

void checksum_final(struct checksum *c, uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	memset(digest, 0, CHECKSUM_MAX_SIZE);
	if (c->md && !c->failed)
		EVP_DigestFinal_ex(c->md, digest, NULL);
	else if (c->xxh)
		xxh_final(c->kind, c->xxh, digest);
	else if (checksum_is_crc(c->kind))
		put_crc(c->kind, c->crc, digest);
}

int checksum_of(enum checksum_kind kind, const void *data, size_t len,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err)
{
	struct checksum c;
	int rc = checksum_init(&c, kind, err);

	if (rc < 0)
		return rc;
	checksum_update(&c, data, len);
	checksum_final(&c, digest);
	checksum_release(&c);
	return 0;
}

int checksum_of_file(int fd, enum checksum_kind kind, uint64_t offset, uint64_t length,
	const atomic_int *cancel, uint8_t digest[static CHECKSUM_MAX_SIZE],
	struct penstock_error *err)
{
	_cleanup_free_ char *block = malloc(FILE_BLOCK);
	_cleanup_(checksum_release) struct checksum sum = {0};
	int r = block ? checksum_init(&sum, kind, err) : error_memory(err);

	for (uint64_t end = offset + length; r == 0 && offset < end;) {
		size_t want = end - offset < FILE_BLOCK ? (size_t)(end - offset) : FILE_BLOCK;
		ssize_t n = fs_pread_all(fd, block, want, (off_t)offset);

		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		if (n < 0)
			return error_errno(err, errno, "cannot read the file");
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED,
				"the file became shorter while it was read");
		checksum_update(&sum, block, want);
		offset += want;
	}
	if (r == 0)
		checksum_final(&sum, digest);
	return r;
}

size_t checksum_size(enum checksum_kind kind)
{
	return is_kind(kind) ? kinds[kind].size : 0;
}

const char *checksum_name(enum checksum_kind kind)
{
	return is_kind(kind) ? kinds[kind].name : NULL;
}

const char *checksum_header(enum checksum_kind kind)
{
	return is_kind(kind) ? kinds[kind].header : NULL;
}

const char *checksum_element(enum checksum_kind kind)
{
	return is_kind(kind) ? kinds[kind].element : NULL;
}

enum checksum_kind checksum_find(const char *name)
{
	size_t n = strlen(name);

	for (int k = 1; k < CHECKSUM_KIND_COUNT_; k++) {
		if (ascii_equal(name, n, kinds[k].name) || ascii_equal(name, n, kinds[k].header) ||
			ascii_equal(name, n, kinds[k].element))
			return (enum checksum_kind)k;
	}
	return CHECKSUM_NONE;
}

bool checksum_is_crc(enum checksum_kind kind)
{
	return is_kind(kind) && kinds[kind].polynomial != 0;
}

bool checksum_is_fast(enum checksum_kind kind)
{
	return is_kind(kind) && !kinds[kind].openssl;
}

/* Decodes base64 strictly: padded, no other characters, unused bits zero. Returns the number of
 * bytes, or -1 if the text is malformed. `out` has room for n / 4 * 3. */
static int64_t decode64(uint8_t *out, const char *text, size_t n)
{
	uint8_t *start = out, three[3], again[5];

	if (n % 4 != 0)
		return -1;
	for (size_t i = 0; i < n; i += 4) {
		const char *four = text + i;
		size_t pad = i + 4 == n ? (size_t)(four[3] == '=') + (four[2] == '=') : 0;

		/* OpenSSL accepts malformed text, too, so encode the result again and compare. */
		if (EVP_DecodeBlock(three, (const unsigned char *)four, 4) != 3 ||
			EVP_EncodeBlock(again, three, (int)(3 - pad)) != 4 ||
			memcmp(again, four, 4) != 0)
			return -1;
		memcpy(out, three, 3 - pad);
		out += 3 - pad;
	}
	return out - start;
}

int base64_encode(struct buf *out, const void *data, size_t len)
{
	char *room = buf_reserve(out, (len + 2) / 3 * 4);

	if (!room)
		return -1;
	buf_grown(out, (size_t)EVP_EncodeBlock((unsigned char *)room, data, (int)len));
	return 0;
}

int base64_decode(struct buf *out, const char *text, size_t len)
{
	char *room = buf_reserve(out, len / 4 * 3);
	int64_t n = room ? decode64((uint8_t *)room, text, len) : -1;

	if (n < 0)
		return -1;
	buf_grown(out, (size_t)n);
	return 0;
}

void checksum_format(
	enum checksum_kind kind, const uint8_t *digest, char out[static CHECKSUM_TEXT_SIZE])
{
	EVP_EncodeBlock((unsigned char *)out, digest, (int)checksum_size(kind));
}

bool checksum_parse(
	enum checksum_kind kind, const char *text, uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	uint8_t bytes[CHECKSUM_MAX_SIZE + 3];
	size_t size = checksum_size(kind);
	size_t n = strlen(text);

	if (size == 0 || n != (size + 2) / 3 * 4 || decode64(bytes, text, n) != (int64_t)size)
		return false;
	memcpy(digest, bytes, size);
	return true;
}

void checksum_combine(enum checksum_kind kind, uint8_t *a, const uint8_t *b, uint64_t b_len)
{
	if (!checksum_is_crc(kind))
		return;
	put_crc(kind,
		crc_combine(kinds[kind].polynomial, (int)(8 * kinds[kind].size), get_crc(kind, a),
			get_crc(kind, b), b_len),
		a);
}
