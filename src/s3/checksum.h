/*
 * The checksums of S3: incremental, as text, and combined over the parts of a multipart upload.
 *
 *	struct checksum c;
 *
 *	checksum_init(&c, CHECKSUM_CRC64NVME, err);
 *	checksum_update(&c, data, len);
 *	checksum_final(&c, digest);             checksum_size(CHECKSUM_CRC64NVME) bytes
 *	checksum_format(CHECKSUM_CRC64NVME, digest, text);
 *	checksum_release(&c);
 *
 * Digests are in the byte order of the wire (CRCs big endian). A struct is one thread's at a time;
 * checksum_reset() makes it ready for the next data without giving its memory back.
 */
#ifndef S3_CHECKSUM_H
#define S3_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct penstock_error;
struct buf;

enum checksum_kind {
	CHECKSUM_NONE,
	CHECKSUM_CRC32,
	CHECKSUM_CRC32C,
	CHECKSUM_CRC64NVME,
	CHECKSUM_SHA1,
	CHECKSUM_SHA256,
	CHECKSUM_MD5, /* Content-MD5 and ETags; not an x-amz-checksum */
	CHECKSUM_KIND_COUNT_
};

#define CHECKSUM_MAX_SIZE  32 /* bytes of the longest digest */
#define CHECKSUM_TEXT_SIZE 45 /* base64 of it and a NUL */

struct checksum {
	enum checksum_kind kind;
	uint64_t crc;
	struct evp_md_ctx_st *md; /* OpenSSL's, for the hashes */
	bool failed;		  /* to be reset */
};

int checksum_init(struct checksum *c, enum checksum_kind kind, struct penstock_error *err);
void checksum_release(struct checksum *c);
/* -1: no memory; it is of no use then but to be reset again, or released. */
int checksum_reset(struct checksum *c);
void checksum_update(struct checksum *c, const void *data, size_t len);
void checksum_final(struct checksum *c, uint8_t digest[static CHECKSUM_MAX_SIZE]);

/* In one go. */
int checksum_of(enum checksum_kind kind, const void *data, size_t len,
	uint8_t digest[static CHECKSUM_MAX_SIZE], struct penstock_error *err);

size_t checksum_size(enum checksum_kind kind);
/* "CRC64NVME", as in x-amz-checksum-algorithm and <ChecksumAlgorithm>; NULL for none and MD5. */
const char *checksum_name(enum checksum_kind kind);
/* "x-amz-checksum-crc64nvme"; NULL for none and MD5. */
const char *checksum_header(enum checksum_kind kind);
/* "ChecksumCRC64NVME", as an XML element; NULL for none and MD5. */
const char *checksum_element(enum checksum_kind kind);
/* From any of those three, in any case; CHECKSUM_NONE: unknown. */
enum checksum_kind checksum_find(const char *name);
bool checksum_is_crc(enum checksum_kind kind);

/* Base64 with a NUL. */
void checksum_format(
	enum checksum_kind kind, const uint8_t *digest, char out[static CHECKSUM_TEXT_SIZE]);
/* False unless `text` is the base64 of exactly the right number of bytes. */
bool checksum_parse(
	enum checksum_kind kind, const char *text, uint8_t digest[static CHECKSUM_MAX_SIZE]);

/*
 * The CRC of A followed by B from both digests and the length of B; the result replaces `a`.
 * Only for the three CRCs (FULL_OBJECT checksums of multipart uploads).
 */
void checksum_combine(enum checksum_kind kind, uint8_t *a, const uint8_t *b, uint64_t b_len);

/* The raw CRCs: start with 0, pass the result of one call to the next. */
uint32_t crc32_update(uint32_t crc, const void *data, size_t len);
uint32_t crc32c_update(uint32_t crc, const void *data, size_t len);
uint64_t crc64nvme_update(uint64_t crc, const void *data, size_t len);

/* Base64 (RFC 4648, padded) both ways. encode: appends. decode: strict, appends; -1: malformed. */
int base64_encode(struct buf *out, const void *data, size_t len);
int base64_decode(struct buf *out, const char *text, size_t len);

#endif
