/* URLs that name several shards: {000..099} and {train,test}. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/source/internal.h"

/* The text between a pair of braces, and its place. */
struct choice {
	const char *text; /* the whole text */
	const char *begin; /* "{" */
	const char *end; /* after "}" */
	const char *inner;
	size_t len;
};

static int invalid(const char *url, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_INVALID,
		"cannot open '%s': invalid braces; expected {FIRST..LAST}, such as {000..099}, or "
		"{A,B,…}",
		url);
}

static bool find_choice(const char *text, struct choice *out)
{
	out->text = text;
	out->begin = strchr(text, '{');
	if (!out->begin)
		return false;
	out->inner = out->begin + 1;
	out->len = strcspn(out->inner, "{}");
	out->end = out->inner + out->len + 1;
	return out->end[-1] == '}';
}

/* Appends the text with a value in place of the braces. `out` has room for one more text. */
static int add(struct strlist *out, const struct choice *at, const char *value, size_t len)
{
	char *name = str_printf(
		"%.*s%.*s%s", (int)(at->begin - at->text), at->text, (int)len, value, at->end);

	if (!name)
		return -1;
	out->items[out->n++] = name;
	return 0;
}

static bool get_number(const char *text, size_t len, uint64_t *out)
{
	char digits[20] = {0};

	if (len == 0 || len >= sizeof(digits))
		return false;
	memcpy(digits, text, len);
	return str_to_u64(digits, 0, INT64_MAX, out);
}

static bool is_padded(const char *text, size_t len)
{
	return len > 1 && *text == '0';
}

/* Parses FIRST..LAST. If either number is padded with zeros, `*digits` is the length of the longer
 * number. Returns false if the text is not a range. */
static bool get_range(const struct choice *at, uint64_t *first, uint64_t *last, int *digits)
{
	const char *dots = memmem(at->inner, at->len, "..", 2);
	size_t a = dots ? (size_t)(dots - at->inner) : 0, b = at->len - a - 2;

	if (!dots || !get_number(at->inner, a, first) || !get_number(dots + 2, b, last))
		return false;
	*digits = is_padded(at->inner, a) || is_padded(dots + 2, b) ? (int)(a > b ? a : b) : 1;
	return true;
}

/* Returns the number of values of the first braces, or 0 if the braces are invalid. */
static uint64_t count_values(const char *text)
{
	struct choice at;
	uint64_t first, last, commas = 0;
	int digits;

	if (!find_choice(text, &at))
		return 0;
	if (get_range(&at, &first, &last, &digits))
		return first <= last ? last - first + 1 : 0;
	for (size_t i = 0; i < at.len; i++)
		commas += at.inner[i] == ',';
	return commas ? commas + 1 : 0;
}

/* Appends a text for each value of the first braces. */
static int expand_one(const char *text, struct strlist *out)
{
	struct choice at;
	uint64_t first, last;
	int digits, r = 0;

	if (!find_choice(text, &at))
		return -1;
	if (get_range(&at, &first, &last, &digits)) {
		for (uint64_t i = first; r == 0 && i <= last; i++) {
			char number[32];
			int len = snprintf(number, sizeof(number), "%0*" PRIu64, digits, i);

			r = add(out, &at, number, (size_t)len);
		}
		return r;
	}
	for (const char *value = at.inner; r == 0 && value < at.end;) {
		size_t len = strcspn(value, ",}");

		r = add(out, &at, value, len);
		value += len + 1;
	}
	return r;
}

/* Replaces the first braces, which are the same in all texts. */
static int expand_all(const char *url, struct strlist *all, struct penstock_error *err)
{
	uint64_t values = count_values(all->items[0]);
	struct strlist next = {0};
	int r = 0;

	if (values == 0)
		return invalid(url, err);
	if (values > LIMIT_DATASET_WEB / all->n)
		return error_set(err, PENSTOCK_E_LIMIT,
			"cannot open '%s': it names more than %d files; use an index, which has no limit",
			url, LIMIT_DATASET_WEB);
	next.items = calloc(all->n * (size_t)values + 1, sizeof(*next.items));
	if (!next.items)
		return error_memory(err);
	for (size_t i = 0; r == 0 && i < all->n; i++)
		r = expand_one(all->items[i], &next);
	strlist_release(all);
	*all = next;
	return r < 0 ? error_memory(err) : 0;
}

int source_expand(
	const char *url, const char *text, struct strlist *out, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist all = {0};
	int r = strlist_add(&all, text) < 0 ? error_memory(err) : 0;

	while (r == 0 && all.n && strpbrk(all.items[0], "{}"))
		r = expand_all(url, &all, err);
	if (r < 0)
		return r;
	*out = all;
	all = (struct strlist){0};
	return 0;
}
