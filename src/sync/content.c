#include "sync/content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <isa-l/crc64.h>
#include <openssl/evp.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/banned.h"

#define READ_STEP (1 * MIB)

typedef void (*block_fn)(void *cookie, const unsigned char *data, size_t len);

static int each_block(const atomic_int *cancel, int fd, uint64_t size, block_fn fn, void *cookie,
	struct penstock_error *err)
{
	_cleanup_free_ unsigned char *block = malloc(READ_STEP);
	uint64_t at = 0;

	if (!block)
		return error_memory(err);
	while (at < size) {
		size_t want = size - at < READ_STEP ? (size_t)(size - at) : READ_STEP;
		ssize_t n = fs_pread_all(fd, block, want, (off_t)at);

		if (n < 0)
			return error_errno(err, errno, "cannot read the file");
		if ((size_t)n < want)
			return error_set(err, PENSTOCK_E_CHANGED, "the file got shorter");
		if (cancel && atomic_load(cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "cancelled");
		fn(cookie, block, want);
		at += want;
	}
	return 0;
}

static void add_crc(void *cookie, const unsigned char *data, size_t len)
{
	uint64_t *sum = cookie;

	*sum = crc64_ecma_refl(*sum, data, len);
}

int content_crc64(
	const atomic_int *cancel, int fd, uint64_t size, uint64_t *crc, struct penstock_error *err)
{
	uint64_t sum = 0;
	int rc = each_block(cancel, fd, size, add_crc, &sum, err);

	if (rc == 0)
		*crc = sum;
	return rc;
}

static void add_md5(void *cookie, const unsigned char *data, size_t len)
{
	EVP_DigestUpdate(cookie, data, len);
}

int content_md5(const atomic_int *cancel, int fd, uint64_t size, unsigned char md5[static 16],
	struct penstock_error *err)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int rc = 0;

	if (!ctx || !EVP_DigestInit_ex(ctx, EVP_md5(), NULL))
		rc = error_memory(err);
	if (rc == 0)
		rc = each_block(cancel, fd, size, add_md5, ctx, err);
	if (rc == 0 && !EVP_DigestFinal_ex(ctx, md5, NULL))
		rc = error_memory(err);
	EVP_MD_CTX_free(ctx);
	return rc;
}
