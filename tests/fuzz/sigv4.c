/*
 * The lines are method, path, query, and headers as "name:value". The request is parsed and
 * verified as in the server; then it is signed as in the client, and must verify.
 */
#include "fuzz.h"

#include "s3/sign/sigv4.h"

#define NOW	INT64_C(1369353600)
#define HEADERS 20

static const struct sigv4_credentials keys = {"AKIAIOSFODNN7EXAMPLE", "secret", NULL};

static void verify(struct sigv4 *ws, const struct sigv4_request *req)
{
	struct sigv4_auth auth;
	enum sigv4_failure f = sigv4_parse(req, &auth);

	if (f) {
		require(*sigv4_failure_message(f) && sigv4_failure_error(f) != S3_OK);
		return;
	}
	require(*auth.access_key && auth.payload_hash);
	require(strlen(auth.signature) == SIGV4_SIGNATURE_SIZE - 1);
	f = sigv4_verify(ws, req, &auth, keys.secret_key, NOW);
	require(f != SIGV4_ANONYMOUS && f != SIGV4_NO_MEMORY);
}

/* Headers of a signature are left out, so that the request has only the signature of this
 * target. */
static bool is_signature_header(const char *name)
{
	static const char *const names[] = {
		"authorization", "host", "date", "x-amz-date", "x-amz-content-sha256"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcasecmp(name, names[i]) == 0)
			return true;
	}
	return false;
}

/* Characters of a header's name (RFC 9110). */
static bool is_token(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s <= ' ' || *s >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", *s))
			return false;
	}
	return true;
}

static void sign(struct sigv4 *ws, struct sigv4_request *req, struct sigv4_header *headers)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(buf_release) struct buf auth = BUF_INIT(LIMIT_HTTP_HEADERS);
	struct sigv4_auth parsed;
	size_t n = 0;

	for (size_t i = 0; i < req->n_headers; i++) {
		if (!is_signature_header(headers[i].name) && is_token(headers[i].name))
			headers[n++] = headers[i];
	}
	headers[n++] = (struct sigv4_header){"Host", "h"};
	headers[n++] = (struct sigv4_header){"X-Amz-Date", "20130524T000000Z"};
	headers[n++] = (struct sigv4_header){"X-Amz-Content-Sha256", SIGV4_UNSIGNED_PAYLOAD};
	req->n_headers = n;
	int rc = sigv4_sign(
		ws, req, (struct sigv4_identity){&keys, "us-east-1", "s3", NOW}, &auth, NULL, &err);

	require_error(rc, &err);
	if (rc < 0)
		return;
	headers[n++] = (struct sigv4_header){"Authorization", buf_str(&auth)};
	req->n_headers = n;
	enum sigv4_failure f = sigv4_parse(req, &parsed);

	/* A query that carries a signature of its own is refused, and so are too many names. */
	if (f == SIGV4_AMBIGUOUS || f == SIGV4_MALFORMED_HEADER)
		return;
	require(f == SIGV4_VALID);
	f = sigv4_verify(ws, req, &parsed, keys.secret_key, NOW);
	require(f == SIGV4_VALID || f == SIGV4_HEADER_UNSIGNED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sigv4 ws;
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct sigv4_header headers[HEADERS + 4];
	struct sigv4_request req = {.headers = headers};
	char *at = text;

	if (!ws.md)
		require(sigv4_init(&ws, NULL) == 0);
	req.method = fuzz_line(&at);
	req.path = fuzz_line(&at);
	req.query = fuzz_line(&at);
	if (!req.path)
		return 0;
	for (char *line; req.n_headers < HEADERS && (line = fuzz_line(&at));) {
		char *colon = strchr(line, ':');

		if (!colon)
			continue;
		*colon = '\0';
		headers[req.n_headers++] = (struct sigv4_header){line, colon + 1};
	}
	verify(&ws, &req);
	req.payload_hash = SIGV4_UNSIGNED_PAYLOAD;
	sign(&ws, &req, headers);
	return 0;
}
