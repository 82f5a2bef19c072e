#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

bool str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
			__builtin_add_overflow(value, (uint64_t)(*s - '0'), &value))
			return false;
	}
	if (value < min || value > max)
		return false;
	*out = value;
	return true;
}

bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out)
{
	bool negative = *s == '-';
	uint64_t magnitude;
	int64_t value;

	if (!str_to_u64(s + negative, 0, (uint64_t)INT64_MAX + negative, &magnitude))
		return false;
	value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
	if (value < min || value > max)
		return false;
	*out = value;
	return true;
}

bool str_to_size(const char *s, uint64_t *bytes)
{
	static const char letters[] = "kmgt";
	char *end;
	double value;
	double unit = 1;

	if (!isdigit((unsigned char)*s))
		return false;
	errno = 0;
	value = strtod(s, &end);
	if (errno || !isfinite(value) || strspn(s, "0123456789.") != (size_t)(end - s))
		return false; /* also "0x10" and "1e3", which strtod() accepts */
	while (*end == ' ')
		end++;
	if (*end) {
		const char *letter = strchr(letters, tolower((unsigned char)*end));

		if (letter && *letter) {
			const char *rest = end + 1;
			bool decimal = strcasecmp(rest, "b") == 0;

			if (!decimal && *rest && strcasecmp(rest, "ib") != 0 &&
				strcasecmp(rest, "i") != 0)
				return false;
			for (const char *l = letters; l <= letter; l++)
				unit *= decimal ? 1000 : 1024;
		} else if (strcasecmp(end, "b") != 0) {
			return false;
		}
	}
	value *= unit;
	if (value > 9e18)
		return false;
	*bytes = (uint64_t)value;
	return true;
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_starts_any(const char *s, const char *const *prefixes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (str_starts(s, prefixes[i]))
			return true;
	}
	return false;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t len = strlen(s);
	size_t tail = strlen(suffix);

	return len >= tail && strcmp(s + len - tail, suffix) == 0;
}

void str_format_size(uint64_t bytes, char out[static STR_SIZE_SIZE])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < ARRAY_SIZE(units)) {
		value /= 1000;
		unit++;
	}
	snprintf(out, STR_SIZE_SIZE, unit && value < 99.95 ? "%.1f %s" : "%.0f %s", value,
		units[unit]);
}

void str_hex(const void *data, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * len] = '\0';
}

int str_unhex(const char *s, void *out, size_t len)
{
	unsigned char *p = out;

	if (strlen(s) != 2 * len)
		return -1;
	for (size_t i = 0; i < len; i++) {
		int high = str_hex_digit(s[2 * i]);
		int low = str_hex_digit(s[2 * i + 1]);

		if (high < 0 || low < 0)
			return -1;
		p[i] = (unsigned char)(high << 4 | low);
	}
	return 0;
}

char *str_vprintf(const char *fmt, va_list ap)
{
	va_list again;
	char *text;
	int len;

	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	text = len < 0 ? NULL : malloc((size_t)len + 1);
	if (text)
		vsnprintf(text, (size_t)len + 1, fmt, ap);
	return text;
}

char *str_printf(const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	text = str_vprintf(fmt, ap);
	va_end(ap);
	return text;
}

const char *str_env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

bool str_env_is_true(const char *name)
{
	const char *value = str_env(name);

	return value && strcasecmp(value, "true") == 0;
}

bool str_copy(char **to, const char *from)
{
	*to = from ? strdup(from) : NULL;
	return *to || !from;
}

void str_wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

