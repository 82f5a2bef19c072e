#include "server/request/framing.h"

#include <string.h>
#include <strings.h>

#include <microhttpd.h>

#include "server/request/reply.h"
#include "server/request/request.h"
#include "store/header.h"

bool framing_is_header(const char *name, const char *value)
{
	return store_header_is_name(name) && store_header_is_value(value);
}

static bool is_target(const char *text)
{
	return store_header_is_value(text) && !strpbrk(text, " \t");
}

static size_t count_parameters(const char *query)
{
	size_t n = 1;

	for (; *query; query++)
		n += *query == '&';
	return n;
}

/*
 * libmicrohttpd 1.0 and later refuses bare LFs, NULs and continued lines itself. Earlier versions
 * accept such lines: these versions replace the end of each line with NULs, in place, so that the
 * text of a line with CRLF ends exactly two bytes before the next line.
 */
static bool lines_end_well(const struct request *req, const char *version)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		req->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	const char *end = version + strlen(version);

	if (MHD_get_version()[0] != '0')
		return true;
	if (version != req->target_end + 1 || !info)
		return false;
	for (size_t i = 0; i < req->n_headers; i++) {
		if (req->headers[i].name != end + 2)
			return false;
		end = req->headers[i].value + strlen(req->headers[i].value);
	}
	return end + 4 == req->method + info->header_size; /* two line ends */
}

static bool malformed(struct request *req, const char *problem)
{
	return reply_errorf(
		req, S3_E_INVALID_REQUEST, "The head of the request is malformed: %s", problem);
}

bool framing_check(struct request *req, const char *version)
{
	unsigned hosts = 0, lengths = 0, encodings = 0;
	const char *encoding = "chunked";

	if (!is_target(req->path) || (req->query && !is_target(req->query)))
		return malformed(req, "the target contains a space or a control character");
	/* Limit the number of parameters: the store searches all of them for each name that it
	 * knows. */
	if (req->query && count_parameters(req->query) > LIMIT_SIGV4_PARAMETERS)
		return malformed(req, "the query has too many parameters");
	for (size_t i = 0; i < req->n_headers; i++) {
		const struct sigv4_header *h = &req->headers[i];

		if (!store_header_is_name(h->name))
			return malformed(req, "the name of a header is not a token");
		if (!store_header_is_value(h->value))
			return malformed(req, "a header contains a control character");
		hosts += strcasecmp(h->name, "host") == 0;
		lengths += strcasecmp(h->name, "content-length") == 0;
		if (strcasecmp(h->name, "transfer-encoding") == 0) {
			encodings++;
			encoding = h->value;
		}
	}
	if (hosts != 1 && strcmp(version, MHD_HTTP_VERSION_1_1) == 0)
		return malformed(req, "expected exactly one Host header");
	if (lengths > 1)
		return malformed(req, "there are several Content-Length headers");
	if (encodings > 1 || (encodings && lengths))
		return malformed(req, "there is a Transfer-Encoding and another length");
	/* RFC 9112, 6.1: a proxy of version 1.0 may have passed on an encoding that it ignores. */
	if (encodings && strcmp(version, MHD_HTTP_VERSION_1_1) != 0)
		return malformed(
			req, "there is a Transfer-Encoding in an HTTP version other than 1.1");
	if (strcasecmp(encoding, "chunked") != 0)
		return reply_errorf(
			req, S3_E_NOT_IMPLEMENTED, "A Transfer-Encoding may only be chunked");
	if (!lines_end_well(req, version))
		return malformed(req, "a line does not end in CRLF, or is continued");
	return true;
}
