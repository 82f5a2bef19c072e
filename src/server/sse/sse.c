#include "server/sse/sse.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/sum/checksum.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

#define METHOD	       "x-amz-server-side-encryption"
#define CUSTOMER       METHOD "-customer-"
#define COPY_CUSTOMER  "x-amz-copy-source-server-side-encryption-customer-"
#define PROVIDED_KEYS  "Requests specifying Server Side Encryption with Customer provided keys must "
#define NOT_APPLICABLE "The encryption parameters are not applicable to this object."
#define NOT_THE_SAME   "The provided encryption parameters did not match the ones used originally."

/* --- headers --------------------------------------------------------------------------------- */

static const char *header_of(const struct request *req, const char *prefix, const char *name)
{
	char full[80];

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	return request_header(req, full);
}

/* Overwrites a key in the request: no later reader of the headers needs it. */
static void wipe_key(struct request *req, const char *prefix)
{
	const char *key = header_of(req, prefix, "key");

	if (key)
		explicit_bzero((char *)key, strlen(key));
}

static bool has_customer(const struct request *req, const char *prefix)
{
	return header_of(req, prefix, "algorithm") || header_of(req, prefix, "key") ||
	       header_of(req, prefix, "key-MD5");
}

static bool decode_key(struct request *req, const char *text, struct store_key *out)
{
	_cleanup_(buf_release) struct buf key = BUF_INIT(2 * sizeof(out->bytes));
	bool valid = strlen(text) == 44 && base64_decode(&key, text, 44) == 0 &&
		     key.len == sizeof(out->bytes);

	if (valid)
		memcpy(out->bytes, key.data, sizeof(out->bytes));
	if (key.data)
		explicit_bzero(key.data, key.len);
	if (valid)
		return true;
	return key.failure == BUF_NO_MEMORY
		       ? reply_error(req, S3_E_SLOW_DOWN)
		       : reply_errorf(req, S3_E_INVALID_ARGUMENT,
				 "The secret key was invalid for the specified algorithm.");
}

/* Reads the three headers of a key. */
static bool read_customer(
	struct request *req, const char *prefix, struct store_key *out, char md5_out[static 25])
{
	const char *algorithm = header_of(req, prefix, "algorithm");
	const char *key = header_of(req, prefix, "key");
	const char *md5 = header_of(req, prefix, "key-MD5");
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	uint8_t digest[CHECKSUM_MAX_SIZE];
	char text[CHECKSUM_TEXT_SIZE];

	if (!algorithm)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			PROVIDED_KEYS "provide a valid encryption algorithm.");
	if (strcmp(algorithm, "AES256") != 0) {
		reply_code(req, MHD_HTTP_BAD_REQUEST, "InvalidEncryptionAlgorithmError",
			"The Encryption request you specified is not valid. Supported value: "
			"AES256.");
		return false;
	}
	if (!key)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			PROVIDED_KEYS "provide an appropriate secret key.");
	if (!md5)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			PROVIDED_KEYS "provide the client calculated MD5 of the secret key.");
	if (!decode_key(req, key, out))
		return false;
	if (checksum_of(CHECKSUM_MD5, out->bytes, sizeof(out->bytes), digest, &err) < 0)
		return reply_failure(req, &err);
	checksum_format(CHECKSUM_MD5, digest, text);
	if (strcmp(md5, text) != 0)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The calculated MD5 hash of the key did not match the hash that was "
			"provided.");
	snprintf(md5_out, 25, "%.24s", text);
	return true;
}

/* --- requests -------------------------------------------------------------------------------- */

/* Returns true if the request makes an object or an upload. */
static bool is_write(const struct request *req, const char *sub)
{
	if (req->form)
		return true;
	return req->key && (sub ? strcmp(req->method, "POST") == 0 && strcmp(sub, "uploads") == 0
				: strcmp(req->method, "PUT") == 0);
}

/* Returns true if the request may contain a customer's key. */
static bool takes_key(const struct request *req, const char *sub)
{
	static const char *const subs[] = {"uploadId", "partNumber", "attributes"};

	if (is_write(req, sub))
		return true;
	if (!req->key || strcmp(req->method, "DELETE") == 0)
		return false;
	for (size_t i = 0; sub && i < ARRAY_SIZE(subs); i++)
		if (strcmp(sub, subs[i]) == 0)
			return true;
	return !sub;
}

