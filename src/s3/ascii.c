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
