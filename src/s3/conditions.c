#include "s3/conditions.h"

#include <stddef.h>
#include <string.h>

#include "s3/ascii.h"
#include "s3/date.h"

struct tag {
	const char *p; /* without quotes */
	size_t n;
	bool weak;
};

/* Reads the ETag at `p`, quoted or bare, and returns the position after the ETag. */
static const char *take_tag(const char *p, struct tag *out)
{
	out->weak = p[0] == 'W' && p[1] == '/';
	if (out->weak)
		p += 2;
	if (*p == '"') {
		const char *end = strchr(++p, '"');

		out->p = p;
		out->n = end ? (size_t)(end - p) : strlen(p);
		return end ? end + 1 : p + out->n;
	}
	out->p = p;
	out->n = strcspn(p, ",");
	p += out->n;
	while (out->n > 0 && ascii_space(out->p[out->n - 1]))
		out->n--;
	return p;
}

static bool same_tag(const struct tag *a, const struct tag *b)
{
	return a->n == b->n && memcmp(a->p, b->p, a->n) == 0;
}

bool etag_list_matches(const char *list, const char *etag, bool weak_allowed)
{
	struct tag ours, theirs;

	take_tag(etag, &ours);
	for (const char *p = list;;) {
		while (ascii_space(*p) || *p == ',')
			p++;
		if (*p == '\0')
			return false;
		bool quoted = *p == '"';

		p = take_tag(p, &theirs);
		if (!quoted && !theirs.weak && theirs.n == 1 && theirs.p[0] == '*')
			return true;
		if (same_tag(&ours, &theirs) && (weak_allowed || (!ours.weak && !theirs.weak)))
			return true;
		while (*p && *p != ',')
			p++;
	}
}

static bool matches(const char *list, const struct condition_state *state, bool weak_allowed)
{
	return state->exists && state->etag && etag_list_matches(list, state->etag, weak_allowed);
}

enum condition_result conditions_evaluate(
	const struct conditions *c, const struct condition_state *state, bool read)
{
	int64_t date;

	if (c->if_match) {
		if (!matches(c->if_match, state, false))
			return CONDITION_FAILED;
	} else if (c->if_unmodified_since && state->exists &&
		   date_parse_http(c->if_unmodified_since, &date) && state->modified > date) {
		return CONDITION_FAILED;
	}
	if (c->if_none_match) {
		if (matches(c->if_none_match, state, true))
			return read ? CONDITION_NOT_MODIFIED : CONDITION_FAILED;
	} else if (c->if_modified_since && read && state->exists &&
		   date_parse_http(c->if_modified_since, &date) && state->modified <= date) {
		return CONDITION_NOT_MODIFIED;
	}
	return CONDITION_PASS;
}

enum condition_result conditions_evaluate_copy_source(
	const struct conditions *c, const struct condition_state *state)
{
	return conditions_evaluate(c, state, true) == CONDITION_PASS ? CONDITION_PASS
								     : CONDITION_FAILED;
}

bool condition_if_range(const char *if_range, const struct condition_state *state)
{
	struct tag ours, theirs;
	int64_t date;

	if (!if_range)
		return true;
	if (!state->exists)
		return false;
	if (date_parse_http(if_range, &date))
		return state->modified == date;
	if (!state->etag)
		return false;
	take_tag(state->etag, &ours);
	take_tag(if_range, &theirs);
	return !ours.weak && !theirs.weak && same_tag(&ours, &theirs);
}
