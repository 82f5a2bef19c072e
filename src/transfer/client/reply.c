/* The checksums and ETags in replies for objects. */
#include "transfer/client/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "transfer/client/google.h"

bool object_reply_encrypted(const struct http_reply *reply)
{
	const char *encryption = http_reply_header(reply, "x-amz-server-side-encryption");

	return (encryption && str_starts(encryption, "aws:kms")) ||
	       http_reply_header(reply, "x-amz-server-side-encryption-customer-algorithm");
}

bool object_reply_md5(const struct http_reply *reply, uint8_t md5[static 16])
{
	if (object_reply_encrypted(reply))
		return false;
	return google_reply_md5(reply, md5) ||
	       object_etag_md5(http_reply_header(reply, "ETag"), md5);
}

enum checksum_kind object_reply_checksum(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	static const enum checksum_kind kinds[] = {CHECKSUM_CRC64NVME, CHECKSUM_CRC32C,
		CHECKSUM_CRC32, CHECKSUM_XXHASH128, CHECKSUM_XXHASH3, CHECKSUM_XXHASH64,
		CHECKSUM_SHA512, CHECKSUM_SHA256, CHECKSUM_SHA1, CHECKSUM_MD5};
	const char *type = http_reply_header(reply, "x-amz-checksum-type");

	if (type && strcasecmp(type, "COMPOSITE") == 0)
		return CHECKSUM_NONE;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const char *text = http_reply_header(reply, checksum_header(kinds[i]));

		/* "…-3" is a checksum of three parts' checksums. */
		if (text && !strchr(text, '-') && checksum_parse(kinds[i], text, digest))
			return kinds[i];
	}
	return CHECKSUM_NONE;
}

enum checksum_kind object_reply_part_checksum(const struct http_reply *reply, const char *etag)
{
	static const enum checksum_kind kinds[] = {
		CHECKSUM_CRC64NVME, CHECKSUM_CRC32C, CHECKSUM_CRC32};

	for (size_t i = 0; strchr(etag, '-') && i < ARRAY_SIZE(kinds); i++) {
		if (http_reply_header(reply, checksum_header(kinds[i])))
			return kinds[i];
	}
	return CHECKSUM_NONE;
}

bool object_response_checksums(void)
{
	const char *wanted = getenv("AWS_RESPONSE_CHECKSUM_VALIDATION");

	return !wanted || strcasecmp(wanted, "when_required") != 0;
}

enum checksum_kind object_reply_digest(
	const struct http_reply *reply, uint8_t digest[static CHECKSUM_MAX_SIZE])
{
	enum checksum_kind kind = object_reply_checksum(reply, digest);

	if (kind == CHECKSUM_NONE && object_response_checksums() && object_reply_md5(reply, digest))
		kind = CHECKSUM_MD5;
	return kind;
}
