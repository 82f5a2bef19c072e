/* Creates, checks, lists and deletes buckets. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/message/messages.h"
#include "transfer/client/internal.h"

int bucket_create(struct object_client *client, const char *bucket, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(buf_release) struct buf body = BUF_INIT(LIMIT_XML_BODY);
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	s3_op_init(&op, "PUT", object_at(client, bucket, NULL));
	if ((client->aws && strcmp(client->settings.region, "us-east-1") != 0) ||
		(client->google && strcmp(client->settings.region, "auto") != 0))
		s3_create_bucket_write(&body, client->settings.region);
	s3_op_body(&op, body.data, body.len);
	r = s3_op_perform(&op, &own);
	if (r == 0 || op.error == S3_E_BUCKET_ALREADY_OWNED_BY_YOU)
		return 0;
	/* Some stores report "exists" also for a bucket of the caller. */
	if (op.error == S3_E_BUCKET_ALREADY_EXISTS && bucket_head(client, bucket, NULL) == 0)
		return 0;
	return error_move(err, &own);
}

int bucket_head(struct object_client *client, const char *bucket, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};

	s3_op_init(&op, "HEAD", object_at(client, bucket, NULL));
	return s3_op_perform(&op, err);
}

int bucket_delete(struct object_client *client, const char *bucket, struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_error_ struct penstock_error own = PENSTOCK_ERROR_INIT;
	int r;

	s3_op_init(&op, "DELETE", object_at(client, bucket, NULL));
	r = s3_op_perform(&op, &own);
	/* An earlier attempt, whose reply was lost, may have deleted the bucket. */
	if (r < 0 && own.code == PENSTOCK_E_NOT_FOUND && op.reply.sent_before)
		return 0;
	if (r < 0 && op.error == S3_E_BUCKET_NOT_EMPTY)
		return error_set(err, PENSTOCK_E_EXISTS,
			"cannot delete bucket '%s': it is not empty; remove its objects first",
			bucket);
	return r < 0 ? error_move(err, &own) : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct s3_bucket *)a)->name, ((const struct s3_bucket *)b)->name);
}

int bucket_list(struct object_client *client,
	int (*fn)(void *cookie, const struct object_info *info), void *cookie,
	struct penstock_error *err)
{
	_cleanup_(s3_op_release) struct s3_op op = {0};
	_cleanup_(s3_buckets_release) struct s3_buckets buckets = {0};
	int r;

	s3_op_init(&op, "GET", object_at(client, NULL, NULL));
	r = s3_op_read(&op, s3_buckets_parse, &buckets, err);
	if (r < 0)
		return r;
	/* Some stores list buckets in order of creation. */
	if (buckets.n)
		qsort(buckets.buckets, buckets.n, sizeof(*buckets.buckets), by_name);
	for (size_t i = 0; i < buckets.n; i++) {
		const struct object_info info = {.key = (char *)buckets.buckets[i].name,
			.modified_ns = buckets.buckets[i].created_ns};

		if (fn(cookie, &info) != 0)
			break;
	}
	return 0;
}
