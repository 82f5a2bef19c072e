/* Grace periods and other waiting times that the user may set in the environment. */
#ifndef RUN_CONFIG_TIMES_H
#define RUN_CONFIG_TIMES_H

#include <stdint.h>

/* most clouds give at least this time before they end a machine */
#define STOP_GRACE_DEFAULT_MS 30000

/* Returns the milliseconds of the variable `name`, which holds whole seconds up to LIMIT_WAIT_S.
 * Returns `fallback_ms` if the variable is unset or invalid. */
int64_t wait_from_env_ms(const char *name, int64_t fallback_ms);

/* Returns the time between the request to stop and the kill: $PENSTOCK_STOP_GRACE, or the
 * default. */
int64_t stop_grace_ms(void);
/* Like stop_grace_ms(), but -1 if the variable is unset or invalid. */
int64_t stop_grace_given_ms(void);
/* Returns the time between the signal to a launch and the kill: $PENSTOCK_LAUNCH_GRACE, or the
 * default. */
int64_t launch_grace_ms(void);

#endif
