/*
 * The default encryption of a bucket, as a document. Texts are as in the document, NULL if missing;
 * the caller checks them. Parser and writer are as in s3/message/messages.h.
 */
#ifndef S3_MESSAGE_ENCRYPTION_H
#define S3_MESSAGE_ENCRYPTION_H

#include <stddef.h>

#include "base/buf.h"
#include "s3/message/arena.h"

struct penstock_error;

struct s3_encryption_rule {
	const char *algorithm;
	const char *key_id;
	const char *bucket_key; /* "true" or "false" */
};

/* ServerSideEncryptionConfiguration. */
struct s3_encryption {
	struct arena arena;
	struct s3_encryption_rule *rules;
	size_t n;
};
int s3_encryption_parse(
	const char *xml, size_t len, struct s3_encryption *out, struct penstock_error *err);
void s3_encryption_write(struct buf *out, const struct s3_encryption *encryption);
void s3_encryption_release(struct s3_encryption *message);

#endif
