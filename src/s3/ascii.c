#include "s3/ascii.h"

const uint8_t ascii_unreserved[256] = {
	['-'] = 1,
	['.'] = 1,
	['_'] = 1,
	['~'] = 1,
	['0' ... '9'] = 1,
	['A' ... 'Z'] = 1,
	['a' ... 'z'] = 1,
};

bool ascii_is_utf8(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	const unsigned char *end = p + n;

	while (p < end) {
		unsigned lead = *p++;
		uint32_t point;
		int more;

		if (lead < 0x80)
			continue;
		if (lead >= 0xc2 && lead <= 0xdf) {
			more = 1;
			point = lead & 0x1f;
		} else if (lead >= 0xe0 && lead <= 0xef) {
			more = 2;
			point = lead & 0x0f;
		} else if (lead >= 0xf0 && lead <= 0xf4) {
			more = 3;
			point = lead & 0x07;
		} else {
			return false;
		}
		if (end - p < more)
			return false;
		for (int i = 0; i < more; i++, p++) {
			if ((*p & 0xc0) != 0x80)
				return false;
			point = point << 6 | (*p & 0x3f);
		}
		if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point <= 0xdfff))) ||
			(more == 3 && (point < 0x10000 || point > 0x10ffff)))
			return false;
	}
	return true;
}
