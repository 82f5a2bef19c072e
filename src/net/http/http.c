/* Helpers for requests, replies and URLs. */
#include "net/http/internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/sum/checksum.h"

/* Returns the index of the first header called `name`, ignoring case, or `headers->n` if there is
 * none. */
static size_t header_find(const struct strlist *headers, const char *name)
{
	size_t len = strlen(name), i = 0;

	while (i < headers->n &&
		(strncasecmp(headers->items[i], name, len) != 0 || headers->items[i][len] != ':'))
		i++;
	return i;
}

bool http_has_header(const struct strlist *headers, const char *name)
{
	return header_find(headers, name) < headers->n;
}

int http_request_header(struct http_request *request, const char *name, const char *value)
{
	struct strlist *headers = &request->headers;
	size_t i = header_find(headers, name);
	char *line;

	if (i == headers->n)
		return strlist_addf(headers, "%s: %s", name, value);
	line = str_printf("%s: %s", name, value);
	if (!line)
		return -1;
	free(headers->items[i]);
	headers->items[i] = line;
	return 0;
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
	size_t i = header_find(&reply->headers, name);
	const char *value = i < reply->headers.n ? reply->headers.items[i] + strlen(name) + 1
						 : NULL;

	return value ? value + strspn(value, " \t") : NULL;
}

size_t http_plain_host(const char *url, const char **host)
{
	const char *at = url + strlen("http://");
	size_t len;

	if (!str_starts(url, "http://") || memchr(at, '@', strcspn(at, "/?#")))
		return 0;
	len = strcspn(at, *at == '[' ? "]" : ":/?#");
	len += at[len] == ']';
	*host = at;
	return at[len] == '\0' || strchr(":/?#", at[len]) ? len : 0;
}

bool http_host_is_local(const char *host, size_t len)
{
	char name[sizeof("255.255.255.255")] = "";
	struct in_addr address;

	if (len >= sizeof(name))
		return false;
	memcpy(name, host, len);
	return strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
	       (inet_pton(AF_INET, name, &address) == 1 &&
		       ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET);
}

int http_add_basic(struct buf *out, const char *user, const char *password)
{
	_cleanup_(buf_wipe) struct buf plain = BUF_INIT(out->limit / 2);

	buf_printf(&plain, "%s:%s", user, password);
	buf_add_str(out, "Basic ");
	return buf_failed(&plain) ? -1 : base64_encode(out, plain.data, plain.len);
}

void http_url_display(const char *url, struct buf *out)
{
	const char *rest = url + strcspn(url, ":/?#");
	const char *at;

	if (strncmp(rest, "://", 3) != 0) {
		buf_add(out, url, strcspn(url, "?#"));
		return;
	}
	rest += 3;
	at = memrchr(rest, '@', strcspn(rest, "/?#"));
	buf_add(out, url, (size_t)(rest - url));
	if (at)
		rest = at + 1;
	buf_add(out, rest, strcspn(rest, "?#"));
}
