/*
 * Encryption at rest in the headers of requests and replies: SSE-S3, with keys of the store, and
 * SSE-C, with the key of a customer in each request. SSE-KMS is refused.
 *
 *	sse_read(req, sub)			// any request
 *	sse_add(req, &headers)			// a new object or upload
 *	sse_of_part(req, &upload)		// or a part of an upload
 *	sse_may_read(req, object)		// reading an object
 *	reply_sse(req, object->encryption)	// in each reply
 *
 * Functions that return bool set the reply and return false on failure; sse_shares() cannot fail.
 */
#ifndef SERVER_SSE_SSE_H
#define SERVER_SSE_SSE_H

#include <stdbool.h>

#include "store/store.h"

struct buf;
struct penstock_error;
struct request;

/* Reads the headers that ask for encryption or contain keys, and wipes the keys from the request.
 * `sub` is the subresource of the request, or NULL. */
bool sse_read(struct request *req, const char *sub);
/* Selects the encryption of a new object or upload: the method that the request names, else the
 * default of the bucket. Appends the stored header that names the encryption. */
bool sse_add(struct request *req, struct buf *out);
/* Selects the encryption of a part, whose request must have the key of its upload. */
bool sse_of_part(struct request *req, const struct store_upload *upload);
/* Checks the key in a request to complete or to list an upload. */
bool sse_of_upload(struct request *req, const struct store_upload *upload);
/* Checks that the request has the key of the object, and no key if the object needs none. */
bool sse_may_read(struct request *req, const struct store_object *object);
/* Like sse_may_read(), for the source of a copy. */
bool sse_may_copy(struct request *req, const struct store_object *source);
/* Returns true if the copy that the request makes may share the bytes of its source. */
bool sse_shares(const struct request *req, const struct store_object *source);
/* If a customer's key encrypts the bytes, replaces their MD5 in `etag` with the ETag of the new
 * object or part. */
int sse_etag(struct request *req, char etag[static 33], struct penstock_error *err);
/* Adds the headers that name the encryption of an object or a part. */
void reply_sse(struct request *req, enum store_encryption encryption);

#endif
