/* Authentication of requests. */
#ifndef SERVER_REQUEST_AUTH_H
#define SERVER_REQUEST_AUTH_H

#include <stdbool.h>

#include "s3/sign/sigv4.h"

struct request;
struct server;

/* Verifies the sender. Returns false with a reply set. */
bool request_authenticate(struct request *req);
/* Returns the calling thread's signer, or NULL if out of memory. */
struct sigv4 *server_signer(struct server *server);

#endif
