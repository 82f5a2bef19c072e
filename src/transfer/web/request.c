#include "transfer/web/request.h"

#include "base/error.h"

int web_request(struct http_request *request, const char *url, const char *if_range,
	struct penstock_error *err)
{
	request->method = "GET";
	request->url = url;
	request->follow_redirects = true;
	/* Without this header, a server may choose an encoding. */
	if (http_request_header(request, "Accept-Encoding", "identity") < 0 ||
		(if_range && http_request_header(request, "If-Range", if_range) < 0))
		return error_memory(err);
	return 0;
}

bool web_is_replaced(const struct http_reply *reply)
{
	return reply->status == 200 || reply->status == 416 || reply->status == 412;
}
