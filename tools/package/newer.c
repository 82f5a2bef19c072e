/* Functions of glibc 2.32 to 2.36, for the portable build against an older glibc. */
#define _GNU_SOURCE
#include "newer.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

/* Debian 12's expat calls this function. */
void arc4random_buf(void *buffer, size_t size)
{
	for (char *p = buffer; size > 0;) {
		ssize_t n = getrandom(p, size, 0);

		if (n < 0)
			abort();
		p += n;
		size -= (size_t)n;
	}
}

const char *sigabbrev_np(int signal)
{
	static const char *const names[] = {[SIGHUP] = "HUP",
		[SIGINT] = "INT",
		[SIGQUIT] = "QUIT",
		[SIGILL] = "ILL",
		[SIGTRAP] = "TRAP",
		[SIGABRT] = "ABRT",
		[SIGBUS] = "BUS",
		[SIGFPE] = "FPE",
		[SIGKILL] = "KILL",
		[SIGUSR1] = "USR1",
		[SIGSEGV] = "SEGV",
		[SIGUSR2] = "USR2",
		[SIGPIPE] = "PIPE",
		[SIGALRM] = "ALRM",
		[SIGTERM] = "TERM",
		[SIGSTKFLT] = "STKFLT",
		[SIGCHLD] = "CHLD",
		[SIGCONT] = "CONT",
		[SIGSTOP] = "STOP",
		[SIGTSTP] = "TSTP",
		[SIGTTIN] = "TTIN",
		[SIGTTOU] = "TTOU",
		[SIGURG] = "URG",
		[SIGXCPU] = "XCPU",
		[SIGXFSZ] = "XFSZ",
		[SIGVTALRM] = "VTALRM",
		[SIGPROF] = "PROF",
		[SIGWINCH] = "WINCH",
		[SIGIO] = "POLL",
		[SIGPWR] = "PWR",
		[SIGSYS] = "SYS"};

	return signal > 0 && (size_t)signal < sizeof(names) / sizeof(*names) ? names[signal] : NULL;
}

const char *sigdescr_np(int signal)
{
	return sigabbrev_np(signal) ? strsignal(signal) : NULL;
}
