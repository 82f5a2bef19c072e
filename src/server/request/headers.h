/* Headers that are stored with an object, conditions and ETags. */
#ifndef SERVER_REQUEST_HEADERS_H
#define SERVER_REQUEST_HEADERS_H

#include <stdbool.h>

#include "base/buf.h"
#include "store/store.h"

struct request;

/* Appends the pairs to be stored from the request's headers. Returns false with a reply set. */
bool headers_collect(struct request *req, struct buf *out);
/* Gets If-Match and If-None-Match of a write; the strings live in the request. Returns false with a
 * reply set. */
bool headers_condition(struct request *req, struct store_condition *out);
/* Removes quotes, if present, in place. */
char *etag_unquote(char *etag);
/* Adds the x-amz-checksum-… headers of a reply. */
void reply_checksum(struct request *req, const struct store_checksum *checksum);

#endif
