/* URLs that name several shards: {000..099} and {train,test}. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "dataset/source/internal.h"

/* The text between a pair of braces, and where it is. */
struct choice {
	const char *text; /* all of it */
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

static int add(struct strlist *out, const struct choice *at, const char *value, size_t len)
{
	return strlist_addf(
		out, "%.*s%.*s%s", (int)(at->begin - at->text), at->text, (int)len, value, at->end);
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

/* Numbers have as many digits as the longer one if either is padded with zeros. Returns false if it
 * is no range. */
static bool get_range(const struct choice *at, uint64_t *first, uint64_t *last, int *digits)
{
	const char *dots = memmem(at->inner, at->len, "..", 2);
	size_t a = dots ? (size_t)(dots - at->inner) : 0, b = at->len - a - 2;

	if (!dots || !get_number(at->inner, a, first) || !get_number(dots + 2, b, last))
		return false;
	*digits = is_padded(at->inner, a) || is_padded(dots + 2, b) ? (int)(a > b ? a : b) : 1;
	return true;
}

static int too_many(const char *url, struct penstock_error *err)
{
	return error_set(err, PENSTOCK_E_LIMIT,
		"cannot open '%s': it names more than %d files; an index has no such limit", url,
		LIMIT_DATASET_WEB);
}

/* Replaces the first pair of braces by each of its values. */
static int expand_one(
	const char *url, const char *text, struct strlist *out, struct penstock_error *err)
{
	struct choice at;
	uint64_t first, last;
	int digits, r = 0;

	if (!find_choice(text, &at))
		return invalid(url, err);
	if (get_range(&at, &first, &last, &digits)) {
		if (first > last)
			return invalid(url, err);
		if (last - first >= LIMIT_DATASET_WEB - out->n)
			return too_many(url, err);
		for (uint64_t i = first; r == 0 && i <= last; i++) {
			char number[32];
			int len = snprintf(number, sizeof(number), "%0*" PRIu64, digits, i);

			r = add(out, &at, number, (size_t)len);
		}
		return r < 0 ? error_memory(err) : 0;
	}
	if (!memchr(at.inner, ',', at.len))
		return invalid(url, err);
	for (const char *value = at.inner; r == 0 && value < at.end;) {
		size_t len = strcspn(value, ",}");

		if (out->n == LIMIT_DATASET_WEB)
			return too_many(url, err);
		r = add(out, &at, value, len);
		value += len + 1;
	}
	return r < 0 ? error_memory(err) : 0;
}

int source_expand(
	const char *url, const char *text, struct strlist *out, struct penstock_error *err)
{
	_cleanup_(strlist_release) struct strlist all = {0};
	int r = strlist_add(&all, text) < 0 ? error_memory(err) : 0;

	/* All have as many braces. */
	while (r == 0 && all.n && strpbrk(all.items[0], "{}")) {
		struct strlist next = {0};

		for (size_t i = 0; r == 0 && i < all.n; i++)
			r = expand_one(url, all.items[i], &next, err);
		strlist_release(&all);
		all = next;
	}
	if (r == 0) {
		*out = all;
		all = (struct strlist){0};
	}
	return r;
}
