#include "server/access/auth_v2.h"

#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "s3/date.h"
#include "server/directory/identity.h"
#include "server/request/reply.h"
#include "server/request/request.h"

#define SCHEME "AWS "
#define TOKEN  "x-amz-security-token"

/* Parameters that belong to the signed resource; in byte order. */
static const char *const signed_parameters[] = {"accelerate", "acl", "analytics", "cors", "delete",
	"inventory", "lifecycle", "location", "logging", "metrics", "notification", "object-lock",
	"partNumber", "policy", "replication", "requestPayment", "response-cache-control",
	"response-content-disposition", "response-content-encoding", "response-content-language",
	"response-content-type", "response-expires", "restore", "select", "tagging", "torrent",
	"uploadId", "uploads", "versionId", "versioning", "versions", "website"};

/* The signature does not cover other subresources, so anyone could add such a subresource to a URL.
 * "list-type" only selects the form of a listing. */
static bool is_signed_subresource(const char *sub)
{
	for (size_t i = 0; i < ARRAY_SIZE(signed_parameters); i++)
		if (strcmp(signed_parameters[i], sub) == 0)
			return true;
	return strcmp(sub, "list-type") == 0;
}

/* --- the signature --------------------------------------------------------------------------- */

static bool matches(const char *secret, const char *text, size_t len, const char *signature)
{
	_cleanup_(buf_release) struct buf wanted = BUF_INIT(64);
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	return strlen(secret) <= INT32_MAX &&
	       HMAC(EVP_sha1(), secret, (int)strlen(secret), (const unsigned char *)text, len, mac,
		       &n) &&
	       base64_encode(&wanted, mac, n) == 0 && str_equal_secret(buf_str(&wanted), signature);
}

static int by_name(const void *a, const void *b)
{
	return strcasecmp((*(const struct sigv4_header *const *)a)->name,
		(*(const struct sigv4_header *const *)b)->name);
}

/* Appends "name:value\n" for each x-amz- header, sorted. The token of a session, which a URL has in
 * its query, is signed like a header. */
static void add_headers(struct request *req, struct buf *out)
{
	const struct sigv4_header *found[REQUEST_HEADERS_MAX + 1];
	const struct sigv4_header token = {TOKEN, request_query(req, TOKEN)};
	size_t n = 0;

	if (token.value)
		found[n++] = &token;

	for (size_t i = 0; i < req->n_headers; i++)
		if (strncasecmp(req->headers[i].name, "x-amz-", 6) == 0)
			found[n++] = &req->headers[i];
	qsort(found, n, sizeof(const struct sigv4_header *), by_name);
	for (size_t i = 0; i < n; i++) {
		for (const char *p = found[i]->name; *p; p++)
			buf_add_char(out, (char)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p));
		buf_printf(out, ":%s\n", found[i]->value);
	}
}

static void add_resource(struct request *req, const char *slash, struct buf *out)
{
	char separator = '?';

	buf_printf(out, "%s%s", req->resource, slash);
	for (size_t i = 0; i < ARRAY_SIZE(signed_parameters); i++) {
		const char *value;

		if (!request_has_query(req, signed_parameters[i]))
			continue;
		value = request_query(req, signed_parameters[i]);
		buf_printf(out, "%c%s", separator, signed_parameters[i]);
		if (value && *value)
			buf_printf(out, "=%s", value);
		separator = '&';
	}
}

static bool is_signed_with(
	struct request *req, const char *date, const char *slash, const char *signature)
{
	const char *md5 = request_header(req, "content-md5");
	const char *type = request_header(req, "content-type");
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_SIGV4_TEXT);

	buf_printf(&text, "%s\n%s\n%s\n%s\n", req->method, md5 ? md5 : "", type ? type : "", date);
	add_headers(req, &text);
	add_resource(req, slash, &text);
	return !buf_failed(&text) &&
	       matches(req->identity->secret_access_key, text.data, text.len, signature);
}

