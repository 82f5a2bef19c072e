#include "s3/access/pattern.h"

#include <stdint.h>
#include <string.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/str.h"
#include "s3/access/policy.h"
#include "s3/ascii.h"

#define ARN_PARTS 6

/* ---- reading ---- */

/* Adds the variable at `p`, which begins with "${". Returns the length of the variable in the text,
 * or 0 if "}" is missing. */
static size_t add_variable(struct pattern *pattern, struct buf *out, const char *p)
{
	const char *name = p + 2, *end = strchr(name, '}'), *comma, *value;
	size_t n;

	if (!end)
		return 0;
	n = (size_t)(end - name);
	if (n == 1 && strchr("*?$", *name)) {
		buf_add_char(out, *name);
		return 4;
	}
	comma = memchr(name, ',', n);
	value = comma ? comma + 1 + strspn(comma + 1, " \t") : end;
	pattern->has_variables = true;
	buf_add(out, "\0$", 2);
	buf_add(out, name, (size_t)((comma ? comma : end) - name));
	buf_add_char(out, '\0');
	/* ${key, 'default'} */
	if (end - value >= 2 && *value == '\'' && end[-1] == '\'')
		buf_add(out, value + 1, (size_t)(end - value) - 2);
	buf_add_char(out, '\0');
	return n + 3;
}

int pattern_read(struct pattern *out, struct arena *arena, const char *text, unsigned flags)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(4 * strlen(text) + 1);

	*out = (struct pattern){0};
	for (const char *p = text; *p;) {
		size_t n = (flags & PATTERN_VARIABLES) && p[0] == '$' && p[1] == '{'
				   ? add_variable(out, &b, p)
				   : 0;

		if (n) {
			p += n;
			continue;
		}
		if (!(flags & PATTERN_LITERAL) && (*p == '*' || *p == '?'))
			buf_add_char(&b, '\0');
		buf_add_char(&b, *p++);
	}
	out->len = b.len;
	out->text = buf_failed(&b) ? NULL : arena_copy(arena, buf_str(&b), b.len);
	return out->text ? 0 : -1;
}

bool pattern_is_fixed(const struct pattern *pattern)
{
	return !memchr(pattern->text, '\0', pattern->len);
}

/* ---- filling ---- */

/* The search for the value of a key costs about as much as this number of steps. */
#define SEARCH_STEPS 512

int policy_values_get(
	const struct policy_question *question, const char *key, struct policy_values *out)
{
	size_t n = 0;
	int rc;

	if (!policy_spend(question, SEARCH_STEPS))
		return -PENSTOCK_E_LIMIT;
	rc = question->values ? question->values(question, key, out) : 0;
	for (size_t i = 0; i < out->n; i++)
		n += strlen(out->items[i]);
	policy_spend(question, n);
	return rc;
}

/* Adds the value of the variable whose name is at `*p`, and moves `*p` to the text after the
 * variable. Returns 1, 0 if there is no value, or a negative code. */
static int fill_variable(const char **p, const struct policy_question *q, struct buf *out)
{
	const char *name = *p, *otherwise = name + strlen(name) + 1;
	struct policy_values values = {0};
	int rc = policy_values_get(q, name, &values);

	*p = otherwise + strlen(otherwise) + 1;
	if (rc < 0)
		return rc;
	if (values.n == 1)
		buf_add_str(out, values.items[0]);
	else if (*otherwise)
		buf_add_str(out, otherwise);
	else
		return 0;
	return 1;
}

int pattern_fill(const struct pattern *pattern, const struct policy_question *q, struct buf *memory,
	struct pattern *out)
{
	const char *end = pattern->text + pattern->len;

	*out = *pattern;
	if (pattern->has_variables && !policy_spend(q, pattern->len))
		return -PENSTOCK_E_LIMIT;
	for (const char *p = pattern->text; pattern->has_variables && p < end;) {
		int rc;

		if (*p || p[1] != '$') {
			buf_add_char(memory, *p++);
			continue;
		}
		p += 2;
		rc = fill_variable(&p, q, memory);
		if (rc <= 0)
			return rc;
	}
	if (pattern->has_variables)
		*out = (struct pattern){.text = buf_str(memory), .len = memory->len};
	return buf_failed(memory) ? -PENSTOCK_E_MEMORY : 1;
}

/* ---- comparing ---- */

struct range {
	const char *p, *end;
};

static size_t character(const char *p, const char *end)
{
	size_t n = str_utf8_length(p, (size_t)(end - p));

	return n ? n : 1;
}

static bool is_star(const struct range *r)
{
	return r->p < r->end && r->p[0] == '\0' && r->p[1] == '*';
}

static bool match(struct range pattern, struct range text, bool any_case, size_t *steps)
{
	size_t unlimited = SIZE_MAX, *left = steps ? steps : &unlimited;
	/* `retry`: position after the last star; `from`: end of the text that this star matches */
	const char *retry = NULL, *from = NULL;

	while (text.p < text.end) {
		if (!*left)
			return false;
		--*left;
		if (is_star(&pattern)) {
			retry = pattern.p += 2;
			from = text.p;
		} else if (pattern.p < pattern.end && *pattern.p == '\0') {
			pattern.p += 2;
			text.p += character(text.p, text.end);
		} else if (pattern.p < pattern.end &&
			   (*pattern.p == *text.p ||
				   (any_case && ascii_lower(*pattern.p) == ascii_lower(*text.p)))) {
			pattern.p++;
			text.p++;
		} else if (retry) {
			pattern.p = retry;
			text.p = ++from;
		} else {
			return false;
		}
	}
	while (is_star(&pattern))
		pattern.p += 2;
	return pattern.p == pattern.end;
}

static struct range filled_range(const struct pattern *filled)
{
	return (struct range){filled->text, filled->text + filled->len};
}

bool pattern_match(const struct pattern *filled, const char *text, bool any_case, size_t *steps)
{
	return match(
		filled_range(filled), (struct range){text, text + strlen(text)}, any_case, steps);
}

/* Splits at the first colons; the last part keeps any further colons. Returns the number of
 * parts. */
static size_t split(struct range whole, struct range parts[ARN_PARTS])
{
	size_t n = 0;

	for (;;) {
		const char *colon = n + 1 < ARN_PARTS && whole.p < whole.end
					    ? memchr(whole.p, ':', (size_t)(whole.end - whole.p))
					    : NULL;

		parts[n++] = (struct range){whole.p, colon ? colon : whole.end};
		if (!colon)
			return n;
		whole.p = colon + 1;
	}
}

bool pattern_match_arn(const struct pattern *filled, const char *arn, size_t *steps)
{
	struct range pattern[ARN_PARTS], text[ARN_PARTS];

	if (split(filled_range(filled), pattern) < ARN_PARTS ||
		split((struct range){arn, arn + strlen(arn)}, text) < ARN_PARTS)
		return pattern_match(filled, arn, false, steps);
	for (size_t i = 0; i < ARN_PARTS; i++)
		if (!match(pattern[i], text[i], false, steps))
			return false;
	return true;
}
