#include "archive/member.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/banned.h"

#define NAME_SHOWN 200 /* bytes of a member's name in a message */

int member_error(
	struct penstock_error *err, enum penstock_code code, const char *name, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_STRING);
	size_t n = 0;
	va_list ap;

	for (const unsigned char *p = (const unsigned char *)name; *p && n < NAME_SHOWN; p++, n++) {
		if (*p < 0x20 || *p == 0x7F)
			buf_printf(&text, "\\x%02x", *p);
		else
			buf_add_char(&text, (char)*p);
	}
	buf_add_str(&text, n == NAME_SHOWN ? "...: " : ": ");
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return error_set(err, code, "member %s", buf_str(&text));
}
