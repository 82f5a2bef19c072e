#include "server/access/owner.h"

#include <string.h>

#include "server/directory/directory.h"
#include "server/directory/identity.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

struct s3_owner owner_of_account(struct request *req, const char *number)
{
	const struct account_info *account = directory_account(req->server->directory, number);

	return account ? (struct s3_owner){account->id, account->name}
		       : (struct s3_owner){"", number};
}

struct s3_owner owner_of_bucket(struct request *req, const struct store_bucket *bucket)
{
	return owner_of_account(req, bucket->owner);
}

const char *owner_number(const char *headers, size_t len)
{
	const char *number = store_header_find(headers, len, STORE_OWNER_HEADER);

	return number ? number : ACCOUNT_FIRST;
}

struct s3_owner owner_of_headers(struct request *req, const char *headers, size_t len)
{
	return owner_of_account(req, owner_number(headers, len));
}

struct s3_owner owner_of_object(struct request *req, const struct store_object *object)
{
	return owner_of_headers(req, object->headers, object->headers_len);
}

bool owner_of_request_bucket(struct request *req, struct store_bucket *bucket, struct s3_owner *out)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;

	if (!reply_unless_stored(
		    req, store_bucket_get(req->server->store, req->bucket, bucket, &err), &err))
		return false;
	*out = owner_of_bucket(req, bucket);
	return true;
}

bool owner_is_sender(const struct request *req, const struct store_bucket *bucket)
{
	return account_is_owner(req->identity->account, bucket->owner);
}

bool owner_is_expected(struct request *req, const char *name, const char *bucket)
{
	const char *account = request_header(req, name);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	struct store_bucket found;
	enum store_status status;

	if (!account)
		return true;
	if (!account_is_number(account))
		return reply_errorf(req, S3_E_INVALID_BUCKET_OWNER,
			"The value of %s must be the number of an account, which has 12 digits",
			name);
	status = store_bucket_get(req->server->store, bucket, &found, &err);
	if (status == STORE_NO_SUCH_BUCKET) /* the operation replies, or creates the bucket */
		return true;
	return reply_unless_stored(req, status, &err) &&
	       (account_is_owner(account, found.owner) || reply_error(req, S3_E_ACCESS_DENIED));
}
