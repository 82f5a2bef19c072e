/*
 * Policies: JSON documents that allow or deny actions, of a bucket (with principals) or of a user.
 *
 *	struct policy *policy = NULL;
 *
 *	if (policy_parse(text, len, POLICY_OF_BUCKET, "bucket", &policy, err) < 0)
 *		... // -PENSTOCK_E_PROTOCOL: MalformedPolicy, with the message of err
 *	result = policy_evaluate(policy, &(struct policy_question){ .action = "s3:GetObject",
 *		.resource = "arn:aws:s3:::bucket/key", .caller = &caller, .values = lookup });
 *	policy_free(policy);
 *
 * A policy is immutable: threads may evaluate it at the same time. There is no I/O here; the values
 * of condition keys come from the caller.
 */
#ifndef S3_ACCESS_POLICY_H
#define S3_ACCESS_POLICY_H

#include <stdbool.h>
#include <stddef.h>

struct penstock_error;
struct policy;

/* Maximum number of bytes of a bucket policy, as AWS documents it. */
#define POLICY_BUCKET_MAX 20480
/* The value of aws:userid of anonymous senders. */
#define POLICY_ANONYMOUS_ID "anonymous"

enum policy_kind {
	POLICY_OF_BUCKET, /* names principals, and resources in its bucket */
	POLICY_OF_IDENTITY, /* the policy of a user, group, role or session: no principals */
	POLICY_OF_ROLE, /* the trust policy of a role: principals and no resources */
};

/* In ascending order: the greatest result of several policies counts. */
enum policy_result {
	POLICY_NEITHER,
	POLICY_DELEGATE, /* allows the account of the caller, which has to allow the caller */
	POLICY_ALLOW,
	POLICY_DENY,
	/* the values of a condition could not be read, or no step was left: the request must be
	 * refused */
	POLICY_FAILED,
};

/* The sender of a request. Texts may be NULL. */
struct policy_caller {
	const char *account; /* account number; NULL if anonymous or a service */
	const char *canonical_id; /* canonical id of the account */
	const char *arn; /* arn:aws:iam::ACCOUNT:root, :user/NAME, or the ARN of a session */
	const char *role_arn; /* arn:aws:iam::ACCOUNT:role/NAME of a session of a role */
	const char *service; /* such as "logging.s3.amazonaws.com" */
	bool is_root; /* the root of the account */
};

/* A condition key may have several values, such as the keys of tags. */
#define POLICY_VALUES_MAX 50
struct policy_values {
	const char *items[POLICY_VALUES_MAX];
	size_t n; /* 0 if the request does not have the key */
};

struct policy_question {
	const char *action; /* "s3:GetObject" */
	const char *resource; /* an ARN; not used by POLICY_OF_ROLE */
	const struct policy_caller *caller; /* not used by POLICY_OF_IDENTITY */
	/* Gets the values of a condition key, whose name may be in upper or lower case; the values
	 * must be valid until the end of the evaluation. Returns a negative code if they cannot be
	 * read. The callback is NULL if no key has a value. */
	int (*values)(const struct policy_question *q, const char *key, struct policy_values *out);
	void *cookie; /* for values() */
	/* Steps that the evaluation may still take, such as the comparison of a character; NULL if
	 * there is no limit. The result is POLICY_FAILED if no step is left. */
	size_t *steps;
};

/* Takes `n` of the steps of a question. Returns false if no step is left. */
static inline bool policy_spend(const struct policy_question *question, size_t n)
{
	size_t *steps = question->steps;

	if (steps)
		*steps = *steps > n ? *steps - n : 0;
	return !steps || *steps;
}

/* Reads a policy. `bucket` is NULL unless `kind` is POLICY_OF_BUCKET. The message about an invalid
 * policy uses AWS's wording. */
int policy_parse(const char *json, size_t len, enum policy_kind kind, const char *bucket,
	struct policy **out, struct penstock_error *err);
/* Adds a reference. `policy` may be NULL. */
struct policy *policy_ref(struct policy *policy);
/* Releases a reference. `policy` may be NULL. */
void policy_free(struct policy *policy);
/* Returns the greatest result of the statements of the policy, or POLICY_NEITHER if `policy` is
 * NULL. */
enum policy_result policy_evaluate(
	const struct policy *policy, const struct policy_question *question);
/* Returns true if the policy is public, as AWS defines it: if it allows something to all callers. A
 * statement with a condition on fixed networks, accounts or principals does not count as public,
 * unless anonymous senders meet the condition. */
bool policy_is_public(const struct policy *policy);
/* Returns true if a statement allows something to all callers, even if only on conditions. */
bool policy_admits_anyone(const struct policy *policy);

#endif
