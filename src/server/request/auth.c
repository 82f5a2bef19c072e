#include "server/request/auth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "server/request/reply.h"
#include "server/request/request.h"
#include "base/banned.h"

struct sigv4 *server_signer(struct server *server)
{
	struct sigv4 *signer = pthread_getspecific(server->signer);

	if (signer)
		return signer;
	signer = calloc(1, sizeof(*signer));
	if (!signer)
		return NULL;
	if (sigv4_init(signer, NULL) < 0 || pthread_setspecific(server->signer, signer) != 0) {
		sigv4_release(signer);
		free(signer);
		return NULL;
	}
	return signer;
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
	if (request_is_v2(req)) {
		enum s3_error error = request_verify_v2(req);

		if (error)
			reply_error(req, error);
		return !error;
	}
	failure = sigv4_parse(&sr, &req->auth);
	if (failure == SIGV4_ANONYMOUS)
		return reply_error(req, S3_E_ACCESS_DENIED);
	if (failure == SIGV4_VALID &&
		!str_equal_secret(req->auth.access_key, server->access_key_id))
		return reply_error(req, S3_E_INVALID_ACCESS_KEY_ID);
	if (failure == SIGV4_VALID)
		failure = sigv4_verify(signer, &sr, &req->auth, server->secret_access_key,
			clock_wall_ns() / NS_PER_S);
	if (failure == SIGV4_VALID)
		return true;
	return reply_errorf(
		req, sigv4_failure_error(failure), "%s", sigv4_failure_message(failure));
}
