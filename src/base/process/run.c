#include "base/process/run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/process/process.h"

enum {
	CANCEL_POLL_MS = 50, /* between checks of `cancel` */
	MAX_POLL_MS = 3600000, /* longest single poll() */
	/* time until a killed program is abandoned: the kernel cannot interrupt a read from a file
	 * server that does not reply */
	KILL_WAIT_MS = 10000,
};

struct stream {
	int fd; /* our end of the pipe, non-blocking; -1 if closed, or if there is no sink */
	int child_end; /* the child's end of the pipe; -1 once the child has it */
	const struct process_sink *sink;
	bool keeps_end;
};

struct runner {
	const struct process_run_options *options;
	struct process process;
	struct stream streams[2]; /* stdout and stderr */
};

/* ---- streams ---- */

/* Creates a pipe if there is a sink. Sets `given`, in the specification, to the child's end. */
static int open_stream(struct stream *s, int *given, struct penstock_error *err)
{
	int ends[2];

	if (!s->sink->text && !s->sink->take)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot create a pipe");
	s->fd = ends[0];
	s->child_end = *given = ends[1];
	fcntl(s->fd, F_SETFL, O_NONBLOCK);
	return 0;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(take_fd(*fd));
}

/* Puts the input in a memory file: a pipe could fill up or lose its reader. */
static int open_input(const struct process_run_options *o, int *fd, struct penstock_error *err)
{
	*fd = memfd_create("input", MFD_CLOEXEC);
	if (*fd < 0 || fs_write_all(*fd, o->input, strlen(o->input)) < 0 ||
		lseek(*fd, 0, SEEK_SET) < 0)
		return error_errno(err, errno, "cannot store the input of '%s' in memory", o->name);
	return 0;
}

static int deliver(const struct runner *r, const struct stream *s, const char *data, size_t len,
	struct penstock_error *err)
{
	struct buf *text = s->sink->text;
	char what[128];

	if (!text)
		return s->sink->take(s->sink->cookie, data, len, err);
	if (s->keeps_end && len > text->limit) {
		data += len - text->limit;
		len = text->limit;
	}
	if (s->keeps_end && len > text->limit - text->len)
		buf_consume(text, len - (text->limit - text->len));
	if (buf_add(text, data, len) == 0)
		return 0;
	snprintf(what, sizeof(what), "the output of %s", r->options->name);
	return buf_error(text, what, err);
}

/* Returns the number of bytes read, at most `most`; 0 if there is nothing to read now or the stream
 * has ended; a negative code on failure. */
static int read_some(
	const struct runner *r, struct stream *s, size_t most, struct penstock_error *err)
{
	char block[16 * KIB];
	ssize_t n = read(s->fd, block, most < sizeof(block) ? most : sizeof(block));
	int rc;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n < 0)
		return error_errno(err, errno, "cannot read the output of '%s'", r->options->name);
	if (n == 0) {
		close_end(&s->fd);
		return 0;
	}
	rc = deliver(r, s, block, (size_t)n, err);
	explicit_bzero(block, (size_t)n); /* the output may contain a password */
	return rc < 0 ? rc : (int)n;
}

/* Reads the data that has arrived; does not wait for more. */
static int read_rest(const struct runner *r, struct stream *s, struct penstock_error *err)
{
	int left = 0;

	if (s->fd < 0 || ioctl(s->fd, FIONREAD, &left) < 0)
		return 0;
	while (left > 0) {
		int n = read_some(r, s, (size_t)left, err);

		if (n <= 0)
			return n;
		left -= n;
	}
	return 0;
}

/* ---- the program ---- */

/* Waits until the program has ended. Checks the timeout and `cancel` in each iteration. */
static int wait_for_exit(struct runner *r, struct penstock_error *err)
{
	const struct process_run_options *o = r->options;
	int64_t until = (o->began_ms ? o->began_ms : clock_monotonic_ms()) + o->timeout_ms;

	for (;;) {
		struct pollfd p[] = {{r->process.pidfd, POLLIN, 0}, {r->streams[0].fd, POLLIN, 0},
			{r->streams[1].fd, POLLIN, 0}};
		int64_t wait = o->cancel ? CANCEL_POLL_MS : MAX_POLL_MS;
		int64_t left = o->timeout_ms ? until - clock_monotonic_ms() : wait;

		if (o->cancel && atomic_load(o->cancel))
			return error_set(err, PENSTOCK_E_CANCELLED, "%s was cancelled", o->name);
		if (left <= 0)
			return error_set(err, PENSTOCK_E_TIMEOUT, "%s did not end within %d s",
				o->name, o->timeout_ms / 1000);
		if (poll(p, ARRAY_SIZE(p), (int)(left < wait ? left : wait)) <= 0)
			continue;
		if (p[0].revents)
			return 0;
		for (size_t i = 0; i < ARRAY_SIZE(r->streams); i++) {
			int n = p[1 + i].revents ? read_some(r, &r->streams[i], SIZE_MAX, err) : 0;

			if (n < 0)
				return n;
		}
	}
}

int process_run(const struct process_spec *spec, const struct process_run_options *options,
	int *status, struct penstock_error *err)
{
	struct process_spec complete = *spec;
	struct runner r = {.options = options,
		.process = PROCESS_INIT,
		.streams = {{-1, -1, &options->out, false}, {-1, -1, &options->err, true}}};
	_cleanup_close_ int input = -1;
	int rest = 0;
	int rc = options->input ? open_input(options, &input, err) : 0;

	if (options->input)
		complete.stdin_fd = input;
	if (rc == 0)
		rc = open_stream(&r.streams[0], &complete.stdout_fd, err);
	if (rc == 0)
		rc = open_stream(&r.streams[1], &complete.stderr_fd, err);
	if (rc == 0)
		rc = process_spawn(&r.process, &complete, err);
	close_end(&r.streams[0].child_end);
	close_end(&r.streams[1].child_end);
	if (rc == 0) {
		rc = wait_for_exit(&r, err);
		if (rc < 0 && spec->new_session)
			kill(-r.process.pid, SIGKILL);
		else if (rc < 0)
			process_signal(&r.process, SIGKILL);
		if (!process_wait(&r.process, rc < 0 ? KILL_WAIT_MS : -1, status) && rc == 0)
			rc = error_errno(
				err, errno, "cannot get the exit status of '%s'", options->name);
		/* After an error the rest of stdout is dropped: output with a gap is worse than
		 * truncated output. */
		if (rc == 0)
			rc = read_rest(&r, &r.streams[0], err);
		rest = read_rest(&r, &r.streams[1], rc < 0 ? NULL : err);
	}
	close_end(&r.streams[0].fd);
	close_end(&r.streams[1].fd);
	process_release(&r.process);
	return rc < 0 ? rc : rest;
}
