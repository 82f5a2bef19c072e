/* Keys that another program prints: credential_process of the AWS configuration. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/process.h"
#include "net/credential_sources.h"
#include "net/credentials.h"
#include "base/banned.h"

#define PATIENCE_MS 60000

static int read_until(int fd, int64_t deadline, struct buf *out, struct penstock_error *err)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline - clock_monotonic_ms();
		char *room = buf_reserve(out, 4096);
		int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
		ssize_t n;

		if (!room)
			return buf_error(out, "its output", err);
		if (ready == 0)
			return error_set(err, PENSTOCK_E_TIMEOUT, "it did not end within %d s",
				PATIENCE_MS / 1000);
		if (ready < 0) /* a signal; read() would wait without end */
			continue;
		n = read(fd, room, 4096);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read its output");
		if (n > 0)
			buf_grown(out, (size_t)n);
	}
}

static int run(const char *command, struct buf *out, struct penstock_error *err)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	int64_t deadline = clock_monotonic_ms() + PATIENCE_MS, left;
	struct process process = PROCESS_INIT;
	int fds[2], status = 0, r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	r = process_spawn(&process,
		&(struct process_spec){.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = fds[1],
			.stderr_fd = STDERR_FILENO,
			.new_session = true},
		err);
	close(fds[1]);
	if (r == 0) {
		r = read_until(fds[0], deadline, out, err);
		if (r < 0)
			kill(-process.pid, SIGKILL);
		left = deadline - clock_monotonic_ms();
		if (!process_wait(&process, left > 0 ? (int)left : 0, &status)) {
			kill(-process.pid, SIGKILL);
			process_wait(&process, -1, &status);
		}
		if (r == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
			r = error_set(err, PENSTOCK_E_PERMISSION, "it failed with %s %d",
				WIFEXITED(status) ? "exit code" : "signal",
				WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
	close(fds[0]);
	process_release(&process);
	return r;
}

static int fetch(void *cookie, struct credentials *out, struct penstock_error *err)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(LIMIT_METADATA_REPLY);
	int r = run(cookie, &text, err);

	if (r == 0)
		r = credentials_from_json(buf_str(&text), text.len, out, err);
	if (text.data)
		explicit_bzero(text.data, text.cap);
	return r;
}

int credential_source_process(
	struct credentials_provider **out, const char *command, struct penstock_error *err)
{
	char *copy = strdup(command);
	int r;

	if (!copy)
		return error_memory(err);
	r = credentials_provider_new_fetcher(out,
		&(struct credentials_fetcher){.name = "the profile's credential_process",
			.fetch = fetch,
			.release = free,
			.cookie = copy},
		err);
	if (r < 0)
		free(copy);
	return r;
}
