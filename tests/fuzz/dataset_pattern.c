/* URLs of several shards, with values in braces. */
#include "fuzz.h"

#include "dataset/source/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_(strlist_release) struct strlist names = {0};
	_cleanup_free_ char *text = fuzz_text(data, size < 200 ? size : 200);
	bool has_braces = strpbrk(text, "{}");
	int r = source_expand("https://data.example/", text, &names, &err);

	require_error(r, &err);
	require(r == 0 || has_braces);
	require((r == 0) == (names.n > 0) && names.n <= LIMIT_DATASET_WEB);
	for (size_t i = 0; i < names.n; i++)
		require(!strpbrk(names.items[i], "{}"));
	if (!has_braces)
		require(names.n == 1 && strcmp(names.items[0], text) == 0);
	return 0;
}
