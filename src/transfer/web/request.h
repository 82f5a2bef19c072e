/*
 * Requests for web resources, which a server may replace at any time.
 *
 *	r = web_request(&request, "https://host/a.tar", "\"etag\"", err);
 *	...
 *	if (web_is_replaced(reply))
 *		... the server has another version
 *	strlist_release(&request.headers);
 */
#ifndef TRANSFER_WEB_REQUEST_H
#define TRANSFER_WEB_REQUEST_H

#include <stdbool.h>

#include "base/str.h"
#include "net/http/http.h"

struct penstock_error;

/* Makes `request` a GET of the resource in its stored encoding; the URL is borrowed. `if_range` is
 * a strong ETag or a date; NULL for any version. Release the request's headers, even after a
 * failure. */
int web_request(struct http_request *request, const char *url, const char *if_range,
	struct penstock_error *err);
/* Returns true if the reply to a range shows that the resource was replaced: because of If-Range, a
 * server sends a replaced resource as a whole, and a shorter resource may lack the range. */
bool web_is_replaced(const struct http_reply *reply);

#endif
