/* Lines: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, the object's
 * ETag. */
#include "fuzz.h"

#include "s3/conditions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *text = fuzz_text(data, size);
	char *at = text;
	char *lines[6];

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		lines[i] = fuzz_line(&at);
		if (lines[i] && !*lines[i])
			lines[i] = NULL;
	}
	const struct conditions c = {lines[0], lines[1], lines[2], lines[3]};
	struct condition_state object = {
		.exists = lines[5] != NULL, .etag = lines[5], .modified = INT64_C(784111777)};
	enum condition_result read = conditions_evaluate(&c, &object, true);
	enum condition_result write = conditions_evaluate(&c, &object, false);

	require(write != CONDITION_NOT_MODIFIED);
	require(conditions_evaluate_copy_source(&c, &object) ==
		(read == CONDITION_PASS ? CONDITION_PASS : CONDITION_FAILED));
	if (!conditions_any(&c))
		require(read == CONDITION_PASS && write == CONDITION_PASS);
	if (!object.exists && c.if_match)
		require(read == CONDITION_FAILED && write == CONDITION_FAILED);
	condition_if_range(lines[4], &object);
	return 0;
}
