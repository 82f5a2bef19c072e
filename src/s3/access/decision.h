/*
 * The decision on a request, from the results of all policies that apply to it.
 *
 *	allowed = access_decide(&(struct access_facts){ .identity = POLICY_ALLOW,
 *		.bucket = policy_evaluate(policy, &question), .relation = OTHER_ACCOUNT });
 */
#ifndef S3_ACCESS_DECISION_H
#define S3_ACCESS_DECISION_H

#include <stdbool.h>

#include "s3/access/policy.h"

enum access_relation {
	OWN_ACCOUNT, /* the account of the bucket's owner */
	OTHER_ACCOUNT,
	ANONYMOUS,
	AWS_SERVICE, /* such as the delivery of logs */
};

struct access_facts {
	enum access_relation relation;
	/* result of the caller's own policies; POLICY_ALLOW for the root of an account */
	enum policy_result identity;
	enum policy_result bucket; /* result of the bucket's policy */
	bool acl; /* an ACL allows the request */
	bool restricted; /* the bucket is public, and its public access is restricted */
};

/* Returns true if the request is allowed. A deny in any policy refuses the request. For a caller in
 * the account of the bucket, an allow of the caller's policies or of the bucket's policy is enough.
 * A caller in another account needs an allow of its own policies, and of the bucket's policy or an
 * ACL. */
bool access_decide(const struct access_facts *facts);

#endif
