#include "run/config/times.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/str.h"

int64_t wait_from_env_ms(const char *name, int64_t fallback_ms)
{
	const char *given = getenv(name);
	uint64_t seconds;

	return given && str_to_u64(given, 0, LIMIT_WAIT_S, &seconds) ? (int64_t)seconds * 1000
								     : fallback_ms;
}

int64_t stop_grace_given_ms(void)
{
	return wait_from_env_ms("PENSTOCK_STOP_GRACE", -1);
}

int64_t stop_grace_ms(void)
{
	return wait_from_env_ms("PENSTOCK_STOP_GRACE", STOP_GRACE_DEFAULT_MS);
}

int64_t launch_grace_ms(void)
{
	return wait_from_env_ms("PENSTOCK_LAUNCH_GRACE", STOP_GRACE_DEFAULT_MS);
}
