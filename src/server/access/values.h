/* The values of condition keys for a request: aws:SourceIp, s3:prefix, s3:ExistingObjectTag/… */
#ifndef SERVER_ACCESS_VALUES_H
#define SERVER_ACCESS_VALUES_H

#include <stddef.h>

#include "s3/access/policy.h"

struct access_subject;
struct arena;
struct request;
struct s3_tagging;
struct store_object;

/* The cookie of a struct policy_question whose callback is values_of_request(). */
struct values_source {
	struct request *req;
	const struct access_subject *subject;
	const struct policy_caller *caller;
	const char *owner; /* the account of the bucket */
	struct store_object **object; /* gets the object of the subject if the decision reads it */
	/* memory of the values: a policy may ask for long values many times */
	struct arena *memory;
};

/* Gets the values of the condition key `key`, which live as long as the request and `memory`. */
int values_of_request(
	const struct policy_question *question, const char *key, struct policy_values *out);
/* Adds the policy steps of one more decision (LIMIT_POLICY_STEPS_KEY) to the remaining steps of the
 * request, up to LIMIT_POLICY_STEPS. Returns the counter of the remaining steps. */
size_t *values_steps(struct request *req);

#endif
