/*
 * The server of mini_http.h in a separate process, for tests that count the allocations of their
 * own process or make them fail. The server has no cookie, and ends with the test.
 */
#ifndef SUPPORT_MINI_FORK_H
#define SUPPORT_MINI_FORK_H

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "mini_http.h"

struct mini_fork {
	pid_t pid;
	char url[MINI_URL_SIZE]; /* URL of the server's root, without a slash at the end */
};

/* Must be called before the process starts a thread. Returns false if the server did not start. */
static inline bool mini_fork_start(struct mini_fork *f, mini_answer_fn answer)
{
	struct mini_http m;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return false;
	f->pid = fork();
	if (f->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mini_start(&m, answer, NULL);
		mini_url(&m, "", f->url);
		if (write(ends[1], f->url, sizeof(f->url)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	bool started = f->pid > 0 &&
		       read(ends[0], f->url, sizeof(f->url)) == (ssize_t)sizeof(f->url);

	close(ends[0]);
	return started;
}

static inline bool mini_fork_stop(struct mini_fork *f)
{
	kill(f->pid, SIGKILL);
	return waitpid(f->pid, NULL, 0) == f->pid;
}

#endif
