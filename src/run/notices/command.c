/* A command that is asked every five seconds; 0 says that the machine goes away, and its first line why. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "run/notice.h"
#include "base/banned.h"

enum { POLL_MS = 5000, PATIENCE_MS = 10000, LOOK_MS = 50 };

/* All of it, so that nothing it prints holds it up; the beginning is kept. */
static void take_output(int fd, char line[static 160], size_t *len)
{
	char text[4096];
	ssize_t n;

	/* What prints without end is not listened to for ever: there is a time for it all. */
	for (int i = 0; i < 64 && (n = read(fd, text, sizeof(text))) > 0; i++) {
		size_t more = (size_t)n < 159 - *len ? (size_t)n : 159 - *len;

		memcpy(line + *len, text, more);
		*len += more;
	}
}

/* Its status; -1: it could not be run, or took too long. */
static int ask(const struct notice_watch *watch, char line[static 160])
{
	const char *const argv[] = {"/bin/sh", "-c", watch->value, NULL};
	_cleanup_(process_release) struct process process = PROCESS_INIT;
	_cleanup_close_ int reading = -1, writing = -1;
	int64_t until = clock_monotonic_ms() + PATIENCE_MS;
	int ends[2];
	int status = -1;
	size_t len = 0;

	*line = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	reading = ends[0];
	writing = ends[1];
	fcntl(reading, F_SETFL, O_NONBLOCK);
	if (process_spawn(&process,
		    &(struct process_spec){
			    .argv = argv,
			    .stdin_fd = -1,
			    .stdout_fd = writing,
			    .stderr_fd = -1,
			    .new_session = true,
			    .die_with_parent = true,
		    },
		    NULL) < 0)
		return -1;
	while (!process_wait(&process, LOOK_MS, &status)) {
		take_output(reading, line, &len);
		if (clock_monotonic_ms() < until && !atomic_load(watch->cancel))
			continue;
		kill(-process.pid, SIGKILL);
		process_wait(&process, -1, &status);
		*line = '\0';
		return -1;
	}
	take_output(reading, line, &len);
	line[len] = '\0';
	line[strcspn(line, "\r\n")] = '\0';
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool wait_for_command(struct notice_watch *watch, struct notice *out)
{
	bool told = watch->state != NULL;
	char line[160];

	/* A command that cannot answer now has not taken anything back. */
	do {
		int status = ask(watch, line);

		if (atomic_load(watch->cancel))
			return false;
		if (status < 0)
			log_debug("the command of `preemption.sources` gave no answer");
		if (status < 0 || (status == 0) == told)
			continue;
		notice_set(out, "command",
			*line	      ? line
			: status == 0 ? "the command says so"
				      : "the command takes it back");
		out->withdrawn = told;
		watch->state = told ? NULL : (void *)(uintptr_t)watch->value;
		return true;
	} while (notice_sleep(watch, POLL_MS));
	return false;
}

const struct notice_source_ops notice_command = {.name = "command", .wait = wait_for_command};
