/* Lines "key=value" are the condition keys of a request; after an empty line, a policy. */
#include "fuzz.h"

#include <strings.h>

#include "s3/access/policy.h"

struct key {
	const char *name, *value;
};
struct request {
	struct key keys[17];
	size_t n;
};

static int look_up(const struct policy_question *q, const char *name, struct policy_values *out)
{
	const struct request *request = q->cookie;

	for (size_t i = 0; request && i < request->n; i++)
		if (strcasecmp(request->keys[i].name, name) == 0)
			out->items[out->n++] = request->keys[i].value;
	return 0;
}

static void evaluate(const struct policy *policy, struct request *request)
{
	static const char *const actions[] = {"s3:GetObject", "s3:ListBucket", "sts:AssumeRole"};
	static const struct policy_caller callers[] = {{0},
		{.account = "111111111111",
			.arn = "arn:aws:iam::111111111111:user/ada",
			.canonical_id = "c"},
		{.account = "111111111111",
			.arn = "arn:aws:iam::111111111111:root",
			.is_root = true}};
	struct policy_question q = {.resource = "arn:aws:s3:::b/a", .values = look_up};
	enum policy_result result;

	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		for (size_t k = 0; k < ARRAY_SIZE(callers); k++) {
			q.action = actions[i];
			q.caller = &callers[k];
			q.cookie = request;
			result = policy_evaluate(policy, &q);
			require(result >= POLICY_NEITHER && result <= POLICY_FAILED);
			require(result == policy_evaluate(policy, &q));
			if (k == 2)
				require(result != POLICY_DELEGATE);
			/* A policy that is not public allows nothing if the request has no
			 * condition keys. */
			q.cookie = NULL;
			if (k == 0 && !policy_is_public(policy))
				require(policy_evaluate(policy, &q) != POLICY_ALLOW);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct request request = {0};
	char *at = text;

	for (char *line; (line = fuzz_line(&at)) && *line;) {
		char *value = strchr(line, '=');

		if (!value || request.n == 16)
			continue;
		*value++ = '\0';
		request.keys[request.n++] = (struct key){line, value};
	}
	if (!at)
		return 0;
	for (int kind = POLICY_OF_BUCKET; kind <= POLICY_OF_ROLE; kind++) {
		struct penstock_error err = PENSTOCK_ERROR_INIT;
		struct policy *policy = NULL;
		int rc = policy_parse(at, strlen(at), (enum policy_kind)kind,
			kind == POLICY_OF_BUCKET ? "b" : NULL, &policy, &err);

		require_error(rc, &err);
		if (rc == 0 && kind == POLICY_OF_BUCKET)
			evaluate(policy, &request);
		policy_free(policy);
		penstock_error_release(&err);
	}
	return 0;
}
