#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "server/access/auth_v2.h"
#include "server/directory/identity.h"
#include "server/request/reply.h"
#include "server/request/request.h"

/* Returns the session token, which a presigned URL has in its query, or NULL if there is none. */
static const char *session_token(struct request *req)
{
	return req->auth.presigned ? request_query(req, "X-Amz-Security-Token")
				   : request_header(req, "x-amz-security-token");
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
	if (auth_v2_is(req))
		return auth_v2_verify(req);
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
