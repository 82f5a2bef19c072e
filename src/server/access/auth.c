#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "server/access/directory.h"
#include "server/request/reply.h"
#include "server/request/request.h"

bool request_identify(struct request *req, const char *access_key_id, const char *token)
{
	enum s3_error problem = S3_E_SLOW_DOWN;

	identity_unref(req->identity);
	req->identity = directory_identify(req->server->directory, access_key_id, token, &problem);
	return req->identity || reply_error(req, problem);
}

/* ---- version 2 ---- */

/* Presigned URLs of Signature Version 2 (AWSAccessKeyId, Expires and Signature in the query), the
 * only kind that s3cmd makes. The obsolete form with a header is not supported. */
#define MAX_PARAMETERS 32

/* Parameters that belong to the signed resource; in byte order. */
static const char *const signed_parameters[] = {"accelerate", "acl", "analytics", "cors", "delete",
	"inventory", "lifecycle", "location", "logging", "metrics", "notification", "object-lock",
	"partNumber", "policy", "replication", "requestPayment", "response-cache-control",
	"response-content-disposition", "response-content-encoding", "response-content-language",
	"response-content-type", "response-expires", "restore", "select", "tagging", "torrent",
	"uploadId", "uploads", "versionId", "versioning", "versions", "website"};

/* The signature says nothing about other subresources, so anyone could add one to a URL.
 * "list-type" only selects the form of a listing. */
static bool is_signed_subresource(const char *sub)
{
	for (size_t i = 0; i < ARRAY_SIZE(signed_parameters); i++)
		if (strcmp(signed_parameters[i], sub) == 0)
			return true;
	return strcmp(sub, "list-type") == 0;
}

static int by_name(const void *a, const void *b)
{
	return strcasecmp((*(const struct sigv4_header *const *)a)->name,
		(*(const struct sigv4_header *const *)b)->name);
}

static bool signature_matches(struct request *req, const char *expires, const char *signature)
{
	const char *md5 = request_header(req, "content-md5");
	const char *type = request_header(req, "content-type");
	const char *secret = req->identity->secret_access_key;
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SIGV4_TEXT);
	_cleanup_(buf_release) struct buf wanted = BUF_INIT(64);
	const struct sigv4_header *found[REQUEST_HEADERS_MAX];
	unsigned char mac[EVP_MAX_MD_SIZE];
	char separator = '?';
	unsigned len = 0;
	size_t n = 0;

	buf_printf(
		&text, "%s\n%s\n%s\n%s\n", req->method, md5 ? md5 : "", type ? type : "", expires);
	/* "name:value\n" for each x-amz- header, sorted */
	for (size_t i = 0; i < req->n_headers; i++)
		if (strncasecmp(req->headers[i].name, "x-amz-", 6) == 0)
			found[n++] = &req->headers[i];
	qsort(found, n, sizeof(const struct sigv4_header *), by_name);
	for (size_t i = 0; i < n; i++) {
		for (const char *p = found[i]->name; *p; p++)
			buf_add_char(&text, (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p));
		buf_printf(&text, ":%s\n", found[i]->value);
	}
	buf_add_str(&text, req->path);
	for (size_t i = 0; i < ARRAY_SIZE(signed_parameters); i++) {
		const char *value;

		if (!request_has_query(req, signed_parameters[i]))
			continue;
		value = request_query(req, signed_parameters[i]);
		buf_printf(&text, "%c%s", separator, signed_parameters[i]);
		if (value && *value)
			buf_printf(&text, "=%s", value);
		separator = '&';
	}
	if (buf_failed(&text) || strlen(secret) > INT32_MAX ||
		!HMAC(EVP_sha1(), secret, (int)strlen(secret), (const unsigned char *)text.data,
			text.len, mac, &len) ||
		base64_encode(&wanted, mac, len) < 0)
		return false;
	return str_equal_secret(buf_str(&wanted), signature);
}

static bool is_v2(const struct request *req)
{
	return request_has_query(req, "AWSAccessKeyId") && request_has_query(req, "Signature");
}

/* Returns false with a reply set. */
static bool verify_v2(struct request *req)
{
	const char *id = request_query(req, "AWSAccessKeyId");
	const char *expires = request_query(req, "Expires");
	const char *signature = request_query(req, "Signature");
	const char *sub = request_subresource(req);
	uint64_t until;

	if (sub && !is_signed_subresource(sub))
		return reply_errorf(req, S3_E_ACCESS_DENIED,
			"Signature Version 2 does not sign '%s'; use version 4", sub);
	if (!id || !signature || !expires || !str_to_u64(expires, 0, INT64_MAX, &until) ||
		request_header(req, "authorization"))
		return reply_error(req, S3_E_ACCESS_DENIED);
	if (!request_identify(req, id, request_query(req, "x-amz-security-token")))
		return false;
	if (until < (uint64_t)(clock_wall_ns() / NS_PER_S))
		return reply_error(req, S3_E_REQUEST_EXPIRED);
	return signature_matches(req, expires, signature) ||
	       reply_error(req, S3_E_SIGNATURE_DOES_NOT_MATCH);
}

/* ---- version 4 ---- */

/* Returns the session token, which a presigned URL has in its query; NULL if there is none. */
static const char *session_token(struct request *req)
{
	return req->auth.presigned ? request_query(req, "X-Amz-Security-Token")
				   : request_header(req, "x-amz-security-token");
}

bool request_is_browser(const struct request *req)
{
	const char *accept = request_header(req, "accept");

	return accept && strstr(accept, "text/html") &&
	       (req->head || strcmp(req->method, MHD_HTTP_METHOD_GET) == 0);
}

bool request_authenticate(struct request *req)
{
	struct server *server = req->server;
	struct sigv4 *signer = server_signer(server);
	struct sigv4_request sr = {.method = req->method,
		.path = req->path,
		.query = req->query,
		.headers = req->headers,
		.n_headers = req->n_headers};
	enum sigv4_failure failure;

	if (!signer)
		return reply_error(req, S3_E_SLOW_DOWN);
	if (is_v2(req))
		return verify_v2(req);
	failure = sigv4_parse(&sr, &req->auth);
	req->anonymous = failure == SIGV4_ANONYMOUS;
	if (req->anonymous)
		return true;
	if (failure == SIGV4_VALID &&
		!request_identify(req, req->auth.access_key, session_token(req)))
		return false;
	if (failure == SIGV4_VALID)
		failure = sigv4_verify(signer, &sr, &req->auth, req->identity->secret_access_key,
			clock_wall_ns() / NS_PER_S);
	if (failure == SIGV4_VALID)
		return true;
	return reply_errorf(
		req, sigv4_failure_error(failure), "%s", sigv4_failure_message(failure));
}
