#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static int64_t now_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_monotonic_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

int64_t clock_boottime_ms(void)
{
	return now_ns(CLOCK_BOOTTIME) / NS_PER_MS;
}

int64_t clock_wall_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}

double clock_wall_s(int64_t monotonic_ms)
{
	return (double)clock_wall_ns() / NS_PER_S +
	       (double)(monotonic_ms - clock_monotonic_ms()) / 1000;
}

void clock_format_rfc3339(int64_t wall_ns, char out[static CLOCK_RFC3339_SIZE])
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	unsigned ms = (unsigned)(wall_ns % NS_PER_S / NS_PER_MS) % 1000;
	struct tm tm;

	gmtime_r(&seconds, &tm);
	snprintf(out, CLOCK_RFC3339_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ",
		(unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
		(unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
		(unsigned)tm.tm_sec % 100, ms);
}

void clock_sleep_ms(int64_t ms)
{
	int64_t until = clock_monotonic_ns() + ms * NS_PER_MS;
	struct timespec ts = {.tv_sec = until / NS_PER_S, .tv_nsec = until % NS_PER_S};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

void clock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attributes);
	pthread_condattr_destroy(&attributes);
}

void clock_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ms)
{
	int64_t until_ns = clock_monotonic_ns() + ms * NS_PER_MS;
	struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};

	pthread_cond_timedwait(cond, lock, &until);
}

void clock_cond_wait_until_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms)
{
	/* Divide first: INT64_MAX, which means never, would overflow in nanoseconds. */
	struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * NS_PER_MS};

	pthread_cond_timedwait(cond, lock, &until);
}
