/* The element Principal of a statement of a policy. Internal to src/s3/access. */
#ifndef S3_ACCESS_PRINCIPAL_H
#define S3_ACCESS_PRINCIPAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "s3/access/policy.h"
#include "s3/message/arena.h"

enum principal_kind {
	PRINCIPAL_ANYONE, /* all callers, including anonymous ones */
	PRINCIPAL_ACCOUNT,
	PRINCIPAL_ARN, /* a user, a role, or a session of a role */
	PRINCIPAL_CANONICAL, /* the canonical id of an account */
	PRINCIPAL_SERVICE,
	PRINCIPAL_FEDERATED, /* a user of an identity provider; never matches */
};

struct principal {
	enum principal_kind kind;
	const char *value;
};

struct principals {
	struct principal *items;
	size_t n;
};

int principals_read(
	struct principals *out, struct arena *arena, json_t *element, struct penstock_error *err);
/* Returns POLICY_ALLOW if the caller is among the principals, POLICY_DELEGATE if only the caller's
 * account is, else POLICY_NEITHER. */
enum policy_result principals_match(
	const struct principals *principals, const struct policy_caller *caller);
bool principals_have_anyone(const struct principals *principals);

#endif
