#include "transfer/list/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "s3/ascii.h"

/* digits after the first difference: enough for any fraction of a page */
#define DIGITS_BEHIND ((size_t)10)

static bool has(const uint64_t set[4], unsigned byte)
{
	return set[byte / 64] >> (byte % 64) & 1;
}

static void add(uint64_t set[4], unsigned byte)
{
	set[byte / 64] |= UINT64_C(1) << (byte % 64);
}

void list_model_add(struct list_model *model, const char *key)
{
	size_t i = 0;

	for (; key[i] && i < LIST_MODEL_KEY; i++)
		add(model->seen[i], (unsigned char)key[i]);
	if (i < LIST_MODEL_KEY)
		add(model->seen[i], 0);
	if (i > model->len)
		model->len = i;
}

/* ---- digits ---- */

/* The bytes that a position may have; the digit of a byte is the number of smaller bytes in the
 * set. */
struct alphabet {
	uint64_t set[4];
	unsigned n;
};

static void add_range(uint64_t set[4], unsigned first, unsigned last)
{
	for (unsigned c = first; c <= last; c++)
		add(set, c);
}

static bool any(const uint64_t set[4], unsigned first, unsigned last)
{
	for (unsigned c = first; c <= last; c++) {
		if (has(set, c))
			return true;
	}
	return false;
}

/* Sets `a` to the bytes that may occur if those in `seen` occurred: with a digit, any digit; with a
 * letter, any letter of the same case. */
static void alphabet_of(struct alphabet *a, const uint64_t seen[4])
{
	bool digits = any(seen, '0', '9');

	memcpy(a->set, seen, sizeof(a->set));
	if (digits)
		add_range(a->set, '0', '9');
	/* Letters up to f together with digits are hexadecimal until another letter is seen. */
	if (any(seen, 'a', 'z'))
		add_range(a->set, 'a', digits && !any(seen, 'g', 'z') ? 'f' : 'z');
	if (any(seen, 'A', 'Z'))
		add_range(a->set, 'A', digits && !any(seen, 'G', 'Z') ? 'F' : 'Z');
	a->n = 0;
	for (unsigned i = 0; i < 4; i++)
		a->n += (unsigned)__builtin_popcountll(a->set[i]);
	if (!a->n) {
		add(a->set, 0);
		a->n = 1;
	}
}

/* Returns the digit of the greatest byte of the alphabet that is not above `byte`; 0 if there is
 * none. */
static unsigned digit_of(const struct alphabet *a, unsigned byte)
{
	unsigned below = 0;

	for (unsigned i = 0; i < byte / 64; i++)
		below += (unsigned)__builtin_popcountll(a->set[i]);
	below += (unsigned)__builtin_popcountll(
		a->set[byte / 64] & (UINT64_MAX >> (63 - byte % 64)));
	return below ? below - 1 : 0;
}

static char byte_of(const struct alphabet *a, unsigned digit)
{
	for (unsigned i = 0; i < 4; i++) {
		unsigned here = (unsigned)__builtin_popcountll(a->set[i]);
		uint64_t left = a->set[i];

		if (digit >= here) {
			digit -= here;
			continue;
		}
		while (digit--)
			left &= left - 1;
		return (char)(i * 64 + (unsigned)__builtin_ctzll(left));
	}
	return 0;
}

static unsigned char byte_at(const char *text, size_t len, size_t i)
{
	return i < len ? (unsigned char)text[i] : 0;
}

/* Computes the first `n` digits of `at` + `times` * (`last` - `first`), as bytes. Returns false on
 * overflow. */
static bool extrapolate(const struct list_model *model, const char *first, const char *last,
	const char *at, uint64_t times, size_t n, char *out)
{
	size_t first_len = strlen(first), last_len = strlen(last), at_len = strlen(at);
	int64_t borrow = 0;
	uint64_t carry = 0;

	for (size_t i = n; i-- > 0;) {
		struct alphabet a;
		int64_t step;
		uint64_t sum;

		alphabet_of(&a, model->seen[i]);
		step = (int64_t)digit_of(&a, byte_at(last, last_len, i)) -
		       (int64_t)digit_of(&a, byte_at(first, first_len, i)) - borrow;
		borrow = step < 0;
		if (borrow)
			step += a.n;
		sum = digit_of(&a, byte_at(at, at_len, i)) + (uint64_t)step * times + carry;
		carry = sum / a.n;
		out[i] = byte_of(&a, (unsigned)(sum % a.n));
	}
	return carry == 0 && borrow == 0;
}

char *list_model_ahead(const struct list_model *model, const char *prefix, const char *first,
	const char *last, const char *at, uint64_t times)
{
	size_t n = 0;
	char *out;

	while (first[n] && first[n] == last[n])
		n++;
	n += DIGITS_BEHIND;
	if (n > model->len)
		n = model->len;
	out = malloc(n + 1);
	if (!out)
		return NULL;
	out[n] = '\0';
	if (!extrapolate(model, first, last, at, times, n, out)) {
		free(out);
		return NULL;
	}
	/* Requests have UTF-8 text: remove an incomplete character at the end. */
	while (n && !str_is_utf8(out, strlen(out)))
		out[--n] = '\0';
	if (!str_starts(out, prefix) || strcmp(out, at) <= 0) {
		free(out);
		return NULL;
	}
	return out;
}
