/*
 * Lists of grants (ACLs) in requests, and the owners of new objects.
 *
 *	struct grants_scope scope = GRANTS_SCOPE_INIT;
 *
 *	if (grants_begin(req, &scope) &&
 *		grants_of_request(req, &scope, scope.bucket_owner.id, &text))
 *		... // `text` is NULL, or the list to be kept
 *	grants_end(&scope);
 */
#ifndef SERVER_ACCESS_GRANTS_H
#define SERVER_ACCESS_GRANTS_H

#include <stdbool.h>

#include "base/buf.h"
#include "s3/message/messages.h"

struct access_settings;
struct request;
struct store_object;

/* Names of the stored header of an object, and of the configuration of a bucket, that have the list
 * of grants (s3/access/acl.h). Both are missing if the only grant gives the owner full control. */
#define ACL_HEADER ":acl"
#define ACL_CONFIG "acl"

/* The bucket of a request. */
struct grants_scope {
	struct access_settings *settings;
	struct s3_owner bucket_owner;
	bool enforced; /* lists of grants do not count: the bucket's owner owns all objects */
};
#define GRANTS_SCOPE_INIT                                                                          \
	{                                                                                          \
		0                                                                                  \
	}
/* Reads the settings of the request's bucket. Sets the reply and returns false if there is no such
 * bucket, or if its settings cannot be read. */
bool grants_begin(struct request *req, struct grants_scope *out);
void grants_end(struct grants_scope *scope);

/* Returns the owner of an object. */
struct s3_owner grants_owner_of(
	struct request *req, const struct grants_scope *scope, const struct store_object *object);

/* --- the decision ---------------------------------------------------------------------------- */

struct access_subject;
/* Result of the ACLs that apply to an action. */
struct grants_answer {
	bool allows; /* a grant allows the action */
	/* The object does not belong to the account of the bucket: the policy of the bucket can
	 * only deny an action on the object, and the bucket's account needs a grant. */
	bool is_foreign;
	bool is_owner; /* the sender belongs to the account that owns the object */
};
/* Reads the object of a subject, unless `*object` has it already, so that all parts of a decision
 * see the same object. *found is false if the object is missing or a delete marker. Returns a
 * negative code if the object cannot be read. */
int grants_read(struct request *req, const struct access_subject *subject,
	struct store_object **object, bool *found);
/* Checks an action against the ACLs of the bucket and of the object; `object` is as for
 * grants_read(). Returns a negative code if the object cannot be read. */
int grants_ask(struct request *req, const struct access_settings *settings, const char *action,
	const struct access_subject *subject, struct store_object **object,
	struct grants_answer *out);

/* Returns true if the request has x-amz-acl or x-amz-grant-... */
bool grants_are_asked(const struct request *req);
/* Gets the list of a new bucket. `*text` is NULL if no list is to be kept. Sets the reply and
 * returns false on failure. */
bool grants_of_new_bucket(struct request *req, const char **text);
/* Gets the list that a request for ?acl sets, for the owner with the id `owner`; the text lives as
 * long as the request. `*text` is NULL if no list is to be kept. Sets the reply and returns false
 * on failure. */
bool grants_of_request(struct request *req, const struct grants_scope *scope, const char *owner,
	const char **text);

/* Appends the owner and the list of a new object to its stored headers. Sets the reply and returns
 * false on failure. */
bool grants_add(struct request *req, struct buf *out);

#endif
