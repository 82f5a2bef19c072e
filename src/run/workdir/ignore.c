#include "run/workdir/ignore.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

void ignore_truncate(struct ignore *ignore, size_t n)
{
	while (ignore->n > n)
		free(ignore->rules[--ignore->n].pattern);
}

void ignore_release(struct ignore *ignore)
{
	ignore_truncate(ignore, 0);
	free(ignore->rules);
	*ignore = (struct ignore){0};
}

/* Adds one line, without its newline. */
static int add_line(struct ignore *ignore, const char *line, size_t len, size_t base)
{
	struct ignore_rule rule = {.base = base};
	struct ignore_rule *grown;

	while (len && (line[len - 1] == '\r' ||
			      (line[len - 1] == ' ' && (len < 2 || line[len - 2] != '\\'))))
		len--;
	if (!len || *line == '#')
		return 0;
	if (*line == '!') {
		rule.keep = true;
		line++;
		len--;
	}
	if (len && line[len - 1] == '/') {
		rule.dirs_only = true;
		len--;
	}
	rule.bound = memchr(line, '/', len) != NULL;
	if (len && *line == '/') {
		line++;
		len--;
	}
	if (!len)
		return 0;
	grown = reallocarray(ignore->rules, ignore->n + 1, sizeof(*grown));
	if (!grown)
		return -1;
	ignore->rules = grown;
	rule.pattern = strndup(line, len);
	if (!rule.pattern)
		return -1;
	ignore->rules[ignore->n++] = rule;
	return 0;
}

int ignore_add(struct ignore *ignore, const char *text, size_t base)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		if (add_line(ignore, text, len, base) < 0)
			return -1;
		text += len + (text[len] == '\n');
	}
	return 0;
}

/* Returns true if `c` is in the set after "["; `*end` is set after its "]", or to NULL if there is
 * no "]". */
static bool in_set(const char *set, char c, const char **end)
{
	bool negated = *set == '!' || *set == '^';
	bool found = false;
	const char *p = set + negated;

	*end = NULL;
	for (const char *first = p; *p && (*p != ']' || p == first); p++) {
		char low = *p == '\\' && p[1] ? *++p : *p;

		if (p[1] == '-' && p[2] && p[2] != ']') {
			found = found || (c >= low && c <= p[2]);
			p += 2;
		} else {
			found = found || c == low;
		}
	}
	if (*p == ']')
		*end = p + 1;
	return found != negated;
}

/* Returns true if `s` matches the pattern `p`. `steps` limits the work for many stars. */
static bool glob(const char *p, const char *s, unsigned *steps)
{
	for (; *p; p++, s++) {
		const char *end;

		if (*steps == 0)
			return false;
		--*steps;
		if (p[0] == '*' && p[1] == '*') {
			bool slash = p[2] == '/';

			if (slash && glob(p + 3, s, steps))
				return true;
			for (; *s; s++) {
				if ((!slash || *s == '/') &&
					glob(slash ? p + 3 : p + 2, slash ? s + 1 : s, steps))
					return true;
			}
			return !slash && !p[2];
		}
		if (*p == '*') {
			for (;; s++) {
				if (glob(p + 1, s, steps))
					return true;
				if (!*s || *s == '/')
					return false;
			}
		}
		if (!*s)
			return false;
		if (*p == '?' && *s != '/')
			continue;
		if (*p == '[' && *s != '/') {
			bool fits = in_set(p + 1, *s, &end);

			if (end) {
				if (!fits)
					return false;
				p = end - 1;
				continue;
			}
		}
		if (*p == '\\' && p[1])
			p++;
		if (*p != *s)
			return false;
	}
	return !*s;
}

bool ignore_match(const struct ignore *ignore, const char *path, bool is_dir)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = ignore->n; i-- > 0;) {
		const struct ignore_rule *rule = &ignore->rules[i];
		unsigned steps = 100000;
		const char *text = rule->bound ? path + rule->base : slash ? slash + 1 : path;

		if (rule->dirs_only && !is_dir)
			continue;
		if (glob(rule->pattern, text, &steps))
			return !rule->keep;
	}
	return false;
}
