#include "run/ending.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "run/report/say.h"

#define LONG_MS 2000

struct ending {
	const struct run_voice *voice;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	const char *part; /* under lock, like the next members; NULL if no part is to be reported */
	int64_t report_at_ms;
	bool stop;
};

static void *watch(void *cookie)
{
	struct ending *ending = cookie;

	LOCK_SCOPE(&ending->lock);
	while (!ending->stop) {
		if (!ending->part) {
			pthread_cond_wait(&ending->wake, &ending->lock);
		} else if (clock_monotonic_ms() < ending->report_at_ms) {
			clock_cond_wait_until_ms(
				&ending->wake, &ending->lock, ending->report_at_ms);
		} else {
			run_event(ending->voice, RUN_EVENT_MESSAGE, ending->part, 0, 0);
			ending->part = NULL;
		}
	}
	return NULL;
}

void ending_begin(struct ending **out, const struct run_voice *voice)
{
	struct ending *ending = calloc(1, sizeof(*ending));

	*out = NULL;
	if (!ending)
		return;
	ending->voice = voice;
	pthread_mutex_init(&ending->lock, NULL);
	clock_cond_init(&ending->wake);
	if (thread_start(&ending->thread, "ending", watch, ending, NULL) < 0) {
		log_debug("cannot report a slow shutdown: cannot start a thread");
		free(ending);
		return;
	}
	*out = ending;
}

void ending_part(struct ending *ending, const char *text)
{
	if (!ending)
		return;
	LOCK_SCOPE(&ending->lock);
	ending->part = text;
	ending->report_at_ms = clock_monotonic_ms() + LONG_MS;
	pthread_cond_signal(&ending->wake);
}

void ending_end(struct ending *ending)
{
	if (!ending)
		return;
	pthread_mutex_lock(&ending->lock);
	ending->stop = true;
	pthread_cond_signal(&ending->wake);
	pthread_mutex_unlock(&ending->lock);
	pthread_join(ending->thread, NULL);
	pthread_cond_destroy(&ending->wake);
	pthread_mutex_destroy(&ending->lock);
	free(ending);
}
