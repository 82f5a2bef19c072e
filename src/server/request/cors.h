/*
 * Requests of browsers on behalf of other sites (CORS): the headers that let a site read a reply,
 * and preflights.
 *
 *	if (strcmp(req->method, "OPTIONS") == 0)
 *		cors_preflight(req);	// sets a reply
 *	...
 *	cors_complete(req);	// before any reply is sent
 */
#ifndef SERVER_REQUEST_CORS_H
#define SERVER_REQUEST_CORS_H

struct request;

/* The name of the configuration in the store. */
#define CORS_CONFIG "cors"

/* Replies to an OPTIONS request. Such a request needs no signature, so the reply reveals only the
 * rules of the bucket. */
void cors_preflight(struct request *req);
/* Adds the headers of the rule that the request matches to its reply. */
void cors_complete(struct request *req);

#endif
