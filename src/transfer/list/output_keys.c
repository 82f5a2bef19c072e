#include "transfer/output_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define STATE ".penstock/"
#define RUNS  STATE "runs/"

bool output_key_is_state(const char *key)
{
	return str_starts(key, STATE) || strstr(key, "/" STATE);
}

bool output_keys_take(struct output_keys *keys, const char *key)
{
	const char *runs = strstr(key, "/" RUNS);

	if (*keys->inner && str_starts(key, keys->inner))
		return false;
	if (str_starts(key, RUNS))
		keys->is_output = true;
	else if (runs && keys->is_output)
		snprintf(keys->inner, sizeof(keys->inner), "%.*s", (int)(runs + 1 - key), key);
	return !output_key_is_state(key);
}
