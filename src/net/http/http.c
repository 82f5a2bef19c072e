/* Helpers for requests, replies and URLs. */
#include "net/http/http.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/banned.h"

/* Returns the value after "name:" if `line` is that header, else NULL. */
static const char *header_value(const char *line, const char *name, size_t len)
{
	if (strncasecmp(line, name, len) != 0 || line[len] != ':')
		return NULL;
	line += len + 1;
	while (*line == ' ' || *line == '\t')
		line++;
	return line;
}

int http_request_header(struct http_request *request, const char *name, const char *value)
{
	struct strlist *headers = &request->headers;
	size_t len = strlen(name);

	for (size_t i = 0; i < headers->n; i++) {
		char *line = NULL;

		if (!header_value(headers->items[i], name, len))
			continue;
		if (asprintf(&line, "%s: %s", name, value) < 0)
			return -1;
		free(headers->items[i]);
		headers->items[i] = line;
		return 0;
	}
	return strlist_addf(headers, "%s: %s", name, value);
}

void http_reply_release(struct http_reply *reply)
{
	strlist_release(&reply->headers);
	buf_release(&reply->error_body);
	free(reply->effective_url);
	*reply = (struct http_reply)HTTP_REPLY_INIT;
}

const char *http_reply_header(const struct http_reply *reply, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < reply->headers.n; i++) {
		const char *value = header_value(reply->headers.items[i], name, len);

		if (value)
			return value;
	}
	return NULL;
}

void http_url_display(const char *url, struct buf *out)
{
	const char *rest = url + strcspn(url, ":/?#");
	size_t authority;
	const char *at = NULL;

	if (strncmp(rest, "://", 3) != 0) {
		buf_add(out, url, strcspn(url, "?#"));
		return;
	}
	rest += 3;
	authority = strcspn(rest, "/?#");
	for (size_t i = 0; i < authority; i++) {
		if (rest[i] == '@')
			at = rest + i;
	}
	buf_add(out, url, (size_t)(rest - url));
	if (at)
		rest = at + 1;
	buf_add(out, rest, strcspn(rest, "?#"));
}
