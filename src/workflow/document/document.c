#include "workflow/document/document.h"

#include <string.h>

#include "base/str.h"

size_t text_control(const char *text, unsigned *c)
{
	const unsigned char *p = (const unsigned char *)text;

	*c = p[0];
	if (p[0] < 0x20 || p[0] == 0x7f)
		return 1;
	if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) {
		*c = p[1];
		return 2;
	}
	if (p[0] == 0xef && ((p[1] == 0xbb && p[2] == 0xbf) || (p[1] == 0xbf && p[2] >= 0xbe))) {
		*c = 0xf000U | (p[1] & 0x3fU) << 6 | (p[2] & 0x3fU);
		return 3;
	}
	return 0;
}

bool text_check(const struct document_source *from, const char *data, size_t len)
{
	size_t line = 1, column = 1;

	for (size_t i = 0, n; i < len; i += n, column++) {
		unsigned c;

		n = str_utf8_length(data + i, len - i);
		if (!n) {
			source_fail(from, source_place(from, line, column),
				"the byte 0x%02x is not UTF-8; save the file as UTF-8",
				(unsigned char)data[i]);
			return false;
		}
		/* Only YAML's printable characters are allowed; JSON allows nearly the same
		 * characters. */
		if (text_control(data + i, &c) && c != '\t' && c != '\n' && c != '\r' &&
			c != 0x85) {
			source_fail(from, source_place(from, line, column),
				"the control character U+%04X is not allowed here; remove it", c);
			return false;
		}
		if (data[i] == '\n') {
			line++;
			column = 0;
		}
	}
	return true;
}

struct node *document_read(struct workflow_arena *arena, const char *file, const char *data,
	size_t len, struct diagnostics *found)
{
	const struct document_source from = {.arena = arena, .file = file, .found = found};
	size_t start = 0;

	if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
		data += 3;
		len -= 3;
	}
	if (!text_check(&from, data, len))
		return NULL;
	while (start < len && strchr(" \t\r\n", data[start]))
		start++;
	if (start == len) {
		diagnostics_add(found, DIAGNOSTIC_ERROR, file, NULL, "the workflow is empty");
		return NULL;
	}
	return data[start] == '{' ? json_read(&from, data, len) : yaml_read(&from, data, len);
}
