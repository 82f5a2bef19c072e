/* The conditions of a statement of a policy. Internal to src/s3/access. */
#ifndef S3_ACCESS_CONDITION_H
#define S3_ACCESS_CONDITION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "s3/access/pattern.h"
#include "s3/access/policy.h"

struct operator;

enum quantifier { OF_KEY, FOR_ANY_VALUE, FOR_ALL_VALUES };

/* One key with its values: {"StringLike": {"s3:prefix": ["a/", "b/"]}}. */
struct condition {
	const struct operator* op;
	enum quantifier quantifier;
	bool if_exists;
	const char *key;
	struct pattern *values;
	size_t n;
};

struct conditions {
	struct condition *items;
	size_t n;
};

/* Reads the element Condition. `flags` is as in pattern_read(). */
int conditions_read(struct conditions *out, struct arena *arena, json_t *element,
	enum policy_kind kind, unsigned flags, struct penstock_error *err);
/* Returns 1 if all conditions hold, 0 if a condition does not hold, or a negative code. `denies` is
 * true if the conditions belong to a statement that denies. */
int conditions_hold(
	const struct conditions *conditions, const struct policy_question *question, bool denies);
/* Returns true if a condition limits the senders to fixed values of a key that AWS's definition of
 * a public policy lists. */
bool conditions_limit_senders(const struct conditions *conditions);

#endif
