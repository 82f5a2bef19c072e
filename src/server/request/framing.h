/* Checks the head of a request strictly: a proxy in front of the store and the store must agree
 * where each header ends, and where the request ends. */
#ifndef SERVER_REQUEST_FRAMING_H
#define SERVER_REQUEST_FRAMING_H

#include <stdbool.h>

struct request;

/* Checks the collected headers and the ends of the lines; `version` is the HTTP version in the
 * request line, as received. Sets the reply and returns false on failure; the connection must then
 * be closed, because the end of the request is unknown. */
bool framing_check(struct request *req, const char *version);
/* Returns true if a header may have this name and this value. */
bool framing_is_header(const char *name, const char *value);

#endif
