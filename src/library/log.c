/* Passes the library's log to the program's callback. */
#include "library/library.h"

#include <penstock/transfer.h>
#include <penstock/version.h>

#include "base/cleanup.h"
#include "base/log.h"

static struct {
	pthread_mutex_t lock;
	void (*log)(void *cookie, int level, const char *line);
	void *cookie;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void pass_on(void *cookie, enum log_level level, const char *line)
{
	(void)cookie;
	LOCK_SCOPE(&state.lock);
	if (state.log)
		state.log(state.cookie, (int)level, line);
}

void library_log_begin(void)
{
	log_set_sink(pass_on, NULL);
}

void penstock_set_log(void (*log)(void *cookie, int level, const char *line), void *cookie)
{
	library_log_begin();
	LOCK_SCOPE(&state.lock);
	state.log = log;
	state.cookie = cookie;
}

const char *penstock_version(void)
{
	return PENSTOCK_VERSION;
}
