/* Strings: strict parsing of numbers, prefixes, lists of strings, the nearest of several words. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parses all of `s` as a decimal number within [min, max]; returns false otherwise. Rejects signs
 * and spaces. */
bool str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *out);
/* Like str_to_u64() with an optional '-'. */
bool str_to_i64(const char *s, int64_t min, int64_t max, int64_t *out);
/* Parses a size such as "512", "64k", "1.5GiB" or "2MB" (k, M, G, T are binary, kB, MB…
 * decimal). */
bool str_to_size(const char *s, uint64_t *bytes);

bool str_starts(const char *s, const char *prefix);
bool str_starts_any(const char *s, const char *const *prefixes, size_t n);
bool str_ends(const char *s, const char *suffix);

/* Formats a size as "12.3 MB", in decimal units, as for disks and networks. */
#define STR_SIZE_SIZE 16
void str_format_size(uint64_t bytes, char out[static STR_SIZE_SIZE]);

/* Writes `len` bytes as lower-case hexadecimal, and a NUL: 2 * len + 1 bytes in all. */
void str_hex(const void *data, size_t len, char *out);
/* Returns the length in bytes of the character at `text`, or 0 if it is not valid UTF-8: shortest
 * forms only, no surrogates, nothing above U+10FFFF. */
size_t str_utf8_length(const char *text, size_t len);
bool str_is_utf8(const char *s, size_t len);
/* Replaces each byte that is not valid UTF-8, such as a truncated character, with '?', in place. */
void str_make_utf8(char *text);
/* Returns the length of the control character at `text`, or 0 if there is none. U+0080 to U+009F
 * count, too, because terminals interpret them as escape sequences. */
size_t str_control(const char *text);
/* Replaces control characters with '?', in place. */
void str_hide_controls(char *text);
/* Returns the value of a hexadecimal digit, or -1 if `c` is another character. */
static inline int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
/* Returns -1 unless `s` is exactly 2 * len hexadecimal digits. */
int str_unhex(const char *s, void *out, size_t len);

/* Formats a string, which the caller frees. Returns NULL if out of memory. Replaces asprintf():
 * that of glibc writes a byte past the end of a text of 100 or 200 bytes if out of memory. */
char *str_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *str_vprintf(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* Returns an environment variable, or NULL if it is unset or empty. */
const char *str_env(const char *name);
/* Returns true if the variable is "true", in upper or lower case. */
bool str_env_is_true(const char *name);

/* Sets `*to` to a copy of `from`, which the caller frees; NULL gives NULL. Returns false if out of
 * memory. */
bool str_copy(char **to, const char *from);

/* Overwrites and frees a secret; NULL is allowed. */
void str_wipe(char *secret);
/* Compares secrets: takes the same time regardless of where they differ. */
bool str_equal_secret(const char *a, const char *b);

/* Returns the candidate nearest to `word` by edit distance (at most a third of the length of
 * `word`, and at most 3), or NULL if there is none. */
const char *str_nearest(const char *word, const char *const *candidates, size_t n);

/* A NULL-terminated, owned list of strings. */
struct strlist {
	char **items;
	size_t n;
};
int strlist_add(struct strlist *list, const char *s); /* copies; returns -1 if out of memory */
int strlist_addf(struct strlist *list, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds each of `items`, a NULL-terminated array or NULL. */
int strlist_add_all(struct strlist *list, const char *const *items);
void strlist_release(struct strlist *list);
/* Returns the value after "KEY=" in a list of such strings, or NULL if there is none. */
const char *strlist_get(const struct strlist *list, const char *key);
/* Replaces or adds "KEY=value". */
int strlist_set(struct strlist *list, const char *key, const char *value);
/* Removes "KEY=…". */
void strlist_unset(struct strlist *list, const char *key);

#endif
