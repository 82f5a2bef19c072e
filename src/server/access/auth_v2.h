/*
 * Signature Version 2, HMAC-SHA1: presigned URLs (AWSAccessKeyId, Expires and Signature in the
 * query), the only kind that s3cmd makes; "Authorization: AWS KEY:SIGNATURE"; and forms of old
 * uploaders. AWS's "Signing and authenticating REST requests (Signature Version 2)" defines all
 * three. The signature covers neither the body nor most headers, so version 4 is better.
 */
#ifndef SERVER_ACCESS_AUTH_V2_H
#define SERVER_ACCESS_AUTH_V2_H

#include <stdbool.h>

struct request;

/* Returns true if the URL or a header has a signature of version 2. */
bool auth_v2_is(const struct request *req);
/* Verifies the signature, and sets the identity. Sets the reply and returns false on failure. */
bool auth_v2_verify(struct request *req);
/* Like auth_v2_verify(), for a form; `policy` is the field of that name. */
bool auth_v2_verify_form(struct request *req, const char *access_key_id, const char *signature,
	const char *policy, const char *token);

#endif
