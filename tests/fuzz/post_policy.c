/* Lines "name=value" are the fields of a form; after an empty line, its policy. */
#include "fuzz.h"

#include <strings.h>

#include "server/form/policy.h"

static enum s3_error check(
	const char *json, const struct policy_field *fields, size_t n, struct policy_sizes *sizes)
{
	_cleanup_(buf_release) struct buf message = BUF_INIT(LIMIT_FORM);
	const struct policy_form form = {.fields = fields, .n = n, .bucket = "b", .now_ns = 0};
	enum s3_error problem = policy_check(json, strlen(json), &form, sizes, &message);

	require(problem == S3_OK || problem == S3_E_ACCESS_DENIED ||
		problem == S3_E_INVALID_POLICY_DOCUMENT);
	require((problem == S3_OK) == (message.len == 0));
	return problem;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct policy_field fields[17];
	struct policy_sizes sizes = {0};
	enum s3_error problem;
	size_t n = 0;
	char *at = text;

	for (char *line; (line = fuzz_line(&at)) && *line;) {
		char *value = strchr(line, '=');

		if (!value || n == 16)
			continue;
		*value++ = '\0';
		for (char *p = line; *p; p++)
			*p = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;
		fields[n++] = (struct policy_field){line, value};
	}
	if (!at)
		return 0;
	problem = check(at, fields, n, &sizes);
	if (strchr(at, '\\')) /* the escape may hide one of the names below */
		return 0;

	/* An additional field that no condition names makes the policy refuse an allowed form. A
	 * field that needs no condition (x-ignore-…) changes nothing. */
	fields[n] = (struct policy_field){"x-ignore-more", "v"};
	require(check(at, fields, n + 1, &sizes) == problem || strcasestr(at, "x-ignore-more"));
	fields[n] = (struct policy_field){"more-\x01", "v"};
	if (problem == S3_OK)
		require(check(at, fields, n + 1, &sizes) == S3_E_ACCESS_DENIED ||
			strcasestr(at, "more-"));
	return 0;
}
