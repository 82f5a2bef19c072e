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
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "net/credential_sources.h"
#include "net/credentials.h"
#include "base/banned.h"

#define PATIENCE_MS 60000
#define LOOK_MS	    50 /* between looks at what it says, when its output is closed */
#define LAST_READS  17 /* what a pipe holds, and its end */

struct talk {
	int out; /* what it prints: the keys */
	int err; /* what it says to people: not blocking, and searched for secrets on its way */
	struct buf said;
};

/* Shows what it said; `last`: all that is left, and what may be the beginning of a secret. */
static void pass_on(struct talk *talk, bool last)
{
	for (int i = 0; i < (last ? LAST_READS : 1); i++) {
		_cleanup_(buf_release) struct buf masked = BUF_INIT(2 * MIB);
		char piece[4096];
		ssize_t n = read(talk->err, piece, sizeof(piece));
		size_t taken;

		if (n > 0 && buf_add(&talk->said, piece, (size_t)n) < 0)
			buf_clear(&talk->said); /* all of it may be one secret */
		taken = log_redact_stream(
			&masked, buf_str(&talk->said), talk->said.len, last && n <= 0);
		fs_write_all(STDERR_FILENO, buf_str(&masked), masked.len);
		buf_consume(&talk->said, taken);
		if (n == 0) {
			close(talk->err);
			talk->err = -1;
		}
		if (n <= 0)
			break;
	}
}

static int read_until(
	struct talk *talk, int64_t deadline, struct buf *out, struct penstock_error *err)
{
	for (;;) {
		struct pollfd p[2] = {
			{.fd = talk->out, .events = POLLIN}, {.fd = talk->err, .events = POLLIN}};
		int64_t left = deadline - clock_monotonic_ms();
		char *room = buf_reserve(out, 4096);
		int ready = left > 0 ? poll(p, 2, (int)left) : 0;
		ssize_t n;

		if (!room)
			return buf_error(out, "its output", err);
		if (ready == 0)
			return error_set(err, PENSTOCK_E_TIMEOUT, "it did not end within %d s",
				PATIENCE_MS / 1000);
		if (ready < 0) /* a signal; read() would wait without end */
			continue;
		if (p[1].revents)
			pass_on(talk, false);
		if (!p[0].revents)
			continue;
		n = read(talk->out, room, 4096);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read its output");
		if (n > 0)
			buf_grown(out, (size_t)n);
	}
}

/* It has closed its output, and may still have something to say. */
static bool wait_for_end(struct process *process, struct talk *talk, int64_t deadline, int *status)
{
	while (!process_wait(process, LOOK_MS, status)) {
		pass_on(talk, false);
		if (clock_monotonic_ms() >= deadline)
			return false;
	}
	return true;
}

static int run(const char *command, struct buf *out, struct penstock_error *err)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	int64_t deadline = clock_monotonic_ms() + PATIENCE_MS;
	struct talk talk = {.said = BUF_INIT(MIB)};
	struct process process = PROCESS_INIT;
	int outs[2], errs[2], status = 0, r;

	if (pipe2(outs, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	if (pipe2(errs, O_CLOEXEC) < 0) {
		close(outs[0]);
		close(outs[1]);
		return error_errno(err, errno, "cannot make a pipe");
	}
	talk.out = outs[0];
	talk.err = errs[0];
	fcntl(talk.err, F_SETFL, O_NONBLOCK);
	r = process_spawn(&process,
		&(struct process_spec){.argv = argv,
			.stdin_fd = -1,
			.stdout_fd = outs[1],
			.stderr_fd = errs[1],
			.new_session = true},
		err);
	close(outs[1]);
	close(errs[1]);
	if (r == 0) {
		r = read_until(&talk, deadline, out, err);
		if (r < 0 || !wait_for_end(&process, &talk, deadline, &status)) {
			kill(-process.pid, SIGKILL);
			process_wait(&process, -1, &status);
		}
		pass_on(&talk, true);
		if (r == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
			r = error_set(err, PENSTOCK_E_PERMISSION, "it failed with %s %d",
				WIFEXITED(status) ? "exit code" : "signal",
				WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	}
	close(talk.out);
	if (talk.err >= 0)
		close(talk.err);
	buf_release(&talk.said);
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
