#include "cli/frame/interrupt.h"

#include <signal.h>
#include <stddef.h>

#include "base/process/process.h"

/* Global, because a signal handler gets no pointer to other data. */
static atomic_int interrupted;

static void on_signal(int number)
{
	int none = 0;

	/* The second signal ends the process at once. */
	if (!atomic_compare_exchange_strong(&interrupted, &none, number)) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

const atomic_int *cli_watch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (!process_ignores(SIGHUP))
		sigaction(SIGHUP, &action, NULL);
	return &interrupted;
}

const atomic_int *cli_interrupt_flag(void)
{
	return &interrupted;
}

int cli_interrupted(void)
{
	return atomic_load(&interrupted);
}
