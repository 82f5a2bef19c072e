#include "server/form/policy.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "s3/date.h"
#include "s3/json.h"
#include "s3/uri.h"

enum op { EQ, STARTS_WITH, LENGTH_RANGE };
static const char *const ops[] = {"eq", "starts-with", "content-length-range"};

struct condition {
	enum op op;
	const char *name; /* as in the policy, without '$' */
	const char *value;
	uint64_t min, max; /* sizes of LENGTH_RANGE */
};

static enum s3_error invalid(struct buf *message, const char *problem)
{
	buf_printf(message, "Invalid Policy: %s", problem);
	return S3_E_INVALID_POLICY_DOCUMENT;
}

/* --- reading a condition --------------------------------------------------------------------- */

/* Reads a size, which may be a number or a text. */
static bool read_size(const json_t *value, uint64_t *out)
{
	if (json_is_string(value))
		return str_to_u64(json_string_value(value), 0, INT64_MAX, out);
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*out = (uint64_t)json_integer_value(value);
	return true;
}

static const char *read_simple(json_t *object, struct condition *out)
{
	void *entry = json_object_iter(object);
	const json_t *value = json_object_iter_value(entry);

	if (json_object_size(object) != 1)
		return "Invalid Simple-Condition: Simple-Conditions must have exactly one property "
		       "specified.";
	if (!json_is_string(value))
		return "Invalid Simple-Condition: value must be a string.";
	*out = (struct condition){
		.op = EQ, .name = json_object_iter_key(entry), .value = json_string_value(value)};
	return NULL;
}

static const char *read_list(const json_t *list, struct condition *out)
{
	const char *word = json_string_value(json_array_get(list, 0));
	const json_t *first = json_array_get(list, 1), *second = json_array_get(list, 2);
	size_t op = 0;

	while (word && op < ARRAY_SIZE(ops) && strcasecmp(word, ops[op]) != 0)
		op++;
	if (!word || op == ARRAY_SIZE(ops))
		return "Invalid Condition: unknown operation.";
	if (json_array_size(list) != 3)
		return "Invalid Condition: wrong number of arguments; expected two.";
	*out = (struct condition){.op = (enum op)op};
	if (out->op == LENGTH_RANGE)
		return read_size(first, &out->min) && read_size(second, &out->max) &&
				       out->min <= out->max
			       ? NULL
			       : "Invalid content-length-range: it needs two sizes.";
	if (!json_is_string(first) || !json_is_string(second))
		return "Invalid Condition: its arguments must be strings.";
	out->name = json_string_value(first);
	out->value = json_string_value(second);
	if (*out->name++ != '$' || !*out->name)
		return "Invalid Condition: the name of a field must begin with '$'.";
	return NULL;
}

/* Returns the problem of a condition, or NULL if the condition is valid. */
static const char *read_condition(json_t *value, struct condition *out)
{
	if (json_is_object(value))
		return read_simple(value, out);
	if (json_is_array(value))
		return read_list(value, out);
	return "Invalid Condition: must be a list or an object.";
}

/* --- evaluating ------------------------------------------------------------------------------ */

static const char *field_of(const struct policy_form *form, const char *name)
{
	if (strcasecmp(name, "bucket") == 0)
		return form->bucket;
	for (size_t i = 0; i < form->n; i++)
		if (strcasecmp(form->fields[i].name, name) == 0)
			return form->fields[i].value;
	return "";
}

/* Returns true if each content type of a comma-separated list starts with `prefix`. */
static bool types_start_with(const char *list, const char *prefix)
{
	for (;;) {
		list += strspn(list, " \t");
		if (!str_starts(list, prefix))
			return false;
		list += strcspn(list, ",");
		if (!*list++)
			return true;
	}
}

static bool holds(const struct condition *c, const struct policy_form *form)
{
	const char *value = c->op == LENGTH_RANGE ? NULL : field_of(form, c->name);

	switch (c->op) {
	case EQ:
		return strcmp(value, c->value) == 0;
	case STARTS_WITH:
		return strcasecmp(c->name, "content-type") == 0 ? types_start_with(value, c->value)
								: str_starts(value, c->value);
	case LENGTH_RANGE:
		break; /* checked when the size is known */
	}
	return true;
}

