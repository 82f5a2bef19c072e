#include "transfer/get/parts_etag.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

uint64_t parts_etag_count(const char *etag)
{
	char number[8] = "";
	uint64_t parts = 0;
	size_t len = strlen(etag);

	if (len < 36 || len >= 35 + sizeof(number) || etag[0] != '"' || etag[33] != '-' ||
		etag[len - 1] != '"')
		return 0;
	memcpy(number, etag + 34, len - 35);
	return str_to_u64(number, 1, LIMIT_S3_PARTS, &parts) ? parts : 0;
}

bool parts_etag_of_one(const char *etag, uint8_t md5[static 16])
{
	char whole[36] = "";

	if (parts_etag_count(etag) != 1)
		return false;
	memcpy(whole, etag, 33);
	whole[33] = '"';
	return object_etag_md5(whole, md5);
}

int parts_etag_sum_init(
	struct parts_etag_sum *sum, uint64_t part, uint64_t count, struct penstock_error *err)
{
	*sum = (struct parts_etag_sum){.part = part, .left = part, .room = count};
	sum->digests = calloc(sum->room, sizeof(*sum->digests));
	return sum->digests ? checksum_init(&sum->md5, CHECKSUM_MD5, err) : error_memory(err);
}

static void end_part(struct parts_etag_sum *sum)
{
	uint8_t digest[CHECKSUM_MAX_SIZE];

	checksum_final(&sum->md5, digest);
	sum->failed = sum->failed || checksum_reset(&sum->md5) < 0;
	if (sum->n < sum->room)
		memcpy(sum->digests[sum->n], digest, sizeof(sum->digests[0]));
	sum->n++;
	sum->left = sum->part;
}

void parts_etag_sum_update(struct parts_etag_sum *sum, const void *data, size_t len)
{
	const char *from = data;

	while (len && !sum->failed) {
		size_t now = len < sum->left ? len : (size_t)sum->left;

		checksum_update(&sum->md5, from, now);
		from += now;
		len -= now;
		sum->left -= now;
		if (!sum->left)
			end_part(sum);
	}
}

int parts_etag_sum_final(struct parts_etag_sum *sum, char out[static MULTIPART_ETAG_SIZE],
	struct penstock_error *err)
{
	size_t n;

	if (sum->left < sum->part)
		end_part(sum);
	/* The last part may be empty, even if it is the only part. */
	if (sum->n + 1 == sum->room)
		end_part(sum);
	if (sum->failed)
		return error_memory(err);
	n = sum->n;
	sum->n = 0;
	/* More parts than expected: an ETag with this count cannot be the object's. */
	return multipart_etag(
		(const uint8_t(*)[16])sum->digests, n < sum->room ? n : sum->room, out, err);
}

void parts_etag_sum_release(struct parts_etag_sum *sum)
{
	free(sum->digests);
	checksum_release(&sum->md5);
	*sum = (struct parts_etag_sum){0};
}

int parts_etag_of_file(int fd, uint64_t size, uint64_t part, uint64_t count,
	const atomic_int *cancel, char out[static MULTIPART_ETAG_SIZE], struct penstock_error *err)
{
	_cleanup_free_ uint8_t(*digests)[16] = calloc(count, sizeof(*digests));
	int r = digests ? 0 : error_memory(err);

	for (uint64_t i = 0; r == 0 && i < count; i++) {
		uint64_t offset = i * part < size ? i * part : size;
		uint64_t length = size - offset < part ? size - offset : part;
		uint8_t digest[CHECKSUM_MAX_SIZE];

		r = checksum_of_file(fd, CHECKSUM_MD5, offset, length, cancel, digest, err);
		if (r == 0)
			memcpy(digests[i], digest, sizeof(digests[i]));
	}
	return r < 0 ? r : multipart_etag((const uint8_t(*)[16])digests, count, out, err);
}

/* Returns the size of part `number`, or HTTP_LENGTH_UNKNOWN if the store does not report it. */
static uint64_t size_of_part(struct object_ref at, uint64_t number, const atomic_int *cancel)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	s3_op_init(&op, "HEAD", at);
	s3_op_query(&op, "partNumber", text);
	s3_op_cancel(&op, cancel);
	return s3_op_perform(&op, NULL) < 0 ? HTTP_LENGTH_UNKNOWN : op.reply.content_length;
}

/* Returns true if the store reports a part whose size contradicts the assumption that all parts but
 * the last have `of->part` bytes. */
static bool is_uneven(const struct parts_etag *of)
{
	uint64_t parts = parts_etag_count(of->etag);

	for (uint64_t i = 1; i < parts; i++) {
		uint64_t left = of->size > i * of->part ? of->size - i * of->part : 0;
		uint64_t there = size_of_part(of->at, i + 1, of->cancel);

		if (there == HTTP_LENGTH_UNKNOWN)
			return false;
		if (there != (left < of->part ? left : of->part))
			return true;
	}
	return false;
}

int parts_etag_mismatch(struct penstock_error *err)
{
	return error_set(
		err, PENSTOCK_E_CORRUPT, "the bytes do not match the MD5s in the object's ETag");
}

int parts_etag_judge(const struct parts_etag *of, const char *own,
	char first[static MULTIPART_ETAG_SIZE], struct penstock_error *err)
{
	struct object_client *client = of->at.client;

	if (strcmp(own, of->etag) == 0) {
		atomic_store(&client->md5_etags, true);
		return 0;
	}
	if (is_uneven(of))
		return 0;
	if (strcmp(own, first) == 0 && !atomic_load(&client->md5_etags)) {
		atomic_store(&client->odd_etags, true);
		return 0;
	}
	memcpy(first, own, MULTIPART_ETAG_SIZE);
	return parts_etag_mismatch(err);
}

uint64_t parts_etag_part_size(
	struct object_ref at, const char *etag, uint64_t size, const atomic_int *cancel)
{
	uint64_t parts = parts_etag_count(etag), part = parts ? size_of_part(at, 1, cancel) : 0;

	if (!part || part == HTTP_LENGTH_UNKNOWN || part > size)
		return 0;
	/* An empty part may follow the full ones. */
	return multipart_count(size, part) + (size % part == 0) == parts ||
			       multipart_count(size, part) == parts
		       ? part
		       : 0;
}
