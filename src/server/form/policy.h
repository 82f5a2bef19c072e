/*
 * The policy of a form: a JSON document that lists the forms that may be sent. The policy is signed
 * with an access key.
 *
 *	struct policy_field fields[] = { { "key", "a/b" }, { "acl", "private" } };
 *	struct policy_form form = { .fields = fields, .n = 2, .bucket = "b", .now_ns = now };
 *	struct policy_sizes sizes;
 *
 *	problem = policy_check(json, len, &form, &sizes, &message);
 *	if (problem)
 *		...	// reply with the message
 */
#ifndef SERVER_FORM_POLICY_H
#define SERVER_FORM_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/message/errors.h"

struct policy_field {
	const char *name; /* in lower case */
	const char *value;
};

struct policy_form {
	const struct policy_field *fields;
	size_t n;
	const char *bucket;
	int64_t now_ns;
};

/* The sizes that the file may have. */
struct policy_sizes {
	uint64_t min, max;
};

/* Returns S3_OK, S3_E_ACCESS_DENIED if the policy does not allow the form,
 * S3_E_INVALID_POLICY_DOCUMENT, or S3_E_SLOW_DOWN if out of memory; on failure `message` has the
 * text of the error. Every field must be named by a condition, except fields that AWS exempts. */
enum s3_error policy_check(const char *json, size_t len, const struct policy_form *form,
	struct policy_sizes *sizes, struct buf *message);

#endif
