/*
 * Time. Durations and deadlines use the monotonic clock; the wall clock is for display and
 * protocols.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

int64_t clock_monotonic_ns(void);
int64_t clock_wall_ns(void);
/* Like the monotonic clock, but also counts time while the machine is suspended. */
int64_t clock_boottime_ms(void);
static inline int64_t clock_monotonic_ms(void)
{
	return clock_monotonic_ns() / NS_PER_MS;
}

/* Converts a time of the monotonic clock to Unix time in seconds. */
double clock_wall_s(int64_t monotonic_ms);

/* "2026-11-21T09:05:00.123Z" and its NUL. */
#define CLOCK_RFC3339_SIZE 25
void clock_format_rfc3339(int64_t wall_ns, char out[static CLOCK_RFC3339_SIZE]);

/* Sleeps the full time, even if signals arrive. */
void clock_sleep_ms(int64_t ms);

/*
 * Initialises a condition variable on the monotonic clock. Wait for the condition with
 * clock_cond_wait_ms() or clock_cond_wait_until_ms() (a value of clock_monotonic_ms()). Both may
 * return early, so check the condition again.
 */
void clock_cond_init(pthread_cond_t *cond);
void clock_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ms);
void clock_cond_wait_until_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms);

#endif
