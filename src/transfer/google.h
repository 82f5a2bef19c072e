/*
 * Google Cloud Storage's XML API in the words of S3, and back. The rest of this layer speaks S3 only:
 *
 *	before a request goes out, google_header() turns each of its headers;
 *	when the headers of a reply are there, google_reply() adds S3's to them.
 *
 * What stands for an object's state is its generation, not the ETag: it is new with each overwriting, also
 * by the same bytes, and is what Google's preconditions ask for. So `ETag` of a reply for an object becomes
 * the generation in quotes, listings give it the same way (s3/messages.h), and If-Match: "N" goes out as
 * x-goog-if-generation-match: N, If-None-Match: * as 0.
 */
#ifndef TRANSFER_GOOGLE_H
#define TRANSFER_GOOGLE_H

#include <stdbool.h>

#include "net/http.h"
#include "s3/sigv4.h"

/* Whether the endpoint is Google's own, whatever it was named as. */
bool google_is_host(const char *authority);

/*
 * `in` (of a request by `method`) as the XML API wants it in `out`; a text that had to be made goes to
 * `owned`. False: it has no such header, leave it out (or, with `*no_memory`, the request fails).
 */
bool google_header(const char *method, const struct sigv4_header *in, struct sigv4_header *out,
	struct strlist *owned, bool *no_memory);

/* Adds to `reply` what S3 would say. 0, or an error for want of memory. */
int google_reply(struct http_reply *reply, struct penstock_error *err);

/* The MD5 that a reply says the object has; false: it says none (objects made of parts have none). */
bool google_reply_md5(const struct http_reply *reply, uint8_t md5[static 16]);

#endif
