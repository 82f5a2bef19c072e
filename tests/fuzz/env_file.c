/* The file by which a step passes values on. */
#include "fuzz.h"

#include "run/env_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct strlist env = {0};

	require_error(env_file_parse(text, size, &env, &err), &err);
	for (size_t i = 0; i < env.n; i++) {
		require(strchr(env.items[i], '=') && env.items[i][0] != '=');
		require(strncmp(env.items[i], "PATH=", 5) != 0);
		require(strncmp(env.items[i], "LD_LIBRARY_PATH=", 16) != 0);
	}
	strlist_release(&env);
	return 0;
}
