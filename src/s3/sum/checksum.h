/*
 * The checksums of S3: incremental, as text, and combined over the parts of a multipart upload.
 *
 *	struct checksum c;
 *
 *	if (checksum_init(&c, CHECKSUM_CRC64NVME, err) < 0)
 *		return -err->code;
 *	checksum_update(&c, data, len);
 *	checksum_final(&c, digest);	// checksum_size(CHECKSUM_CRC64NVME) bytes
 *	checksum_format(CHECKSUM_CRC64NVME, digest, text);
 *	checksum_release(&c);
 *
 * Digests have the byte order of the wire (CRCs and xxHashes big endian). A struct is used by one
 * thread at a time; checksum_reset() prepares it for new data and keeps its memory.
 */
#ifndef S3_SUM_CHECKSUM_H
#define S3_SUM_CHECKSUM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct buf;

/* The numbers of the CRCs are in replies of the store (s3/message/read_many.h), so they must not
 * change. */
enum checksum_kind {
	CHECKSUM_NONE,
	CHECKSUM_CRC32,
	CHECKSUM_CRC32C,
	CHECKSUM_CRC64NVME,
	CHECKSUM_SHA1,
	CHECKSUM_SHA256,
	CHECKSUM_MD5,
	CHECKSUM_SHA512,
	CHECKSUM_XXHASH64,
	CHECKSUM_XXHASH3, /* 64 bits */
	CHECKSUM_XXHASH128, /* XXH3, 128 bits */
	CHECKSUM_KIND_COUNT_
};

#define CHECKSUM_MAX_SIZE  64 /* bytes of the longest digest */
#define CHECKSUM_TEXT_SIZE 89 /* base64 and a NUL */

struct checksum {
	enum checksum_kind kind;
	uint64_t crc;
	struct evp_md_ctx_st *md; /* OpenSSL's; NULL for the CRCs and the xxHashes */
	void *xxh; /* for the xxHashes (xxh.h) */
	bool failed; /* out of memory; must be reset */
};

int checksum_init(struct checksum *c, enum checksum_kind kind, struct penstock_error *err);
void checksum_release(struct checksum *c);
/* Prepares the struct for new data. Returns -1 if out of memory; the struct can then only be reset
 * again or released. */
int checksum_reset(struct checksum *c);
void checksum_update(struct checksum *c, const void *data, size_t len);
void checksum_final(struct checksum *c, uint8_t digest[static CHECKSUM_MAX_SIZE]);

/* Computes the digest in one call. */
int checksum_of(enum checksum_kind kind, const void *data, size_t len,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err);
/* Computes the checksum of a range of a file. Fails with PENSTOCK_E_CHANGED if the file is shorter,
 * and with PENSTOCK_E_CANCELLED once `*cancel` is set; `cancel` may be NULL. */
int checksum_of_file(int fd, enum checksum_kind kind, uint64_t offset, uint64_t length,
	const atomic_int *cancel, uint8_t digest[static CHECKSUM_MAX_SIZE],
	struct penstock_error *err);

size_t checksum_size(enum checksum_kind kind);
/* Returns the name of a kind in x-amz-checksum-algorithm and <ChecksumAlgorithm>, such as
 * "CRC64NVME", or NULL for CHECKSUM_NONE. */
const char *checksum_name(enum checksum_kind kind);
/* Returns the header of a kind, such as "x-amz-checksum-crc64nvme", or NULL for CHECKSUM_NONE. */
const char *checksum_header(enum checksum_kind kind);
/* Returns the XML element of a kind, such as "ChecksumCRC64NVME", or NULL for CHECKSUM_NONE. */
const char *checksum_element(enum checksum_kind kind);
/* Finds a kind by its name, header or element, ignoring case. Returns CHECKSUM_NONE if unknown. */
enum checksum_kind checksum_find(const char *name);
bool checksum_is_crc(enum checksum_kind kind);
/* Returns true for the CRCs and the xxHashes, which take much less time than the other hashes. */
bool checksum_is_fast(enum checksum_kind kind);

/* Formats a digest as base64, with a NUL. */
void checksum_format(
	enum checksum_kind kind, const uint8_t *digest, char out[static CHECKSUM_TEXT_SIZE]);
/* Parses a digest. Returns false unless `text` is the base64 of exactly checksum_size() bytes. */
bool checksum_parse(
	enum checksum_kind kind, const char *text, uint8_t digest[static CHECKSUM_MAX_SIZE]);

/* Computes the CRC of A followed by B from both digests and the length of B; the result replaces
 * `a`. Only for the three CRCs (FULL_OBJECT checksums of multipart uploads). */
void checksum_combine(enum checksum_kind kind, uint8_t *a, const uint8_t *b, uint64_t b_len);

/* The raw CRCs: start with 0, then pass the result of each call to the next. */
uint32_t crc32_update(uint32_t crc, const void *data, size_t len);
uint32_t crc32c_update(uint32_t crc, const void *data, size_t len);
uint64_t crc64nvme_update(uint64_t crc, const void *data, size_t len);

/* Base64 (RFC 4648, padded). Both functions append, and return -1 if `out` is full. Decoding is
 * strict, and also returns -1 if the text is malformed. */
int base64_encode(struct buf *out, const void *data, size_t len);
int base64_decode(struct buf *out, const char *text, size_t len);

#endif
