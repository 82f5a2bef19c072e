/*
 * Translates between S3 and Google Cloud Storage's XML API. The rest of this layer speaks S3 only:
 *
 *	before a request is sent, google_header() translates each of its headers;
 *	when the headers of a reply have arrived, google_reply() adds S3's headers.
 *
 * The generation of an object takes the place of its ETag: the generation changes with each
 * overwrite, even by the same bytes, and Google's preconditions use the generation. `ETag` of a
 * reply becomes the generation in quotes, as in listings (s3/message/messages.h), and If-Match: "N"
 * is sent as x-goog-if-generation-match: N, If-None-Match: * as 0.
 */
#ifndef TRANSFER_CLIENT_GOOGLE_H
#define TRANSFER_CLIENT_GOOGLE_H

#include <stdbool.h>

#include "net/http/http.h"
#include "s3/sign/sigv4.h"

/* Returns true if `authority`, with or without a port, is storage.googleapis.com. */
bool google_is_host(const char *authority);

/*
 * Translates the header `in` of a request by `method` to `out`; a new string is added to `owned`.
 * Returns false if the XML API has no such header: the caller then leaves the header out. Returns
 * false and sets `*no_memory` if out of memory.
 */
bool google_header(const char *method, const struct sigv4_header *in, struct sigv4_header *out,
	struct strlist *owned, bool *no_memory);

/* Adds S3's headers to `reply`. Returns 0, or an error if out of memory. */
int google_reply(struct http_reply *reply, struct penstock_error *err);

/* Raises PENSTOCK_E_UNSUPPORTED: Google has generations in place of versions, with other
 * requests. */
int google_refuse_versions(struct penstock_error *err);

/* Finds the MD5 of the object in a reply. Returns false if there is none, as for composed
 * objects. */
bool google_reply_md5(const struct http_reply *reply, uint8_t md5[static 16]);

#endif
