#include "run/cluster/hostlist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"

enum { BRACKETS_MAX = 8, DIGITS_MAX = 18 };

struct expansion {
	const char *text; /* the whole list, for messages */
	struct strlist names;
	struct penstock_error *err;
};

static int invalid(const struct expansion *e, const char *what)
{
	return error_set(
		e->err, PENSTOCK_E_INVALID, "invalid host list '%.80s': %s", e->text, what);
}

static int add_name(struct expansion *e, const char *name)
{
	if (e->names.n >= LIMIT_HOSTLIST)
		return error_set(e->err, PENSTOCK_E_LIMIT,
			"invalid host list '%.80s': more than %d hosts", e->text, LIMIT_HOSTLIST);
	return strlist_add(&e->names, name) < 0 ? error_memory(e->err) : 0;
}

/* Reads "12" or "08-12"; `*rest` is the text after it. */
static int read_range(const struct expansion *e, const char *at, uint64_t *low, uint64_t *high,
	int *width, const char **rest)
{
	char digits[2][DIGITS_MAX + 1];
	uint64_t numbers[2];
	int n = 0;

	for (;; at++) {
		size_t len = strspn(at, "0123456789");

		if (len == 0 || len > DIGITS_MAX)
			return invalid(e, "a bracket without a number");
		memcpy(digits[n], at, len);
		digits[n][len] = '\0';
		if (!str_to_u64(digits[n], 0, UINT64_MAX, &numbers[n]))
			return invalid(e, "invalid number");
		at += len;
		n++;
		if (*at != '-' || n == 2)
			break;
	}
	*low = numbers[0];
	*high = numbers[n - 1];
	*width = (int)strlen(digits[0]);
	*rest = at;
	return *low <= *high ? 0 : invalid(e, "a reversed range");
}

/* Expands the rest of one item; `head` is its expanded beginning. */
static int expand_item(
	struct expansion *e, const char *head, const char *at, size_t len, int depth);

/* Expands the content of a bracket, one range after another. */
static int expand_bracket(struct expansion *e, const char *head, const char *inside,
	const char *behind, size_t behind_len, int depth)
{
	for (;; inside++) {
		uint64_t low = 0;
		uint64_t high = 0;
		int width = 0;
		int r = read_range(e, inside, &low, &high, &width, &inside);

		for (uint64_t n = low; r == 0 && n <= high; n++) {
			_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_HOST_NAME);

			buf_printf(&name, "%s%0*" PRIu64, head, width, n);
			if (buf_failed(&name))
				r = buf_error(&name, "the host name", e->err);
			else
				r = expand_item(e, buf_str(&name), behind, behind_len, depth + 1);
		}
		if (r < 0)
			return r;
		if (*inside == ']')
			return 0;
		if (*inside != ',')
			return invalid(e, "invalid character in a bracket");
	}
}

static int expand_item(struct expansion *e, const char *head, const char *at, size_t len, int depth)
{
	_cleanup_(buf_release) struct buf name = BUF_INIT(LIMIT_HOST_NAME);
	const char *open = memchr(at, '[', len);
	size_t plain = open ? (size_t)(open - at) : len;
	const char *close;

	buf_add_str(&name, head);
	buf_add(&name, at, plain);
	if (buf_failed(&name))
		return buf_error(&name, "the host name", e->err);
	if (!open)
		return name.len ? add_name(e, buf_str(&name)) : invalid(e, "an empty name");
	close = memchr(open, ']', len - plain);
	if (!close || depth >= BRACKETS_MAX)
		return invalid(e, close ? "too many brackets" : "[ without ]");
	return expand_bracket(
		e, buf_str(&name), open + 1, close + 1, (size_t)(at + len - close - 1), depth);
}

static int check_item(const struct expansion *e, const char *at, size_t len)
{
	bool inside = false;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)at[i];

		if (c <= ' ' || c == 0x7f)
			return invalid(e, "a space or a control character");
		if ((c == '[' && inside) || (c == ']' && !inside))
			return invalid(e, "unbalanced brackets");
		inside = c == '[' || (inside && c != ']');
	}
	return 0;
}

int hostlist_expand(const char *text, struct strlist *out, struct penstock_error *err)
{
	struct expansion e = {.text = text, .err = err};
	int r = 0;

	for (const char *at = text; r == 0; at++) {
		/* An item ends at the next comma outside of brackets. */
		size_t len = 0;
		bool inside = false;

		for (; at[len] && (inside || at[len] != ','); len++) {
			if (at[len] == '[')
				inside = true;
			else if (at[len] == ']')
				inside = false;
		}

		r = check_item(&e, at, len);
		if (r == 0)
			r = expand_item(&e, "", at, len, 0);
		at += len;
		if (!*at)
			break;
	}
	for (size_t i = 0; r == 0 && i < e.names.n; i++) {
		if (strlist_add(out, e.names.items[i]) < 0)
			r = error_memory(err);
	}
	strlist_release(&e.names);
	return r;
}

/* Reads a number of at most nine digits. Returns NULL if there is no such number. */
static const char *read_number(const char *at, size_t *out)
{
	size_t len = strspn(at, "0123456789");

	if (len == 0 || len > 9)
		return NULL;
	*out = strtoul(at, NULL, 10);
	return at + len;
}

int hostlist_count(const char *text, size_t node)
{
	for (const char *at = text;; at++) {
		size_t count;
		size_t times = 1;

		at = read_number(at, &count);
		if (at && at[0] == '(' && at[1] == 'x') {
			at = read_number(at + 2, &times);
			at = at && *at == ')' ? at + 1 : NULL;
		}
		if (!at || (*at && *at != ','))
			return -1;
		if (node < times)
			return (int)count;
		node -= times;
		if (!*at)
			return -1;
	}
}

char *hostlist_first(const char *text)
{
	_cleanup_(strlist_release) struct strlist all = {0};

	return hostlist_expand(text, &all, NULL) == 0 && all.n ? strdup(all.items[0]) : NULL;
}

char *hostlist_words(const char *text)
{
	_cleanup_(strlist_release) struct strlist all = {0};
	struct buf out = BUF_INIT(LIMIT_STRING);

	if (hostlist_expand(text, &all, NULL) < 0 || !all.n)
		return NULL;
	for (size_t i = 0; i < all.n; i++)
		buf_printf(&out, "%s%s", i ? " " : "", all.items[i]);
	return buf_take(&out);
}
