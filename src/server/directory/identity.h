/*
 * Senders of requests. Authentication sets req->identity from the access key; a request without a
 * signature has the anonymous identity. An identity does not change: after a change of its user the
 * next request gets a new identity.
 *
 *	const struct identity *who = req->identity;
 *
 *	if (who->is_root && strcmp(who->account, bucket_account) == 0)
 *		... all is allowed ...
 */
#ifndef SERVER_DIRECTORY_IDENTITY_H
#define SERVER_DIRECTORY_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "s3/access/policy.h"
#include "s3/message/arena.h"
#include "store/store.h"

/* The account of the environment's keys, or of ROOT/credentials; also the owner of buckets and
 * objects that have no other owner. */
#define ACCOUNT_FIRST	   "000000000000"
#define ACCOUNT_FIRST_ID   "70656e73746f636b000000000000000000000000000000000000000000000000"
#define ACCOUNT_FIRST_NAME "penstock"

static inline bool account_is_number(const char *text)
{
	return strlen(text) == STORE_OWNER_SIZE - 1 &&
	       strspn(text, "0123456789") == STORE_OWNER_SIZE - 1;
}

/* Returns true if the account `number` is `owner`, which may be "" for ACCOUNT_FIRST. */
static inline bool account_is_owner(const char *number, const char *owner)
{
	return strcmp(number, *owner ? owner : ACCOUNT_FIRST) == 0;
}

struct documents;
struct request;

#define ACCOUNT_ID_SIZE 65 /* 64 hexadecimal digits and NUL */

/* Waiting and running jobs of an account (request/workers.h). */
struct account_jobs {
	struct request *first, *last; /* in the order of their arrival; NULL if no job waits */
	struct account_jobs *next; /* next account with waiting jobs */
	size_t running;
};

/* Lives as long as the server, and is constant except for the last two members. */
struct account_info {
	char number[STORE_OWNER_SIZE];
	char id[ACCOUNT_ID_SIZE]; /* the canonical id */
	char *name;
	char *email; /* NULL if the account has none */
	struct account_info *next; /* next account in the directory */
	unsigned connections; /* under the lock of the connections (request/connections.h) */
	struct account_jobs jobs[2]; /* short jobs and long jobs; under the lock of the workers */
};

enum identity_kind {
	IDENTITY_ANONYMOUS,
	IDENTITY_ROOT,
	IDENTITY_USER,
	IDENTITY_ROLE, /* an assumed role */
};

/* Policies of one kind. An unreadable policy is NULL, and denies everything. */
struct identity_documents {
	struct policy **policies;
	size_t n;
};

struct identity {
	atomic_uint refs;
	enum identity_kind kind;
	bool is_root, is_anonymous;
	bool has_policies; /* some of the documents below exist */
	bool is_temporary; /* the keys expire */
	const struct account_info *owner; /* NULL if anonymous */
	char account[STORE_OWNER_SIZE]; /* "" if anonymous */
	const char *arn; /* "arn:aws:sts::NUMBER:assumed-role/ROLE/SESSION" of an assumed role */
	/* aws:PrincipalArn: `arn`, or for an assumed role the ARN of the role */
	const char *principal_arn;
	const char *user_id; /* aws:userid */
	const char *user_name; /* aws:username; NULL unless the identity is a user */
	const char *record; /* name of the record in the directory; NULL if anonymous */
	int64_t issued_s, expires_s; /* 0 unless temporary */

	/* `own` must allow an action. `boundary` and `session` must allow it, too, if they have
	 * documents. */
	struct identity_documents own; /* policies of the user and its groups, or of the role */
	struct identity_documents boundary;
	struct identity_documents session;

	const char *access_key_id, *secret_access_key, *token; /* `token` may be NULL */
	struct arena arena; /* memory of all texts */
};

struct identity *identity_new(void);
struct identity *identity_ref(struct identity *identity);
/* Wipes the secret when the last reference is released. `identity` may be NULL. */
void identity_unref(struct identity *identity);
/* Adds the policy document `text` to `to`. Parses the document only if `shared` lacks it. Returns
 * false if out of memory. */
bool identity_add_document(struct identity *identity, struct identity_documents *to,
	const char *text, struct documents *shared);
/* Returns the result of the identity's policies: POLICY_ALLOW for the root of an account, unless
 * the policies of its session limit the root. */
enum policy_result identity_evaluate(
	const struct identity *identity, const struct policy_question *question);
/* Returns the identity in the form that policies use; the result lives as long as `who`. */
struct policy_caller identity_caller(const struct identity *who);
/* Returns true if the policies of the session do not allow the action. The action is then refused,
 * even if a bucket policy or another account grants it to the identity. */
bool identity_is_limited(const struct identity *identity, const struct policy_question *question);

#endif
