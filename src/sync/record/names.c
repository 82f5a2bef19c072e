#include "sync/record/names.h"

#include <string.h>

#include "base/str.h"

void names_encode(struct buf *out, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < len;) {
		unsigned char c = (unsigned char)path[i];
		size_t n = str_utf8_length(path + i, len - i);

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
	if (str_is_utf8(path, strlen(path))) {
		buf_add_str(out, path);
		return false;
	}
	names_encode(out, path);
	return true;
}

const char *names_of_key(struct buf *decoded, const char *key)
{
	return names_decode(decoded, key) == 0 && !str_is_utf8(decoded->data, decoded->len)
		       ? buf_str(decoded)
		       : key;
}
