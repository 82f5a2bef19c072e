#include "sync/record/names.h"

#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "base/banned.h"

/* The length of the well-formed UTF-8 sequence at `s`; 0 if there is none. */
static size_t utf8_length(const unsigned char *s, size_t len)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = s[0] < 0x80	  ? 1
		   : s[0] >= 0xf5 ? 0
		   : s[0] >= 0xf0 ? 4
		   : s[0] >= 0xe0 ? 3
		   : s[0] >= 0xc2 ? 2
				  : 0;
	uint32_t c;

	if (n < 2)
		return n;
	if (n > len)
		return 0;
	c = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : n;
}

bool names_is_utf8(const char *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t n = utf8_length((const unsigned char *)s + i, len - i);

		if (!n)
			return false;
		i += n;
	}
	return true;
}

void names_encode(struct buf *out, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)path[i];
		size_t n = utf8_length((const unsigned char *)path + i, len - i);

		if (!n || c <= ' ' || c == 0x7f || c == '%' || c == '"' || c == '\\') {
			buf_printf(out, "%%%02X", c);
			i++;
		} else {
			buf_add(out, path + i, n);
			i += n;
		}
	}
}

int names_decode(struct buf *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c;

		if (*text != '%') {
			buf_add_char(out, *text);
			continue;
		}
		char digits[3] = {text[1], text[1] ? text[2] : '\0', '\0'};

		if (str_unhex(digits, &c, 1) < 0 || c == 0)
			return -1;
		buf_add_char(out, (char)c);
		text += 2;
	}
	return buf_failed(out) ? -1 : 0;
}

bool names_key(struct buf *out, const char *path)
{
	if (names_is_utf8(path, strlen(path))) {
		buf_add_str(out, path);
		return false;
	}
	names_encode(out, path);
	return true;
}
