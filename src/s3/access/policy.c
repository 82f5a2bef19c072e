#include "s3/access/policy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/limits.h"
#include "s3/access/action.h"
#include "s3/access/condition.h"
#include "s3/access/pattern.h"
#include "s3/access/principal.h"
#include "s3/json.h"

struct patterns {
	struct pattern *items;
	size_t n;
};

struct statement {
	bool denies;
	bool not_principals, not_actions, not_resources; /* NotPrincipal, NotAction, NotResource */
	struct principals principals;
	struct patterns actions, resources;
	struct conditions conditions;
};

struct policy {
	atomic_uint refs;
	struct arena arena;
	enum policy_kind kind;
	struct statement *statements;
	size_t n;
};

/* ---- reading ---- */

struct reader {
	struct policy *policy;
	const char *bucket;
	unsigned flags; /* flags for pattern_read() */
	struct penstock_error *err;
};

#define invalid(r, ...) error_set((r)->err, PENSTOCK_E_PROTOCOL, __VA_ARGS__)

/* Gets one of two elements that exclude each other: "Action" and "NotAction". */
static int choose(
	struct reader *r, json_t *statement, const char *name, json_t **out, bool *negated)
{
	_cleanup_(buf_release) struct buf other = BUF_INIT(32);
	json_t *opposite;

	*out = NULL;
	buf_printf(&other, "Not%s", name);
	if (buf_failed(&other))
		return error_memory(r->err);
	*out = json_object_get(statement, name);
	opposite = json_object_get(statement, other.data);
	*negated = opposite != NULL;
	if (!*out == !opposite)
		return invalid(r,
			opposite ? "Statement has both %s and %s" : "Missing required field %s",
			name, other.data);
	*out = opposite ? opposite : *out;
	return 0;
}

static int read_patterns(
	struct reader *r, json_t *element, const char *name, unsigned flags, struct patterns *out)
{
	bool many = json_is_array(element);
	size_t n = many ? json_array_size(element) : 1;

	*out = (struct patterns){0};
	if (!n)
		return invalid(r, "%s cannot be empty", name);
	out->items = arena_alloc(&r->policy->arena, n * sizeof(*out->items));
	if (!out->items)
		return error_memory(r->err);
	for (; out->n < n; out->n++) {
		const char *text = json_string_value(
			many ? json_array_get(element, out->n) : element);

		if (!text || !*text)
			return invalid(r, "%s must be a string or a list of strings", name);
		if (pattern_read(&out->items[out->n], &r->policy->arena, text, flags) < 0)
			return error_memory(r->err);
	}
	return 0;
}

static int read_principal(struct reader *r, struct statement *s, json_t *statement)
{
	bool has = json_object_get(statement, "Principal") ||
		   json_object_get(statement, "NotPrincipal");
	json_t *element;
	int rc;

	if (r->policy->kind == POLICY_OF_IDENTITY)
		return has ? invalid(r, "Policy document should not specify a principal.") : 0;
	rc = choose(r, statement, "Principal", &element, &s->not_principals);
	if (rc == 0)
		rc = principals_read(&s->principals, &r->policy->arena, element, r->err);
	if (rc == 0 && s->not_principals && !s->denies)
		return invalid(r, "Allow with NotPrincipal is not allowed");
	return rc;
}

static int read_actions(struct reader *r, struct statement *s, json_t *statement)
{
	json_t *element;
	int rc = choose(r, statement, "Action", &element, &s->not_actions);

	if (rc == 0)
		rc = read_patterns(r, element, "Action", 0, &s->actions);
	for (size_t i = 0; rc == 0 && i < s->actions.n; i++) {
		const struct pattern *p = &s->actions.items[i];
		bool all = p->len == 2 && p->text[0] == '\0' && p->text[1] == '*';

		if (r->policy->kind == POLICY_OF_BUCKET ? !action_is_known(p)
							: !all && !memchr(p->text, ':', p->len))
			return invalid(r, "Policy has invalid action");
	}
	return rc;
}

/* Returns true if a resource may be the bucket, or an object in it. */
static bool is_of_bucket(const struct pattern *resource, const char *bucket)
{
	static const char prefix[] = "arn:aws:s3:::";
	const size_t n = sizeof(prefix) - 1;
	struct pattern name = {.text = resource->text + n};
	const char *slash;

	if (resource->len == 2 && memcmp(resource->text, "\0*", 2) == 0)
		return true;
	if (resource->len <= n || memcmp(resource->text, prefix, n) != 0)
		return false;
	name.len = resource->len - n;
	slash = memchr(name.text, '/', name.len);
	if (slash)
		name.len = (size_t)(slash - name.text);
	return resource->has_variables || pattern_match(&name, bucket, false, NULL);
}

