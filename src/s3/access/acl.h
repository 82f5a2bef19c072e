/*
 * Lists of grants (ACLs) of buckets and objects. A list is one line of text, which the store keeps:
 * grants "PERMISSION:GRANTEE" with blanks between them, such as
 *
 *	READ:AllUsers FULL_CONTROL:70656e73…
 *
 * A grantee is the canonical id of an account, or the name of a group. A list without grants is
 * ACL_EMPTY. NULL means that a bucket or object has no list: its owner has full control.
 *
 *	if (!acl_canned(&text, "public-read", &owners))
 *		... // there is no such list
 *	if (acl_allows(text, &(struct acl_question){ .owner = owner, .id = id,
 *		.permission = ACL_READ }))
 *		... // allowed
 *
 * A request names its grants in a document or in headers x-amz-grant-…; the caller looks up their
 * accounts, and builds the text with acl_add().
 */
#ifndef S3_ACCESS_ACL_H
#define S3_ACCESS_ACL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "s3/message/messages.h"

struct penstock_error;

/* maximum number of grants in a list, as AWS documents it */
#define ACL_GRANTS_MAX 100
#define ACL_ID_SIZE    65 /* a canonical id and NUL */
#define ACL_EMPTY      "-"

enum acl_permission {
	ACL_READ = 1,
	ACL_WRITE = 2,
	ACL_READ_ACP = 4,
	ACL_WRITE_ACP = 8,
	ACL_FULL_CONTROL = 15,
};
/* Returns the bits of a permission, or 0 if there is no permission of that name. */
unsigned acl_permission_find(const char *name);

/* --- requests ------------------------------------------------------------------------------- */

/* A grant in a request: exactly one of `id`, `uri` and `email` is set. */
struct s3_grant {
	const char *permission; /* a known name, such as "READ" */
	const char *id, *uri, *email;
};
/* The document AccessControlPolicy. */
struct s3_acl {
	struct arena arena;
	const char *owner, *list; /* not NULL after a successful s3_acl_parse() */
	struct s3_grant *grants;
	size_t n;
};
int s3_acl_parse(const char *xml, size_t len, struct s3_acl *out, struct penstock_error *err);
/* Adds the grants of a header such as x-amz-grant-read: id="…", uri="…", emailAddress="…". */
int s3_acl_parse_header(
	const char *value, const char *permission, struct s3_acl *out, struct penstock_error *err);
void s3_acl_release(struct s3_acl *message);

/* --- texts ---------------------------------------------------------------------------------- */

/* Canonical ids of the owners of an object and of its bucket; for a bucket's own list both are the
 * same. */
struct acl_owners {
	const char *owner, *bucket_owner;
};
/* Appends the grants of a canned ACL such as "public-read"; buf_failed() reports a failure. Returns
 * false if there is no canned ACL of that name. */
bool acl_canned(struct buf *out, const char *name, const struct acl_owners *owners);
/* Appends to `out` a grant for the account with the id `grantee`. */
void acl_add(struct buf *out, const char *permission, const char *grantee);
/* Appends to `out` a grant for the group `uri`. Returns false if there is no such group. */
bool acl_add_group(struct buf *out, const char *permission, const char *uri);

/* One grant of a text. */
struct acl_grant {
	char permission[16];
	char id[ACL_ID_SIZE]; /* "" for a group */
	const char *uri; /* URI of a group; NULL for an account */
};
/* Gets the next grant of `*text`, and skips malformed grants. Returns false at the end. */
bool acl_next(const char **text, struct acl_grant *out);

struct acl_question {
	const char *owner; /* canonical id */
	const char *id; /* canonical id of the sender's account; NULL if anonymous */
	enum acl_permission permission;
	bool ignore_public; /* grants to all users, and to all accounts, do not count */
};
/* Returns true if the sender has the permission. The owner can always read and replace the list. */
bool acl_allows(const char *text, const struct acl_question *question);
/* Returns true if the list grants something to all users, or to all accounts. */
bool acl_is_public(const char *text);
/* Returns true if no account other than `owner`, and no group, has a grant. */
bool acl_is_private(const char *text, const char *owner);
/* Returns true if `text` is NULL, or grants full control to `owner` and nothing else. */
bool acl_is_default(const char *text, const char *owner);

/* Writes the AccessControlPolicy. `name_of` returns the name of an account, or NULL if the account
 * is unknown. */
void acl_write(struct buf *out, const struct s3_owner *owner, const char *text,
	const char *(*name_of)(void *cookie, const char *id), void *cookie);

#endif