/* Refuses unknown x-amz-server-side-encryption… headers. */
static bool names_are_known(struct request *req)
{
	static const char *const known[] = {"", "-aws-kms-key-id", "-context",
		"-bucket-key-enabled", "-customer-algorithm", "-customer-key", "-customer-key-MD5"};

	for (size_t i = 0; i < req->n_headers; i++) {
		const char *name = req->headers[i].name;
		bool found = false;

		if (strncasecmp(name, METHOD, strlen(METHOD)) != 0)
			continue;
		for (size_t k = 0; k < ARRAY_SIZE(known) && !found; k++)
			found = strcasecmp(name + strlen(METHOD), known[k]) == 0;
		if (!found)
			return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
				"This store does not implement the header %s", name);
	}
	return true;
}

static bool read_method(struct request *req, const char *method)
{
	const char *bucket_key = request_header(req, METHOD "-bucket-key-enabled");
	bool kms = method && str_starts(method, "aws:kms");

	if (method && req->encryption.has_key)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Server Side Encryption with Customer provided key is incompatible with "
			"the encryption method specified");
	if (method && (strcmp(method, "aws:kms") == 0 || strcmp(method, "aws:kms:dsse") == 0))
		return reply_errorf(req, S3_E_NOT_IMPLEMENTED,
			"This store does not implement SSE-KMS: " METHOD " must be AES256");
	if (method && strcmp(method, "AES256") != 0)
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"The encryption method specified is not supported");
	if (!kms && (request_header(req, METHOD "-aws-kms-key-id") ||
			    request_header(req, METHOD "-context") ||
			    (bucket_key && strcasecmp(bucket_key, "false") != 0)))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"Server Side Encryption with AWS KMS managed key requires HTTP header " METHOD
			" : aws:kms");
	if (method)
		req->encryption.mode = STORE_OWN_KEY;
	else if (req->encryption.has_key)
		req->encryption.mode = STORE_CUSTOMER_KEY;
	return true;
}

static bool read_keys(struct request *req, const char *sub)
{
	struct request_encryption *e = &req->encryption;
	char unused[25];

	if (has_customer(req, CUSTOMER)) {
		if (!takes_key(req, sub))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"This operation does not accept a customer-provided key");
		if (!read_customer(req, CUSTOMER, &e->key, e->key_md5))
			return false;
		e->has_key = true;
	}
	if (has_customer(req, COPY_CUSTOMER)) {
		if (!request_header(req, "x-amz-copy-source"))
			return reply_errorf(req, S3_E_INVALID_ARGUMENT,
				"A key for a copy source needs the header x-amz-copy-source");
		if (!read_customer(req, COPY_CUSTOMER, &e->source_key, unused))
			return false;
		e->has_source_key = true;
	}
	return true;
}

bool sse_read(struct request *req, const char *sub)
{
	const char *method = request_header(req, METHOD);
	bool valid = names_are_known(req) && read_keys(req, sub);

	wipe_key(req, CUSTOMER);
	wipe_key(req, COPY_CUSTOMER);
	if (!valid)
		return false;
	if (method && !is_write(req, sub))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			METHOD " header is not supported for this operation.");
	return read_method(req, method);
}

bool sse_add(struct request *req, struct buf *out)
{
	struct request_encryption *e = &req->encryption;
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	char text[STORE_ENCRYPTION_SIZE];

	if (e->mode == STORE_PLAIN &&
		!reply_unless_stored(req,
			store_default_encryption(req->server->store, req->bucket, &e->mode, &err),
			&err))
		return false;
	if (e->mode == STORE_PLAIN)
		return true;
	if (store_encryption_format(e->mode == STORE_CUSTOMER_KEY ? &e->key : NULL, text, &err) < 0)
		return reply_failure(req, &err);
	buf_add(out, STORE_ENCRYPTION_HEADER, sizeof(STORE_ENCRYPTION_HEADER));
	buf_add(out, text, strlen(text) + 1);
	return !buf_failed(out) || reply_error(req, S3_E_SLOW_DOWN);
}