/* Verifies `signature`. `date` is the date of the header, or the expiry time of a URL. botocore
 * signs "/bucket/" for the path "/bucket". Sets the reply and returns false on failure. */
static bool check_signature(struct request *req, const char *date, const char *signature)
{
	const char *sub = request_subresource(req);

	if (sub && !is_signed_subresource(sub))
		return reply_errorf(req, S3_E_ACCESS_DENIED,
			"Signature Version 2 does not sign '%s'; use version 4", sub);
	return is_signed_with(req, date, "", signature) ||
	       (req->resource[1] && !strchr(req->resource + 1, '/') &&
		       is_signed_with(req, date, "/", signature)) ||
	       reply_error(req, S3_E_SIGNATURE_DOES_NOT_MATCH);
}

/* --- URLs, headers and forms ----------------------------------------------------------------- */

static bool is_url(const struct request *req)
{
	return request_has_query(req, "AWSAccessKeyId") && request_has_query(req, "Signature");
}

bool auth_v2_is(const struct request *req)
{
	const char *authorization = request_header(req, "authorization");

	return is_url(req) || (authorization && str_starts(authorization, SCHEME));
}

static bool verify_url(struct request *req)
{
	const char *id = request_query(req, "AWSAccessKeyId");
	const char *expires = request_query(req, "Expires");
	const char *signature = request_query(req, "Signature");
	uint64_t until;

	if (!id || !signature || !expires || !str_to_u64(expires, 0, INT64_MAX, &until) ||
		request_header(req, "authorization"))
		return reply_error(req, S3_E_ACCESS_DENIED);
	if (!request_identify(req, id, request_query(req, TOKEN)))
		return false;
	if (until < (uint64_t)(clock_wall_ns() / NS_PER_S))
		return reply_error(req, S3_E_REQUEST_EXPIRED);
	return check_signature(req, expires, signature);
}

/* A request is valid if its date is at most SIGV4_SKEW_SECONDS in the past or in the future. */
static bool check_date(struct request *req, const char *date)
{
	int64_t seconds, now = clock_wall_ns() / NS_PER_S;

	if (!date || (!date_parse_http(date, &seconds) && !date_parse_mail(date, &seconds)))
		return reply_errorf(req, S3_E_ACCESS_DENIED,
			"AWS authentication requires a valid Date or x-amz-date header");
	return (seconds >= now - SIGV4_SKEW_SECONDS && seconds <= now + SIGV4_SKEW_SECONDS) ||
	       reply_error(req, S3_E_REQUEST_TIME_TOO_SKEWED);
}

static bool verify_header(struct request *req)
{
	const char *text = request_header(req, "authorization") + strlen(SCHEME);
	const char *amz_date = request_header(req, "x-amz-date");
	const char *date = request_header(req, "date"), *colon = strrchr(text, ':');
	char id[SIGV4_ACCESS_KEY_MAX + 1];

	if (!colon || colon == text || (size_t)(colon - text) >= sizeof(id))
		return reply_errorf(req, S3_E_INVALID_ARGUMENT,
			"AWS authorization header is invalid.  Expected AwsAccessKeyId:signature");
	memcpy(id, text, (size_t)(colon - text));
	id[colon - text] = '\0';
	return request_identify(req, id, request_header(req, TOKEN)) &&
	       check_date(req, amz_date ? amz_date : date) &&
	       check_signature(req, amz_date ? "" : date, colon + 1);
}

bool auth_v2_verify(struct request *req)
{
	return is_url(req) ? verify_url(req) : verify_header(req);
}

bool auth_v2_verify_form(struct request *req, const char *access_key_id, const char *signature,
	const char *policy, const char *token)
{
	return request_identify(req, access_key_id, token) &&
	       (matches(req->identity->secret_access_key, policy, strlen(policy), signature) ||
		       reply_error(req, S3_E_SIGNATURE_DOES_NOT_MATCH));
}
