/*
 * The documents of the settings that limit access to a bucket. Texts are as in the document, NULL
 * if missing; the caller checks them.
 *
 *	struct s3_access_block block = {0};
 *
 *	if (s3_access_block_parse(body.data, body.len, &block, err) < 0)
 *		return -err->code;
 *	... block.block_acls ...
 *	s3_access_block_release(&block);
 *
 * Parsers and writers are as in s3/message/messages.h.
 */
#ifndef S3_MESSAGE_ACCESS_H
#define S3_MESSAGE_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "s3/message/arena.h"

struct penstock_error;

/* PublicAccessBlockConfiguration. */
struct s3_access_block {
	struct arena arena;
	const char *block_acls, *ignore_acls, *block_policy, *restrict_buckets;
};
int s3_access_block_parse(
	const char *xml, size_t len, struct s3_access_block *out, struct penstock_error *err);
void s3_access_block_write(struct buf *out, const struct s3_access_block *block);
void s3_access_block_release(struct s3_access_block *message);

struct s3_ownership_rule {
	const char *ownership;
};
/* OwnershipControls. */
struct s3_ownership {
	struct arena arena;
	struct s3_ownership_rule *rules; /* at least one in a parsed document */
	size_t n;
};
int s3_ownership_parse(
	const char *xml, size_t len, struct s3_ownership *out, struct penstock_error *err);
void s3_ownership_write(struct buf *out, const char *ownership);
void s3_ownership_release(struct s3_ownership *message);

/* PolicyStatus. */
void s3_policy_status_write(struct buf *out, bool is_public);

#endif