static int read_resources(struct reader *r, struct statement *s, json_t *statement)
{
	bool has = json_object_get(statement, "Resource") ||
		   json_object_get(statement, "NotResource");
	json_t *element;
	int rc;

	if (r->policy->kind == POLICY_OF_ROLE)
		return has ? invalid(r, "Has prohibited field Resource") : 0;
	rc = choose(r, statement, "Resource", &element, &s->not_resources);
	if (rc == 0)
		rc = read_patterns(r, element, "Resource", r->flags, &s->resources);
	for (size_t i = 0; rc == 0 && r->bucket && i < s->resources.n; i++)
		if (!is_of_bucket(&s->resources.items[i], r->bucket))
			return invalid(r, "Policy has invalid resource");
	return rc;
}

/* Refuses an element whose name is not in `names`. */
static int check_names(struct reader *r, json_t *object, const char *const *names, size_t n)
{
	const char *name;
	json_t *value;

	json_object_foreach (object, name, value) {
		size_t i = 0;

		while (i < n && strcmp(names[i], name) != 0)
			i++;
		if (i == n)
			return invalid(r, "Unknown field %.100s", name);
	}
	return 0;
}

static int read_statement(struct reader *r, struct statement *s, json_t *statement)
{
	static const char *const names[] = {"Sid", "Effect", "Principal", "NotPrincipal", "Action",
		"NotAction", "Resource", "NotResource", "Condition"};
	const json_t *sid = json_object_get(statement, "Sid");
	const char *effect = json_string_value(json_object_get(statement, "Effect"));
	int rc;

	*s = (struct statement){0};
	if (!json_is_object(statement))
		return invalid(r, "A Statement must be an object");
	rc = check_names(r, statement, names, ARRAY_SIZE(names));
	if (rc < 0)
		return rc;
	if (sid && !json_is_string(sid))
		return invalid(r, "Sid must be a string");
	if (!effect)
		return invalid(r, "Missing required field Effect");
	s->denies = strcmp(effect, "Deny") == 0;
	if (!s->denies && strcmp(effect, "Allow") != 0)
		return invalid(r, "Invalid effect : %.100s", effect);
	rc = read_principal(r, s, statement);
	if (rc == 0)
		rc = read_actions(r, s, statement);
	if (rc == 0)
		rc = read_resources(r, s, statement);
	if (rc == 0)
		rc = conditions_read(&s->conditions, &r->policy->arena,
			json_object_get(statement, "Condition"), r->policy->kind, r->flags, r->err);
	return rc;
}

/* Refuses a second statement of the same name. */
static int check_sids(struct reader *r, const json_t *statements)
{
	json_t *statement, *other;
	size_t i, k;

	json_array_foreach (statements, i, statement) {
		const char *sid = json_string_value(json_object_get(statement, "Sid"));

		json_array_foreach (statements, k, other) {
			const char *earlier = json_string_value(json_object_get(other, "Sid"));

			if (k < i && sid && *sid && earlier && strcmp(sid, earlier) == 0)
				return invalid(r,
					"Statement IDs (SID) in a single policy must be unique.");
		}
	}
	return 0;
}

static int read_policy(struct reader *r, json_t *root)
{
	static const char *const names[] = {"Version", "Id", "Statement"};
	json_t *statements = json_object_get(root, "Statement"), *id = json_object_get(root, "Id");
	json_t *version = json_object_get(root, "Version");
	const char *text = json_string_value(version);
	bool many = json_is_array(statements);
	size_t n = many ? json_array_size(statements) : 1;
	int rc = check_names(r, root, names, ARRAY_SIZE(names));

	if (rc < 0)
		return rc;
	if (version &&
		(!text || (strcmp(text, "2012-10-17") != 0 && strcmp(text, "2008-10-17") != 0)))
		return invalid(r, "The policy must contain a valid version string");
	/* Only policies of the version 2012-10-17 have variables. */
	r->flags = text && strcmp(text, "2012-10-17") == 0 ? PATTERN_VARIABLES : 0;
	if (id && !json_is_string(id))
		return invalid(r, "Id must be a string");
	if (!statements)
		return invalid(r, "Missing required field Statement");
	if (!n)
		return invalid(r, "Could not parse the policy: Statement is empty!");
	r->policy->statements = arena_alloc(&r->policy->arena, n * sizeof(*r->policy->statements));
	if (!r->policy->statements)
		return error_memory(r->err);
	for (size_t i = 0; i < n; i++) {
		rc = read_statement(r, &r->policy->statements[i],
			many ? json_array_get(statements, i) : statements);
		if (rc < 0)
			return rc;
		r->policy->n++;
	}
	return r->policy->kind == POLICY_OF_BUCKET ? 0 : check_sids(r, statements);
}