bool str_equal_secret(const char *a, const char *b)
{
	size_t len = strlen(a);
	unsigned char differs = len != strlen(b);

	for (size_t i = 0; i < len && !(differs && b[i] == '\0'); i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}

static bool same_letter(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Returns the number of edits between two words: letters that are inserted, removed or replaced,
 * and adjacent letters that are swapped. Case-insensitive; words longer than 63 bytes never
 * match. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t rows[3][64];
	size_t *two_above = rows[0], *above = rows[1], *row = rows[2];
	size_t n = strlen(b);

	if (n >= ARRAY_SIZE(rows[0]) || strlen(a) >= ARRAY_SIZE(rows[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t *oldest = two_above;

		two_above = above;
		above = row;
		row = oldest;
		row[0] = i + 1;
		for (size_t j = 0; j < n; j++) {
			size_t cost = above[j] + !same_letter(a[i], b[j]);

			if (above[j + 1] + 1 < cost)
				cost = above[j + 1] + 1;
			if (row[j] + 1 < cost)
				cost = row[j] + 1;
			if (i && j && same_letter(a[i], b[j - 1]) && same_letter(a[i - 1], b[j]) &&
				two_above[j - 1] + 1 < cost)
				cost = two_above[j - 1] + 1;
			row[j + 1] = cost;
		}
	}
	return row[n];
}

const char *str_nearest(const char *word, const char *const *candidates, size_t n)
{
	size_t best = strlen(word) / 3 + 1;
	const char *nearest = NULL;

	if (best > 4)
		best = 4;
	for (size_t i = 0; i < n; i++) {
		size_t distance = edit_distance(word, candidates[i]);

		if (distance < best) {
			best = distance;
			nearest = candidates[i];
		}
	}
	return nearest;
}

static int strlist_adopt(struct strlist *list, char *s)
{
	char **items;

	if (!s)
		return -1;
	items = realloc(list->items, (list->n + 2) * sizeof(*items));
	if (!items) {
		free(s);
		return -1;
	}
	list->items = items;
	list->items[list->n++] = s;
	list->items[list->n] = NULL;
	return 0;
}

int strlist_add(struct strlist *list, const char *s)
{
	return strlist_adopt(list, strdup(s));
}

int strlist_addf(struct strlist *list, const char *fmt, ...)
{
	char *s;
	va_list ap;

	va_start(ap, fmt);
	s = str_vprintf(fmt, ap);
	va_end(ap);
	return strlist_adopt(list, s);
}

int strlist_add_all(struct strlist *list, const char *const *items)
{
	for (; items && *items; items++) {
		if (strlist_add(list, *items) < 0)
			return -1;
	}
	return 0;
}

void strlist_release(struct strlist *list)
{
	if (!list)
		return;
	for (size_t i = 0; i < list->n; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct strlist){0};
}

static char **find_variable(const struct strlist *list, const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 0; i < list->n; i++) {
		if (strncmp(list->items[i], key, len) == 0 && list->items[i][len] == '=')
			return &list->items[i];
	}
	return NULL;
}

const char *strlist_get(const struct strlist *list, const char *key)
{
	char **found = find_variable(list, key);

	return found ? *found + strlen(key) + 1 : NULL;
}

int strlist_set(struct strlist *list, const char *key, const char *value)
{
	char **found = find_variable(list, key);
	char *pair = str_printf("%s=%s", key, value);

	if (!pair)
		return -1;
	if (!found)
		return strlist_adopt(list, pair);
	free(*found);
	*found = pair;
	return 0;
}

void strlist_unset(struct strlist *list, const char *key)
{
	char **found;

	while ((found = find_variable(list, key))) {
		free(*found);
		list->n--;
		/* Moves the terminating NULL, too. */
		memmove(found, found + 1,
			(size_t)(list->items + list->n + 1 - found) * sizeof(*found));
	}
}

size_t str_utf8_length(const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	unsigned char low = 0x80, high = 0xbf;
	size_t n = *s < 0x80   ? 1
		   : *s < 0xc2 ? 0
		   : *s < 0xe0 ? 2
		   : *s < 0xf0 ? 3
		   : *s < 0xf5 ? 4
			       : 0;

	if (n > len)
		return 0;
	/* Reject overlong forms, surrogates, and values beyond U+10FFFF. */
	low = *s == 0xe0 ? 0xa0 : *s == 0xf0 ? 0x90 : low;
	high = *s == 0xed ? 0x9f : *s == 0xf4 ? 0x8f : high;
	for (size_t i = 1; i < n; i++) {
		if (s[i] < low || s[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return n;
}

bool str_is_utf8(const char *s, size_t len)
{
	for (size_t n; len > 0; s += n, len -= n) {
		n = str_utf8_length(s, len);
		if (!n)
			return false;
	}
	return true;
}

void str_make_utf8(char *text)
{
	while (*text) {
		size_t n = str_utf8_length(text, strnlen(text, 4));

		if (!n)
			*text = '?';
		text += n ? n : 1;
	}
}

size_t str_control(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	if (*p < 0x20 || *p == 0x7f)
		return *p ? 1 : 0;
	return p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

void str_hide_controls(char *text)
{
	char *to = text;

	while (*text) {
		size_t n = str_control(text);

		*to++ = n ? '?' : *text;
		text += n ? n : 1;
	}
	*to = '\0';
}
