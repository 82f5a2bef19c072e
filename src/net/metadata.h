/*
 * Metadata services of clouds: small documents over plain HTTP on the machine itself, never through
 * a proxy. Used for credentials and preemption notices.
 *
 *	struct metadata_request ask = {.url = url, .headers = {"Metadata: true"}};
 *
 *	r = metadata_ask(engine, &ask, &body, &reply, err);
 */
#ifndef NET_METADATA_H
#define NET_METADATA_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/http/http.h"

struct penstock_error;

struct metadata_request {
	const char *method; /* GET if NULL */
	const char *url;
	const char *headers[3]; /* "Name: value"; NULL if unused */
	const char *body; /* may be NULL */
	int64_t timeout_ms; /* limit for connecting, and for silence after that */
	unsigned attempts; /* 1 if 0 */
	const atomic_int *cancel;
};

/* Sends the request. Empties `out` first; its limit bounds the reply. `reply` may be NULL. */
int metadata_ask(struct http_engine *engine, const struct metadata_request *ask, struct buf *out,
	struct http_reply *reply, struct penstock_error *err);

/* Gets an AWS session token (IMDSv2), valid for `ttl_s` seconds, as the header that later requests
 * need. `how` has the timeout, the attempts and the cancel flag; `how->url` is the URL of the
 * service. */
int metadata_aws_token(struct http_engine *engine, const struct metadata_request *how,
	unsigned ttl_s, struct buf *header, struct penstock_error *err);

#endif
