/* Bytes of protocol text, independent of the locale. Internal to src/s3. */
#ifndef S3_ASCII_H
#define S3_ASCII_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

static inline char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static inline bool ascii_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns the byte that two hexadecimal digits encode, or -1 if a digit is invalid. Reads the
 * second digit only if the first is valid. */
static inline int ascii_hex_byte(const char *s)
{
	int high = str_hex_digit(s[0]);
	int low = high < 0 ? -1 : str_hex_digit(s[1]);

	return low < 0 ? -1 : high * 16 + low;
}

/* Decodes the first character of `s`, which has n > 0 bytes: "%XX" to a byte, '+' to a space if
 * `plus` is set, any other to itself. Returns its length in `s`, or 0 if a '%' lacks its two
 * digits. */
static inline size_t ascii_decode_byte(const char *s, size_t n, bool plus, char *out)
{
	const char first = *s; /* `out` may be `s` */
	int value = first == '%' ? n > 2 ? ascii_hex_byte(s + 1) : -1 : (unsigned char)first;

	*out = first == '+' && plus ? ' ' : (char)value;
	return value < 0 ? 0 : first == '%' ? 3 : 1;
}

/* Returns true if `s`, n bytes, equals `word`, ignoring case. */
static inline bool ascii_equal(const char *s, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++) {
		if (word[i] == '\0' || ascii_lower(s[i]) != ascii_lower(word[i]))
			return false;
	}
	return word[n] == '\0';
}

static inline bool ascii_starts(const char *s, const char *prefix)
{
	for (; *prefix; s++, prefix++) {
		if (ascii_lower(*s) != ascii_lower(*prefix))
			return false;
	}
	return true;
}

/* Has 1 for A-Z a-z 0-9 - . _ ~ and 0 for other bytes. */
extern const uint8_t ascii_unreserved[256];

static inline size_t ascii_encode_byte(char *out, unsigned char c, bool keep_slash)
{
	static const char digits[] = "0123456789ABCDEF";

	if (ascii_unreserved[c] || (c == '/' && keep_slash)) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = '%';
	out[1] = digits[c >> 4];
	out[2] = digits[c & 15];
	return 3;
}

/* Percent-encodes `s` into `out`, which has room for 3 * n bytes. Returns the number of bytes
 * written. */
static inline size_t ascii_encode(char *out, const char *s, size_t n, bool keep_slash)
{
	char *start = out;

	for (size_t i = 0; i < n; i++)
		out += ascii_encode_byte(out, (unsigned char)s[i], keep_slash);
	return (size_t)(out - start);
}

#endif