static bool is_exempt(const char *name)
{
	static const char *const names[] = {
		"awsaccesskeyid", "file", "policy", "signature", "x-amz-signature"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return str_starts(name, "x-ignore-");
}

static bool is_covered(const json_t *conditions, const char *name)
{
	struct condition c;
	size_t i;
	json_t *value;

	json_array_foreach (conditions, i, value) {
		if (!read_condition(value, &c) && c.op != LENGTH_RANGE &&
			strcasecmp(c.name, name) == 0)
			return true;
	}
	return false;
}

static enum s3_error evaluate(const json_t *conditions, const struct policy_form *form,
	struct policy_sizes *sizes, struct buf *message)
{
	struct condition c;
	size_t i;
	json_t *value;

	*sizes = (struct policy_sizes){.max = UINT64_MAX};
	json_array_foreach (conditions, i, value) {
		if (read_condition(value, &c))
			continue; /* check_document() has read all conditions */
		if (!holds(&c, form)) {
			buf_printf(message,
				"Invalid according to Policy: Policy Condition failed: "
				"[\"%s\", \"$%s\", \"%s\"]",
				ops[c.op], c.name, c.value);
			return S3_E_ACCESS_DENIED;
		}
		if (c.op != LENGTH_RANGE)
			continue;
		sizes->min = c.min > sizes->min ? c.min : sizes->min;
		sizes->max = c.max < sizes->max ? c.max : sizes->max;
	}
	/* Without a condition on the bucket, a form would be valid for every bucket. */
	if (!is_covered(conditions, "bucket")) {
		buf_add_str(message, "Invalid according to Policy: Extra input fields: bucket");
		return S3_E_ACCESS_DENIED;
	}
	for (i = 0; i < form->n; i++) {
		if (is_exempt(form->fields[i].name) || is_covered(conditions, form->fields[i].name))
			continue;
		buf_printf(message, "Invalid according to Policy: Extra input fields: %s",
			form->fields[i].name);
		return S3_E_ACCESS_DENIED;
	}
	return S3_OK;
}

/* --- the document ---------------------------------------------------------------------------- */

/* Checks the whole document, so that a mistake in it is the same error for all forms. */
static enum s3_error check_document(
	const json_t *conditions, const json_t *expiration, int64_t *until, struct buf *message)
{
	struct condition c;
	size_t i;
	json_t *value;

	if (!expiration)
		return invalid(message, "Policy missing expiration.");
	if (!json_is_string(expiration) ||
		!date_parse_iso_end(json_string_value(expiration), until))
		return invalid(message, "Invalid 'expiration' value.");
	if (!conditions)
		return invalid(message, "Policy missing conditions.");
	if (!json_is_array(conditions))
		return invalid(message, "Invalid 'conditions' value: must be a List.");
	json_array_foreach (conditions, i, value) {
		const char *problem = read_condition(value, &c);

		if (problem)
			return invalid(message, problem);
	}
	return S3_OK;
}

/* AWS has two escapes that JSON lacks: a backslash before '$' or 'v'. */
static void add_json(struct buf *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		bool escape = text[i] == '\\' && i + 1 < len;

		if (escape && text[i + 1] == 'v')
			buf_add_str(out, "\\u000b");
		else if (!escape || text[i + 1] != '$')
			buf_add(out, text + i, 1 + (size_t)escape);
		else
			buf_add_char(out, '$');
		i += escape;
	}
}

static int load(const char *text, size_t len, json_t **root)
{
	_cleanup_(buf_release) struct buf json = BUF_INIT(6 * len + 1);

	add_json(&json, text, len);
	return buf_failed(&json) ? -PENSTOCK_E_MEMORY
				 : s3_json_load(buf_str(&json), json.len, root, NULL);
}

enum s3_error policy_check(const char *json, size_t len, const struct policy_form *form,
	struct policy_sizes *sizes, struct buf *message)
{
	_cleanup_(s3_json_freep) json_t *root = NULL;
	const json_t *conditions;
	int64_t until = 0;
	enum s3_error problem;

	if (load(json, len, &root) == -PENSTOCK_E_MEMORY) {
		buf_add_str(message, s3_error_info(S3_E_SLOW_DOWN)->message);
		return S3_E_SLOW_DOWN;
	}
	if (!json_is_object(root))
		return invalid(message, "Invalid JSON.");
	conditions = json_object_get(root, "conditions");
	problem = check_document(conditions, json_object_get(root, "expiration"), &until, message);
	if (problem)
		return problem;
	if (until <= form->now_ns) {
		buf_add_str(message, "Invalid according to Policy: Policy expired.");
		return S3_E_ACCESS_DENIED;
	}
	return evaluate(conditions, form, sizes, message);
}
