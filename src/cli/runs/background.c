#include "cli/runs/background.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/error.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/process/process.h"
#include "cli/command.h"
#include "records/records.h"
#include "records/layout.h"

pid_t background_fork(int *end, struct penstock_error *err)
{
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot create a pipe");
	fflush(NULL);
	child = fork();
	if (child < 0) {
		close(ends[0]);
		close(ends[1]);
		return error_errno(err, errno, "cannot fork");
	}
	close(ends[child > 0]);
	*end = ends[child == 0];
	return child;
}

int background_wait(pid_t child, int read_end)
{
	char line[RECORDS_ID_SIZE + 1] = "";
	size_t len = 0;
	int status = 0;
	ssize_t n;

	while (len < sizeof(line) - 1 &&
		(n = read(read_end, line + len, sizeof(line) - 1 - len)) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			len += (size_t)n;
		if (strchr(line, '\n')) {
			fputs(line, stdout);
			return 0;
		}
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_EXIT_INTERNAL;
}

void background_leave_terminal(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

void background_log_errors(const char *home, const char *id, int attempt)
{
	_cleanup_(run_layout_release) struct run_layout layout = {0};
	int fd;

	if (run_layout_init(&layout, home, id, attempt, NULL) < 0)
		return;
	fd = open(layout.log, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd >= 0) {
		dup2(fd, STDERR_FILENO);
		close(fd);
	}
}

/* Exits at once. This is safe: no run is recorded yet, and a module or a reply that was received
 * incompletely is not used by any other process. */
static void exit_on_signal(int number)
{
	_exit(128 + number);
}

/*
 * Until there is a run to stop, a signal ends the program: the server that sends the workflow or a
 * module may not respond. A preemption notice (SIGTERM) stays pending and preempts the run as soon
 * as the run exists.
 */
void background_allow_interrupt(void)
{
	const struct sigaction action = {.sa_handler = exit_on_signal};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaction(SIGINT, &action, NULL);
	if (!process_ignores(SIGHUP))
		sigaction(SIGHUP, &action, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
