/*
 * Decides if the sender of a request may do what the request asks for: by the policy of the bucket,
 * its public access block, the ACLs, and the identity of the sender.
 *
 *	if (!access_check(req, "s3:GetObject"))
 *		return;		// the reply is set
 *	if (!access_check_subject(req, "s3:GetObject", &(struct access_subject){
 *		.bucket = from->bucket, .key = from->key }))
 *		return;
 *
 * If the store has only one account, a request of its root in a bucket without a policy costs one
 * lookup in a table in memory.
 */
#ifndef SERVER_ACCESS_ACCESS_H
#define SERVER_ACCESS_ACCESS_H

#include <stdbool.h>

struct request;

/* The bucket, object or version to which an action applies. */
struct access_subject {
	const char *bucket; /* "" for the service */
	const char *key; /* NULL for the bucket itself */
	const char *version; /* NULL if the request names no version */
	/* tags in the request's document, as a URL query; NULL to use x-amz-tagging */
	const char *tags;
	bool locks; /* use the next members instead of the headers x-amz-object-lock-... */
	/* values in the request's document; NULL if the request has no document */
	const char *lock_mode, *lock_until, *lock_hold;
};

/* ACCESS_DENIED: a statement denies the action; ACCESS_REFUSED: no statement allows the action. */
enum access_result {
	ACCESS_REFUSED,
	ACCESS_DENIED,
	ACCESS_MISSING, /* there is no such bucket */
	ACCESS_ALLOWED,
	ACCESS_FAILED
};

/* Forgets the object that earlier decisions have read. Decisions on the same bucket, key and
 * version share one object. These names are compared by address, not by text: call this function
 * between two keys of a list, because both keys may be at the same address. */
void access_forget(struct request *req);
/* Decides if an action on any subject is allowed, and sets no reply. */
enum access_result access_of(
	struct request *req, const char *action, const struct access_subject *subject);
/* Returns true if the sender may list the key: only such a sender may learn that the key is
 * missing. */
bool access_may_list(struct request *req, const struct access_subject *subject);
/* Decides if an action is allowed. Otherwise sets the reply and returns false. */
bool access_check_subject(
	struct request *req, const char *action, const struct access_subject *subject);
/* Like access_check_subject(), for the bucket or the object that the request names. `action` is the
 * name for objects without a version; if the request names a version, the name for versions is
 * used. */
bool access_check(struct request *req, const char *action);
/* Checks the sender of an operation that checks each of its subjects later. Refuses an anonymous
 * sender unless the bucket allows some action to everyone, even if only under conditions. Refuses
 * any other known sender if the bucket is missing. Sets the reply and returns false after a
 * refusal. */
bool access_check_sender(struct request *req);
/* Returns true if a deletion under these conditions, each of which may be NULL, needs the right to
 * read, too, as with AWS: the reply shows if the object meets the conditions. `etag` is the value
 * of If-Match or If-None-Match. */
bool access_needs_read(const char *etag, const char *size, const char *modified);
/* Checks req->action, and the actions that headers of the request ask for in addition: tags,
 * grants, locks and ownership of a new object or bucket, a replica, the bypass of a lock, and the
 * read of an object that is changed under a condition. Sets the reply and returns false on
 * failure. */
bool access_check_request(struct request *req);
/* Checks an action in addition to the action of the request, such as s3:PutObjectTagging with a new
 * object. If `needed`, a statement must allow the action; otherwise only a statement that denies it
 * refuses the request. Sets the reply and returns false on failure. */
bool access_check_implied(struct request *req, const char *action, bool needed);
/* Repeats access_check_request(), with the current key and policies, after a body that the sender
 * may have held back for a long time, or after a wait in a queue. Sets the reply and returns false
 * on failure. */
bool access_check_again(struct request *req);

#endif