int policy_parse(const char *json, size_t len, enum policy_kind kind, const char *bucket,
	struct policy **out, struct penstock_error *err)
{
	_cleanup_(s3_json_freep) json_t *root = NULL;
	struct reader r = {.bucket = bucket, .err = err};
	int rc;

	if (!len || *json != '{')
		return invalid(&r, "Policies must be valid JSON and the first byte must be '{'");
	rc = s3_json_load(json, len, &root, err);
	if (rc < 0)
		return rc == -PENSTOCK_E_MEMORY ? rc
						: invalid(&r, "This policy contains invalid Json");
	r.policy = calloc(1, sizeof(*r.policy));
	if (!r.policy)
		return error_memory(err);
	atomic_init(&r.policy->refs, 1);
	r.policy->kind = kind;
	rc = read_policy(&r, root);
	if (rc < 0)
		policy_free(r.policy);
	else
		*out = r.policy;
	return rc;
}

struct policy *policy_ref(struct policy *policy)
{
	if (policy)
		atomic_fetch_add_explicit(&policy->refs, 1, memory_order_relaxed);
	return policy;
}

void policy_free(struct policy *policy)
{
	if (!policy || atomic_fetch_sub(&policy->refs, 1) > 1)
		return;
	arena_release(&policy->arena);
	free(policy);
}

/* ---- evaluating ---- */

static bool has_action(const struct statement *s, const struct policy_question *q)
{
	for (size_t i = 0; i < s->actions.n; i++)
		if (pattern_match(&s->actions.items[i], q->action, true, q->steps))
			return !s->not_actions;
	return s->not_actions;
}

/* Returns 1 if the statement covers the resource, 0 if not, or a negative code. */
static int has_resource(const struct statement *s, const struct policy_question *q)
{
	for (size_t i = 0; i < s->resources.n; i++) {
		_cleanup_(buf_release) struct buf memory = BUF_INIT(LIMIT_HTTP_HEADERS);
		struct pattern filled;
		int rc = pattern_fill(&s->resources.items[i], q, &memory, &filled);

		if (rc < 0)
			return rc;
		if (rc > 0 && pattern_match_arn(&filled, q->resource, q->steps))
			return !s->not_resources;
		/* NotResource with a variable that has no value must not allow all resources. */
		if (rc == 0 && s->not_resources && !s->denies)
			return 0;
	}
	return s->not_resources;
}

/* The comparison of a principal costs about as much as this number of steps. */
#define PRINCIPAL_STEPS 8

static enum policy_result principal_result(
	const struct policy *policy, const struct statement *s, const struct policy_question *q)
{
	enum policy_result result;

	if (policy->kind == POLICY_OF_IDENTITY)
		return POLICY_ALLOW;
	policy_spend(q, PRINCIPAL_STEPS * s->principals.n);
	result = principals_match(&s->principals, q->caller);
	if (!s->not_principals)
		return result;
	return result == POLICY_ALLOW ? POLICY_NEITHER : POLICY_ALLOW;
}

static enum policy_result evaluate(
	const struct policy *policy, const struct statement *s, const struct policy_question *q)
{
	enum policy_result result;
	int rc;

	if (!has_action(s, q))
		return POLICY_NEITHER;
	result = principal_result(policy, s, q);
	if (result == POLICY_NEITHER)
		return result;
	rc = policy->kind == POLICY_OF_ROLE ? 1 : has_resource(s, q);
	if (rc > 0)
		rc = conditions_hold(&s->conditions, q, s->denies);
	if (rc <= 0)
		return rc < 0 ? POLICY_FAILED : POLICY_NEITHER;
	return s->denies ? POLICY_DENY : result;
}

enum policy_result policy_evaluate(const struct policy *policy, const struct policy_question *q)
{
	enum policy_result best = POLICY_NEITHER;

	for (size_t i = 0; policy && i < policy->n && best < POLICY_FAILED; i++) {
		enum policy_result result = evaluate(policy, &policy->statements[i], q);

		/* Once no step is left, every comparison yields false. A statement that negates a
		 * comparison, as NotAction does, would then apply, which may be wrong. */
		if (!policy_spend(q, 1))
			result = POLICY_FAILED;
		best = result > best ? result : best;
	}
	return best;
}

bool policy_admits_anyone(const struct policy *policy)
{
	for (size_t i = 0; policy && i < policy->n; i++)
		if (!policy->statements[i].denies &&
			principals_have_anyone(&policy->statements[i].principals))
			return true;
	return false;
}

bool policy_is_public(const struct policy *policy)
{
	for (size_t i = 0; policy && i < policy->n; i++) {
		const struct statement *s = &policy->statements[i];

		if (!s->denies && principals_have_anyone(&s->principals) &&
			!conditions_limit_senders(&s->conditions))
			return true;
	}
	return false;
}
