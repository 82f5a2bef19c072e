/* The accounts that own buckets and objects. */
#ifndef SERVER_ACCESS_OWNER_H
#define SERVER_ACCESS_OWNER_H

#include <stdbool.h>

#include "base/buf.h"
#include "s3/message/messages.h"

struct request;
struct store_bucket;
struct store_object;

/* Return the owner's id and name for replies. `number` may be "", which is ACCOUNT_FIRST. The
 * strings live as long as the server if the account is in the directory of accounts
 * (directory.h). For an unknown account the id is "" and the name is `number` itself. */
struct s3_owner owner_of_account(struct request *req, const char *number);
struct s3_owner owner_of_bucket(struct request *req, const struct store_bucket *bucket);
/* Returns the number of the account that made the object or upload with these stored headers. */
const char *owner_number(const char *headers, size_t len);
struct s3_owner owner_of_object(struct request *req, const struct store_object *object);
/* Like owner_of_object(), for the stored headers of an object or an upload. */
struct s3_owner owner_of_headers(struct request *req, const char *headers, size_t len);
/* Gets the request's bucket and its owner, whose strings may be in `bucket`. Sets the reply and
 * returns false on failure. */
bool owner_of_request_bucket(
	struct request *req, struct store_bucket *bucket, struct s3_owner *out);
/* Returns true if the sender belongs to the account that owns the bucket. */
bool owner_is_sender(const struct request *req, const struct store_bucket *bucket);

/* Compares the owner of `bucket` with the number in the header `name`, if the request has this
 * header. Sets the reply and returns false on failure. */
bool owner_is_expected(struct request *req, const char *name, const char *bucket);

#endif