/* --- uploads --------------------------------------------------------------------------------- */

/* Compares the key of the request, which must have a key, with the key of the upload. */
static bool same_key(struct request *req, const char *text)
{
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool same = false;

	if (store_encryption_check(text, &req->encryption.key, &same, &err) < 0)
		return reply_failure(req, &err);
	return same || reply_errorf(req, S3_E_INVALID_REQUEST, NOT_THE_SAME);
}

bool sse_of_part(struct request *req, const struct store_upload *upload)
{
	const char *text = store_header_find(
		upload->headers, upload->headers_len, STORE_ENCRYPTION_HEADER);
	struct request_encryption *e = &req->encryption;

	e->mode = store_encryption_of(text);
	if (e->mode == STORE_CUSTOMER_KEY && !e->has_key)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The multipart upload initiate requested encryption. Subsequent part "
			"requests must include the appropriate encryption parameters.");
	if (e->mode == STORE_CUSTOMER_KEY)
		return same_key(req, text);
	return !e->has_key || reply_errorf(req, S3_E_INVALID_REQUEST,
				      "The multipart upload initiate did not request encryption. "
				      "Please resend the request without sending encryption "
				      "parameters.");
}

bool sse_of_upload(struct request *req, const struct store_upload *upload)
{
	const char *text = store_header_find(
		upload->headers, upload->headers_len, STORE_ENCRYPTION_HEADER);
	bool customer = store_encryption_of(text) == STORE_CUSTOMER_KEY;

	/* As with AWS, the key is needed only if the object gets a checksum. */
	if (customer && !req->encryption.has_key && !upload->checksum.algorithm[0]) {
		req->encryption.mode = STORE_CUSTOMER_KEY;
		return true;
	}
	return sse_of_part(req, upload);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Checks that `key`, which is NULL if the request has no key, is the key of the object, if any. */
static bool may_use(
	struct request *req, const struct store_object *object, const struct store_key *key)
{
	const char *text = store_object_header(object, STORE_ENCRYPTION_HEADER);
	struct penstock_error err = PENSTOCK_ERROR_INIT;
	bool same = false;

	if (object->encryption != STORE_CUSTOMER_KEY)
		return !key || reply_errorf(req, S3_E_INVALID_REQUEST, NOT_APPLICABLE);
	if (!key)
		return reply_errorf(req, S3_E_INVALID_REQUEST,
			"The object was stored using a form of Server Side Encryption. The correct "
			"parameters must be provided to retrieve the object.");
	if (store_encryption_check(text, key, &same, &err) < 0)
		return reply_failure(req, &err);
	return same || reply_errorf(req, S3_E_ACCESS_DENIED, NOT_THE_SAME);
}

bool sse_may_read(struct request *req, const struct store_object *object)
{
	return may_use(req, object, req->encryption.has_key ? &req->encryption.key : NULL);
}

bool sse_may_copy(struct request *req, const struct store_object *source)
{
	const struct request_encryption *e = &req->encryption;

	return may_use(req, source, e->has_source_key ? &e->source_key : NULL);
}

bool sse_shares(const struct request *req, const struct store_object *source)
{
	const struct request_encryption *e = &req->encryption;

	return store_object_is_shareable(source, e->mode) &&
	       (e->mode != STORE_CUSTOMER_KEY ||
		       CRYPTO_memcmp(&e->key, &e->source_key, sizeof(e->key)) == 0);
}

int sse_etag(struct request *req, char etag[static 33], struct penstock_error *err)
{
	uint8_t md5[16];

	if (req->encryption.mode != STORE_CUSTOMER_KEY || str_unhex(etag, md5, sizeof(md5)) < 0)
		return 0;
	return store_customer_etag(&req->encryption.key, md5, etag, err);
}

void reply_sse(struct request *req, enum store_encryption encryption)
{
	if (encryption == STORE_OWN_KEY)
		reply_header(req, METHOD, "AES256");
	if (encryption != STORE_CUSTOMER_KEY || !req->encryption.has_key)
		return;
	reply_header(req, CUSTOMER "algorithm", "AES256");
	reply_header(req, CUSTOMER "key-MD5", req->encryption.key_md5);
}
