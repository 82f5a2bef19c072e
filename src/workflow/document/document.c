#include "workflow/document/document.h"

#include <stdint.h>
#include <string.h>

#include "base/banned.h"

/* The length of the UTF-8 sequence at `p`, of which `left` bytes are there; 0 if it is invalid. */
static size_t utf8_length(const unsigned char *p, size_t left, uint32_t *character)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	uint32_t c;

	if (len == 1) {
		*character = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4 || len > left)
		return 0;
	c = p[0] & (0xffU >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fU);
	}
	if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*character = c;
	return len;
}

/* Printable characters by the rules of YAML; JSON's are practically the same. */
static bool is_text(uint32_t c)
{
	if (c < 0x20)
		return c == '\t' || c == '\n' || c == '\r';
	if (c >= 0x7f && c < 0xa0)
		return c == 0x85;
	return c != 0xfeff && c != 0xfffe && c != 0xffff;
}

bool text_check(const char *file, const char *option, const char *data, size_t len,
	struct diagnostics *found)
{
	struct workflow_place at = {1, 1, option};
	uint32_t c = 0;

	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_length((const unsigned char *)data + i, len - i, &c);
		if (n == 0 || !is_text(c)) {
			if (option)
				at.line = at.column = 0;
			if (n == 0)
				diagnostics_add(found, DIAGNOSTIC_ERROR, file, &at,
					"the byte 0x%02x is not UTF-8; save the file as UTF-8",
					(unsigned char)data[i]);
			else
				diagnostics_add(found, DIAGNOSTIC_ERROR, file, &at,
					"the control character U+%04X is not allowed here; "
					"remove it",
					c);
			return false;
		}
		if (c == '\n') {
			at.line++;
			at.column = 1;
		} else {
			at.column++;
		}
	}
	return true;
}

struct node *document_read(struct workflow_arena *arena, const char *file, const char *option,
	const char *data, size_t len, struct diagnostics *found)
{
	size_t start = 0;

	if (len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
		data += 3;
		len -= 3;
	}
	if (!text_check(file, option, data, len, found))
		return NULL;
	while (start < len && strchr(" \t\r\n", data[start]))
		start++;
	if (start == len) {
		diagnostics_add(found, DIAGNOSTIC_ERROR, file, NULL, "the workflow is empty");
		return NULL;
	}
	if (data[start] == '{')
		return json_read(arena, file, option, data, len, found);
	return yaml_read(arena, file, option, data, len, found);
}
