/* The file that passes values from a step to later steps. */
#include "fuzz.h"

#include "base/log.h"
#include "run/step/env_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_error_ struct penstock_error err = PENSTOCK_ERROR_INIT;
	_cleanup_free_ char *text = fuzz_text(data, size);
	struct strlist env = {0};
	struct env_file_odd odd;

	int r = env_file_parse(text, size, &env, &err);

	require_error(r, &err);
	env_file_check(text, size, size / 2, &odd);
	require(odd.whole <= size);
	require(memchr(text, '\0', size) || (r == -PENSTOCK_E_INVALID) == (*odd.block != '\0'));
	/* The complete lines are still accepted if the rest is cut off. */
	env_file_check(text, odd.whole, 0, &odd);
	require(!*odd.block);
	for (size_t i = 0; i < env.n; i++) {
		require(strchr(env.items[i], '=') && env.items[i][0] != '=');
		require(strncmp(env.items[i], "PATH=", 5) != 0);
		require(strncmp(env.items[i], "LD_LIBRARY_PATH=", 16) != 0);
	}
	strlist_release(&env);
	/* Remove the secrets of this input from the log's filter; they would slow down later
	 * inputs. */
	log_redact_clear();
	return 0;
}
