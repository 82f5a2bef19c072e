/*
 * Texts of a policy with wildcards ('*' and '?') and variables such as ${aws:username}. The value
 * of a variable is literal: a '*' in a value is not a wildcard. Internal to src/s3/access.
 *
 *	struct pattern pattern, filled;
 *
 *	if (pattern_read(&pattern, &arena, "home/${aws:username}/" "*", PATTERN_VARIABLES) < 0)
 *		return error_memory(err);
 *	if (pattern_fill(&pattern, question, &memory, &filled) > 0)
 *		matches = pattern_match(&filled, "home/ada/x", false, NULL);
 */
#ifndef S3_ACCESS_PATTERN_H
#define S3_ACCESS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "s3/message/arena.h"

struct policy_question;
struct policy_values;

/* `text` has a NUL before each wildcard, and each variable as NUL, '$', name, NUL, default, NUL. */
struct pattern {
	const char *text;
	size_t len;
	bool has_variables;
};

enum {
	PATTERN_VARIABLES = 1, /* ${...} is a variable */
	PATTERN_LITERAL = 2, /* '*' and '?' are not wildcards */
};

/* Parses `text`; `flags` is a set of the values above. Returns -1 if out of memory. */
int pattern_read(struct pattern *out, struct arena *arena, const char *text, unsigned flags);
/* Sets `out` to the pattern with the values of its variables; `memory` is needed as long as `out`.
 * Returns 1, 0 if a variable has neither exactly one value nor a default, or a negative code. */
int pattern_fill(const struct pattern *pattern, const struct policy_question *question,
	struct buf *memory, struct pattern *out);
/* Gets the values of a condition key; this takes some of the steps of the question. Returns a
 * negative code if they cannot be read, or if no step is left. */
int policy_values_get(
	const struct policy_question *question, const char *key, struct policy_values *out);
/* Compares a text with a filled pattern. `steps` is as in struct policy_question; the result is
 * false if no step is left. */
bool pattern_match(const struct pattern *filled, const char *text, bool any_case, size_t *steps);
/* Compares an ARN with a pattern, part by part; an ARN has six parts, which colons separate. A text
 * or pattern with fewer parts is compared as a whole. */
bool pattern_match_arn(const struct pattern *filled, const char *arn, size_t *steps);
/* Returns true if the pattern has neither wildcards nor variables. */
bool pattern_is_fixed(const struct pattern *pattern);

#endif
