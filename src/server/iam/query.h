/*
 * The query API of IAM and STS: a POST to "/" with a form that names an Action, signed for the
 * service "iam" or "sts". The signature covers the hash of the body, so the signature is verified
 * at the end of the body.
 */
#ifndef SERVER_IAM_QUERY_H
#define SERVER_IAM_QUERY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "s3/access/policy.h"

struct directory;
struct identity;
struct request;

/* Bytes of a form: a policy of 10,240 characters of up to 2 bytes, each percent-encoded. */
#define QUERY_MAX ((size_t)64 * 1024)

struct query {
	struct request *req;
	struct directory *directory; /* locked by directory_begin() */
	const struct identity *who;
	const char *account; /* account of the sender */
	const char *action;
	bool is_sts; /* signed for STS */
	struct buf xml; /* the result */
	bool failed; /* the reply is set */
};

/* Returns true if the request belongs to the query API. */
bool query_is(const struct request *req);
/* Begins a request of the query API: reads the body, then verifies the sender and replies. */
void query_begin(struct request *req);

/* Returns true if the sender's own policies allow the action, such as "iam:CreateUser", on the
 * resource. Otherwise sets the reply and returns false. */
bool query_may(struct query *q, const char *action, const char *resource);
/* Gets the values of the condition key `key`. `question->cookie` must be a struct query. */
int query_values(
	const struct policy_question *question, const char *key, struct policy_values *out);

/* Returns the value of a parameter, or NULL if it is missing. */
const char *query_value(struct query *q, const char *name);
/* Like query_value(), but the request fails if the value is missing. */
const char *query_need(struct query *q, const char *name);
/* Replies with an error. Returns false. */
bool query_fail(struct query *q, unsigned status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
bool query_no_memory(struct query *q);
/* Replies with the result. */
void query_succeed(struct query *q);
/* Gets a number; `out` keeps its value if there is no such parameter. Sets the reply and returns
 * false on failure. */
bool query_number(struct query *q, const char *name, uint64_t min, uint64_t max, uint64_t *out);
/* Returns a text that lives as long as the request. Sets the reply and returns NULL on failure. */
const char *query_text(struct query *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes an element with a time in seconds. */
void query_date(struct query *q, const char *name, int64_t seconds);
/* Stores a record, or removes it if `value` is NULL; takes the reference. Sets the reply and
 * returns false on failure. */
bool query_store(struct query *q, const char *name, json_t *value);

#endif
