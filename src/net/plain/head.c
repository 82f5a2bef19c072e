/* The head of a reply. */
#include "net/plain/plain.h"

#include <string.h>
#include <strings.h>

#include "base/str.h"

const char *plain_header(const char *head, size_t len, const char *name, size_t *value_len)
{
	const char *end = head + len, *line = memchr(head, '\n', len);
	const size_t n = strlen(name);

	while (line && ++line < end) {
		const char *next = memchr(line, '\n', (size_t)(end - line));
		const char *stop = next ? next : end;
		const char *value = line + n + 1;

		if ((size_t)(stop - line) > n && line[n] == ':' &&
			strncasecmp(line, name, n) == 0) {
			while (stop > value && strchr(" \t\r", stop[-1]))
				stop--;
			while (value < stop && strchr(" \t", *value))
				value++;
			*value_len = (size_t)(stop - value);
			return value;
		}
		line = next;
	}
	return NULL;
}

static bool is_word(const char *value, size_t len, const char *word)
{
	return value && len == strlen(word) && strncasecmp(value, word, len) == 0;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int plain_parse_head(const char *head, size_t len, uint64_t *body_len, bool *keep)
{
	static const char version[] = "HTTP/1.1 ";
	const char *status = head + sizeof(version) - 1;
	const char *value;
	char digits[24];
	size_t n;

	if (len < sizeof(version) + 3 || memcmp(head, version, sizeof(version) - 1) != 0 ||
		memchr(head, '\0', len) || !is_digit(status[0]) || !is_digit(status[1]) ||
		!is_digit(status[2]) || !strchr(" \r", status[3]))
		return -1;
	/* A body in chunks or a repeated length needs the engine, which supports all of HTTP. */
	value = plain_header(head, len, "Content-Length", &n);
	if (!value || n == 0 || n >= sizeof(digits) ||
		plain_header(value, (size_t)(head + len - value), "Content-Length", &(size_t){0}) ||
		plain_header(head, len, "Transfer-Encoding", &(size_t){0}))
		return -1;
	memcpy(digits, value, n);
	digits[n] = '\0';
	if (!str_to_u64(digits, 0, INT64_MAX, body_len))
		return -1;
	value = plain_header(head, len, "Connection", &n);
	*keep = !value || is_word(value, n, "keep-alive");
	return (status[0] - '0') * 100 + (status[1] - '0') * 10 + status[2] - '0';
}
