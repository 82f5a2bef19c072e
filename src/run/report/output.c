#include "run/report/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/thread.h"
#include "run/report/screen.h"
#include "records/layout.h"

/* A longer line of a labelled stream is shown in pieces. */
enum { LINE_MAX_BYTES = 16384, STREAMS_FIXED = 2, REST_ROUNDS = 64 };

/* A possible beginning of a secret is held back for WAIT_MS; then its first SHOWN_MAX bytes are
 * shown. */
enum { WAIT_MS = 200, SHOWN_MAX = 2 };

/* Maximum wait for a terminal to accept all text when a step or the run ends. */
enum { SETTLE_MS = 2000 };

/* A stream of all tasks or of one task. Used only by the pump thread, except for the pipe's write
 * end. */
struct stream {
	struct output_task *task; /* NULL for the streams of all tasks */
	int read_fd;
	int write_fd;
	bool ended; /* all writers have closed the pipe */
	int terminal_fd;
	struct screen *screen; /* NULL unless `terminal_fd` is a terminal */
	bool with_log; /* `terminal_fd` is the file of penstock's own lines */
	struct buf pending; /* may be the beginning of a secret */
	size_t shown; /* bytes of `pending` that were shown already */
	struct buf line; /* incomplete line of a labelled stream */
};

/* Freed by the pump thread after `removed` is set, or by output_free(). */
struct output_task {
	struct output_task *next; /* under the output's lock */
	struct stream streams[2];
	char *label; /* NULL if lines get no label */
	pthread_mutex_t parse_lock;
	output_parse_fn parse; /* under parse_lock; NULL if stderr is not parsed */
	void *parse_cookie;
	_Atomic uint64_t bytes;
	atomic_bool removed;
};

/* Descriptors of the pump: the eventfd, the two common streams, the streams of each task, and the
 * screens. */
struct pumped {
	struct pollfd *fds;
	struct stream **streams; /* streams[i] is read by fds[i + 1] */
	size_t n; /* streams */
	size_t cap;
};

struct output {
	struct stream streams[STREAMS_FIXED];
	int terminals[STREAMS_FIXED]; /* stdout_fd and stderr_fd of output_start() */
	struct screen screens[STREAMS_FIXED]; /* used by the pump thread */
	int log_fd;
	int times_fd; /* run_log_times(); -1 if it cannot be written */
	int64_t timed_ns; /* under log_lock: time of the last line of that file */
	bool in_line; /* under log_lock: the last byte was not a newline */
	_Atomic uint64_t log_size;
	pthread_mutex_t log_lock;
	struct buf waiting; /* under log_lock: waits for space on the disk */
	uint64_t dropped; /* under log_lock: bytes missing before `waiting` */
	bool log_warned; /* under log_lock */
	pthread_t thread;
	struct pumped pumped; /* owned by the thread */
	int wake_fd; /* eventfd: a drain or the stop was requested, or the tasks have changed */

	pthread_mutex_t lock;
	pthread_cond_t drained;
	struct output_task *tasks; /* under lock */
	unsigned drains_asked; /* under lock */
	unsigned drains_done; /* under lock */
	bool stopping; /* under lock */
	int64_t stop_asked_ns; /* under lock */
};

static bool output_patience_is_over(struct output *output)
{
	LOCK_SCOPE(&output->lock);
	return output->stopping && clock_monotonic_ns() > output->stop_asked_ns + 2 * NS_PER_S;
}

/* Notes the time of the bytes that come next, at most once a second. Other writers append to the
 * log, too, so the size is read from the file. */
static void note_time(struct output *output)
{
	int64_t now = clock_monotonic_ns();
	struct stat st;

	if (output->times_fd < 0 || (output->timed_ns && now - output->timed_ns < NS_PER_S) ||
		fstat(output->log_fd, &st) < 0)
		return;
	output->timed_ns = now;
	dprintf(output->times_fd, "%" PRId64 " %" PRId64 "\n", (int64_t)st.st_size,
		clock_wall_ns() / NS_PER_MS);
}

/* Writes as much as there is space for; returns the number of bytes written. */
static size_t write_some(struct output *output, const char *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(output->log_fd, data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	atomic_fetch_add(&output->log_size, done);
	return done;
}

/* Writes the line with the number of missing bytes, whole or not at all. */
static bool write_gap(struct output *output)
{
	uint64_t size = atomic_load(&output->log_size);
	char line[128];
	int n = snprintf(line, sizeof(line),
		"\npenstock: %" PRIu64 " bytes of the log are missing here: its disk was full\n",
		output->dropped);
	size_t done = write_some(output, line, (size_t)n);

	if (done == (size_t)n) {
		output->dropped = 0;
		return true;
	}
	if (done && ftruncate(output->log_fd, (off_t)size) == 0)
		atomic_store(&output->log_size, size);
	return false;
}

/* Writes the waiting part of the log. Call it with log_lock held. */
static void write_waiting(struct output *output)
{
	if (output->dropped && !write_gap(output))
		return;
	buf_consume(&output->waiting,
		write_some(output, buf_str(&output->waiting), output->waiting.len));
}

/* Keeps the end of unwritten data. Call it with log_lock held. */
static void hold_back(struct output *output, const char *data, size_t len)
{
	size_t most = LIMIT_LOG_WAITING;
	size_t over;

	if (len > most) {
		output->dropped += len - most;
		data += len - most;
		len = most;
	}
	over = output->waiting.len + len > most ? output->waiting.len + len - most : 0;
	buf_consume(&output->waiting, over);
	output->dropped += over;
	if (buf_add(&output->waiting, data, len) < 0) {
		output->dropped += output->waiting.len + len;
		buf_clear(&output->waiting);
	}
}

/* Appends to the log. A `note` begins with a newline, left out at the beginning of a line. */
static void write_log(struct output *output, const char *data, size_t len, bool note)
{
	size_t done = 0;
	int e;

	LOCK_SCOPE(&output->log_lock);
	if (output->log_fd < 0)
		return;
	if (note && !output->in_line) {
		data++;
		len--;
	}
	output->in_line = data[len - 1] != '\n';
	note_time(output);
	if (output->dropped || output->waiting.len)
		write_waiting(output);
	errno = 0;
	if (!output->dropped && !output->waiting.len)
		done = write_some(output, data, len);
	if (done == len)
		return;
	e = errno;
	hold_back(output, data + done, len - done);
	if (!output->log_warned)
		log_warn("cannot write the log of the run: %s; new output stays in memory until a "
			 "write succeeds",
			strerror(e));
	output->log_warned = true;
}

static void show(struct output *output, struct stream *stream, const char *data, size_t len)
{
	if (stream->screen) {
		screen_put(stream->screen, data, len);
		return;
	}
	/* A reader that has closed its pipe must not end the run, and a reader that does not read
	 * must not delay the end of the run: after the stop the latter gets two more seconds. */
	while (len && stream->terminal_fd >= 0) {
		struct pollfd p = {stream->terminal_fd, POLLOUT, 0};
		/* PIPE_BUF: this many bytes fit if poll() reports the pipe writable */
		size_t chunk = len < 4096 ? len : 4096;

		if (poll(&p, 1, 200) == 0) {
			if (output_patience_is_over(output))
				stream->terminal_fd = -1;
			continue;
		}
		if (fs_write_all(stream->terminal_fd, data, chunk) < 0)
			stream->terminal_fd = -1;
		data += chunk;
		len -= chunk;
	}
}

static void put(struct output *output, struct stream *stream, const char *data, size_t len)
{
	if (!len)
		return;
	write_log(output, data, len, false);
	show(output, stream, data, len);
	if (stream->with_log)
		log_text_ended(data[len - 1]);
}

/* Open MPI begins lines with "[JOB,RANK]<stdout>:". Writes "[RANK] " and returns the length of the
 * tag; 0 if there is none. */
static size_t take_tag(const char *line, struct buf *out)
{
	unsigned job;
	unsigned rank;
	int used = 0;
	const char *behind;

	if (sscanf(line, "[%u,%u]%n", &job, &rank, &used) != 2 || !used || line[used] != '<')
		return 0;
	behind = strstr(line + used, ">:");
	if (!behind || behind - line > used + 16)
		return 0;
	buf_printf(out, "[%u] ", rank);
	return (size_t)(behind + 2 - line);
}

/* Shows the collected line with its label and line end. */
static void put_line(struct output *output, struct stream *stream, const char *end)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_OUTPUT_CHUNK);
	size_t skip = 0;

	buf_add_str(&text, stream->task->label);
	if (!*stream->task->label)
		skip = take_tag(buf_str(&stream->line), &text);
	buf_add(&text, buf_str(&stream->line) + skip, stream->line.len - skip);
	if (buf_add_str(&text, end) == 0)
		put(output, stream, buf_str(&text), text.len);
	buf_clear(&stream->line);
}

static bool is_labelled(const struct stream *stream)
{
	return stream->task && stream->task->label;
}

/* Shows and logs pending data, except for the possible beginning of a secret, which is shown if
 * `last`. */
static void emit(struct output *output, struct stream *stream, bool last)
{
	_cleanup_(buf_release) struct buf masked = BUF_INIT(2 * LIMIT_OUTPUT_CHUNK);
	size_t taken = log_redact_stream(
		&masked, buf_str(&stream->pending), stream->pending.len, last);
	size_t skip = stream->shown < taken ? stream->shown : taken;

	if (is_labelled(stream)) {
		buf_consume(&stream->pending, taken);
		/* A progress bar's carriage return ends a line too. */
		const char *data = buf_str(&masked);
		for (size_t i = 0; i < masked.len; i++) {
			bool ends = data[i] == '\n' || data[i] == '\r';

			if (ends && data[i] == '\r' && i + 1 < masked.len && data[i + 1] == '\n')
				continue;
			if (ends)
				put_line(output, stream, data[i] == '\n' ? "\n" : "\r");
			else if (buf_add_char(&stream->line, data[i]) < 0 ||
				 stream->line.len >= LINE_MAX_BYTES)
				put_line(output, stream, "\n");
		}
		return;
	}
	/* Skip the part that was shown. If that part turned out to be the beginning of a secret,
	 * the mask of the secret is shown after the part. */
	if (skip > masked.len || memcmp(buf_str(&masked), buf_str(&stream->pending), skip) != 0)
		skip = 0;
	if (taken)
		stream->shown -= stream->shown < taken ? stream->shown : taken;
	buf_consume(&stream->pending, taken);
	put(output, stream, buf_str(&masked) + skip, masked.len - skip);
}

static bool has_more_to_show(const struct stream *stream)
{
	return !is_labelled(stream) && stream->shown < SHOWN_MAX &&
	       stream->shown < stream->pending.len;
}

/* Shows the first bytes of pending data if no more data came for a while. A prompt may end with a
 * letter that begins a secret, so a few bytes are shown. These bytes stay pending, so that the rest
 * of a late secret is still masked. */
static void show_beginning(struct output *output, struct stream *stream)
{
	size_t until = stream->pending.len < SHOWN_MAX ? stream->pending.len : SHOWN_MAX;

	if (!has_more_to_show(stream))
		return;
	put(output, stream, buf_str(&stream->pending) + stream->shown, until - stream->shown);
	stream->shown = until;
}

/* Reads the pipe once. Returns false if there was nothing to read. */
static bool pump(struct output *output, struct stream *stream)
{
	char *room = buf_reserve(&stream->pending, LIMIT_OUTPUT_CHUNK / 2);
	ssize_t n;

	if (!room) { /* out of memory: show all pending data now; the rest waits in the pipe */
		emit(output, stream, true);
		buf_clear(&stream->pending);
		return false;
	}
	n = read(stream->read_fd, room, LIMIT_OUTPUT_CHUNK / 2);
	stream->ended = n == 0;
	if (n <= 0)
		return false;
	buf_grown(&stream->pending, (size_t)n);
	if (stream->task)
		atomic_fetch_add(&stream->task->bytes, (uint64_t)n);
	if (stream->task && stream == &stream->task->streams[1]) {
		LOCK_SCOPE(&stream->task->parse_lock);
		if (stream->task->parse)
			stream->task->parse(stream->task->parse_cookie, room, (size_t)n);
	}
	emit(output, stream, false);
	return true;
}

/* Returns true if a drain or the stop was requested; otherwise tasks were added or removed. */
static bool is_drain_asked(struct output *output)
{
	LOCK_SCOPE(&output->lock);
	return output->stopping || output->drains_done != output->drains_asked;
}

static bool finish_drain(struct output *output)
{
	LOCK_SCOPE(&output->lock);
	output->drains_done = output->drains_asked;
	pthread_cond_broadcast(&output->drained);
	return output->stopping;
}

static void stream_close(struct stream *stream)
{
	if (stream->read_fd >= 0)
		close(stream->read_fd);
	if (stream->write_fd >= 0)
		close(stream->write_fd);
	buf_release(&stream->pending);
	buf_release(&stream->line);
}

static void task_free(struct output_task *task)
{
	for (int i = 0; i < 2; i++)
		stream_close(&task->streams[i]);
	pthread_mutex_destroy(&task->parse_lock);
	free(task->label);
	free(task);
}

/* Lists the descriptors again each time, because tasks come and go. If out of memory, the oldest
 * tasks wait. */
static void gather(struct output *output, struct pumped *p)
{
	size_t n = STREAMS_FIXED;

	LOCK_SCOPE(&output->lock);
	for (const struct output_task *t = output->tasks; t; t = t->next)
		n += 2;
	if (n > p->cap) {
		struct pollfd *fds = realloc(p->fds, (n + 1 + STREAMS_FIXED) * sizeof(*fds));
		struct stream **streams = fds ? realloc(p->streams, n * sizeof(struct stream *))
					      : NULL;

		p->fds = fds ? fds : p->fds;
		p->streams = streams ? streams : p->streams;
		p->cap = streams ? n : p->cap;
	}
	p->fds[0] = (struct pollfd){output->wake_fd, POLLIN, 0};
	p->n = 0;
	for (int i = 0; i < STREAMS_FIXED; i++)
		p->streams[p->n++] = &output->streams[i];
	for (struct output_task *t = output->tasks; t && p->n + 2 <= p->cap; t = t->next) {
		p->streams[p->n++] = &t->streams[0];
		p->streams[p->n++] = &t->streams[1];
	}
	/* Leave out streams that have ended: poll() would report their end again and again. */
	for (size_t i = 0; i < p->n; i++)
		p->fds[i + 1] = (struct pollfd){
			p->streams[i]->ended ? -1 : p->streams[i]->read_fd, POLLIN, 0};
	for (int i = 0; i < STREAMS_FIXED; i++)
		p->fds[p->n + 1 + i] = screen_poll(&output->screens[i]);
}

/* Shows the remaining output of removed tasks, and frees the tasks. */
static void end_removed(struct output *output)
{
	struct output_task *gone = NULL;

	pthread_mutex_lock(&output->lock);
	for (struct output_task **at = &output->tasks; *at;) {
		struct output_task *task = *at;

		if (!atomic_load(&task->removed)) {
			at = &task->next;
			continue;
		}
		*at = task->next;
		task->next = gone;
		gone = task;
	}
	pthread_mutex_unlock(&output->lock);
	while (gone) {
		struct output_task *task = gone;

		gone = task->next;
		for (int i = 0; i < 2; i++) {
			struct stream *stream = &task->streams[i];

			for (int round = 0; pump(output, stream) && round < REST_ROUNDS; round++)
				;
			emit(output, stream, true);
			if (stream->line.len)
				put_line(output, stream, "\n");
		}
		task_free(task);
	}
}

static int wait_for_some(const struct pumped *p)
{
	for (size_t i = 0; i < p->n; i++) {
		if (has_more_to_show(p->streams[i]))
			return poll(p->fds, p->n + 1 + STREAMS_FIXED, WAIT_MS);
	}
	return poll(p->fds, p->n + 1 + STREAMS_FIXED, -1);
}

/* Returns true to stop. */
static bool pump_round(struct output *output, struct pumped *p)
{
	uint64_t count;
	bool asked;

	gather(output, p);
	if (wait_for_some(p) == 0) {
		for (size_t i = 0; i < p->n; i++)
			show_beginning(output, p->streams[i]);
		return false;
	}
	for (int i = 0; i < STREAMS_FIXED; i++)
		screen_flush(&output->screens[i]);
	asked = read(output->wake_fd, &count, sizeof(count)) == (ssize_t)sizeof(count) &&
		is_drain_asked(output);
	for (size_t i = 0; i < p->n; i++) {
		/* Four rounds read more than a pipe holds. Do not wait for a writer that
		 * continues. */
		for (int round = 0; pump(output, p->streams[i]) && asked && round < 4; round++)
			;
	}
	end_removed(output);
	if (!asked)
		return false;
	for (size_t i = 0; i < STREAMS_FIXED; i++)
		emit(output, &output->streams[i], true);
	for (int i = 0; i < STREAMS_FIXED; i++)
		screen_settle(&output->screens[i], SETTLE_MS);
	return finish_drain(output);
}

static void *pump_thread(void *cookie)
{
	struct output *output = cookie;

	while (!pump_round(output, &output->pumped))
		;
	return NULL;
}

/* Creates the pipe of a stream. The write end blocks, like the write end of a shell's pipe. */
static int stream_open(struct stream *stream, int terminal_fd, struct penstock_error *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot create a pipe for the steps' output");
	stream->read_fd = ends[0];
	stream->write_fd = ends[1];
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	stream->terminal_fd = terminal_fd;
	buf_init(&stream->pending, LIMIT_OUTPUT_CHUNK);
	buf_init(&stream->line, LIMIT_OUTPUT_CHUNK);
	return 0;
}

void output_free(struct output *output)
{
	if (!output)
		return;
	while (output->tasks) {
		struct output_task *task = output->tasks;

		output->tasks = task->next;
		task_free(task);
	}
	for (int i = 0; i < STREAMS_FIXED; i++)
		stream_close(&output->streams[i]);
	for (int i = 0; i < STREAMS_FIXED; i++)
		screen_release(&output->screens[i]);
	if (output->log_fd >= 0)
		close(output->log_fd);
	if (output->times_fd >= 0)
		close(output->times_fd);
	free(output->pumped.fds);
	free(output->pumped.streams);
	buf_release(&output->waiting);
	pthread_mutex_destroy(&output->log_lock);
	if (output->wake_fd >= 0)
		close(output->wake_fd);
	pthread_mutex_destroy(&output->lock);
	pthread_cond_destroy(&output->drained);
	free(output);
}

/* Returns true if the descriptor is the file that penstock's own lines go to. */
static bool is_stderr(int fd)
{
	struct stat given, own;

	return fstat(fd, &given) == 0 && fstat(STDERR_FILENO, &own) == 0 &&
	       given.st_dev == own.st_dev && given.st_ino == own.st_ino;
}

/* Returns one screen for both streams if they go to the same terminal; NULL without a terminal. */
static struct screen *open_screen(struct output *output, int which)
{
	struct stat first, other;

	if (which == 1 && output->streams[0].screen && fstat(output->terminals[0], &first) == 0 &&
		fstat(output->terminals[1], &other) == 0 && first.st_rdev == other.st_rdev)
		return output->streams[0].screen;
	return screen_open(&output->screens[which], output->terminals[which])
		       ? &output->screens[which]
		       : NULL;
}

static int output_open(struct output *output, const char *log_path, const int terminals[2],
	struct penstock_error *err)
{
	_cleanup_free_ char *times = run_log_times(log_path);
	struct stat st;

	output->log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (output->log_fd < 0 || fstat(output->log_fd, &st) < 0)
		return error_errno(err, errno, "cannot open the log '%s'", log_path);
	atomic_store(&output->log_size, (uint64_t)st.st_size);
	if (times)
		output->times_fd = open(times, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	output->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (output->wake_fd < 0)
		return error_errno(err, errno, "cannot create an eventfd");
	/* Allocate here, because the thread must not fail: a step without a reader of its pipes
	 * would block. */
	output->pumped.cap = STREAMS_FIXED;
	output->pumped.fds = calloc(2 * STREAMS_FIXED + 1, sizeof(*output->pumped.fds));
	output->pumped.streams = calloc(STREAMS_FIXED, sizeof(struct stream *));
	if (!output->pumped.fds || !output->pumped.streams)
		return error_memory(err);
	for (int i = 0; i < STREAMS_FIXED; i++) {
		int r = stream_open(&output->streams[i], terminals[i], err);

		if (r < 0)
			return r;
		output->streams[i].screen = open_screen(output, i);
		output->streams[i].with_log = is_stderr(terminals[i]);
	}
	return 0;
}

int output_start(struct output **out, const char *log_path, int stdout_fd, int stderr_fd,
	struct penstock_error *err)
{
	struct output *output = calloc(1, sizeof(*output));
	int r;

	if (!output)
		return error_memory(err);
	output->log_fd = output->times_fd = output->wake_fd = -1;
	for (int i = 0; i < STREAMS_FIXED; i++) {
		output->streams[i].read_fd = output->streams[i].write_fd = -1;
		output->terminals[i] = i == 0 ? stdout_fd : stderr_fd;
		output->screens[i].fd = -1;
	}
	pthread_mutex_init(&output->lock, NULL);
	pthread_mutex_init(&output->log_lock, NULL);
	buf_init(&output->waiting, LIMIT_LOG_WAITING);
	clock_cond_init(&output->drained);
	r = output_open(output, log_path, (int[]){stdout_fd, stderr_fd}, err);
	if (r == 0)
		r = thread_start(&output->thread, "output", pump_thread, output, err);
	if (r < 0) {
		output_free(output);
		return r;
	}
	*out = output;
	return 0;
}

int output_write_fd(const struct output *output, int which)
{
	return output->streams[which - 1].write_fd;
}

void output_note(struct output *output, const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf raw = BUF_INIT(LIMIT_LOG_LINE);
	_cleanup_(buf_release) struct buf masked = BUF_INIT(2 * LIMIT_LOG_LINE);
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	buf_add_char(&masked, '\n');
	log_redact_into(&masked, buf_str(&raw));
	if (buf_add_char(&masked, '\n') == 0)
		write_log(output, buf_str(&masked), masked.len, true);
}

static void wake(const struct output *output)
{
	uint64_t one = 1;

	/* The counter cannot overflow; EAGAIN would mean that a wake-up is pending. */
	if (write(output->wake_fd, &one, sizeof(one)) < 0)
		return;
}

int output_add(struct output *output, const char *label, struct output_task **out,
	struct penstock_error *err)
{
	struct output_task *task = calloc(1, sizeof(*task));
	int r = 0;

	if (!task)
		return error_memory(err);
	pthread_mutex_init(&task->parse_lock, NULL);
	for (int i = 0; i < 2; i++) {
		task->streams[i].task = task;
		task->streams[i].read_fd = task->streams[i].write_fd = -1;
		if (r == 0)
			r = stream_open(&task->streams[i], output->terminals[i], err);
		task->streams[i].screen = output->streams[i].screen;
		task->streams[i].with_log = output->streams[i].with_log;
	}
	if (r == 0 && label && !(task->label = strdup(label)))
		r = error_memory(err);
	if (r < 0) {
		task_free(task);
		return r;
	}
	pthread_mutex_lock(&output->lock);
	task->next = output->tasks;
	output->tasks = task;
	pthread_mutex_unlock(&output->lock);
	wake(output);
	*out = task;
	return 0;
}

void output_task_parse(struct output_task *task, output_parse_fn parse, void *cookie)
{
	LOCK_SCOPE(&task->parse_lock);
	task->parse = parse;
	task->parse_cookie = cookie;
}

int output_task_fd(const struct output_task *task, int which)
{
	return task->streams[which - 1].write_fd;
}

void output_task_started(struct output_task *task)
{
	for (int i = 0; i < 2; i++)
		close(take_fd(task->streams[i].write_fd));
}

uint64_t output_task_bytes(const struct output_task *task)
{
	return atomic_load(&((struct output_task *)(uintptr_t)task)->bytes);
}

void output_remove(struct output *output, struct output_task *task)
{
	if (!task)
		return;
	atomic_store(&task->removed, true);
	wake(output);
}

void output_drain(struct output *output)
{
	int64_t until = clock_monotonic_ms() + 2000; /* show() may wait for a stuck reader */
	unsigned mine;

	LOCK_SCOPE(&output->lock);
	mine = ++output->drains_asked;
	wake(output);
	while ((int)(output->drains_done - mine) < 0 && clock_monotonic_ms() < until)
		clock_cond_wait_until_ms(&output->drained, &output->lock, until);
}

void output_retry(struct output *output)
{
	LOCK_SCOPE(&output->log_lock);
	write_waiting(output);
}

uint64_t output_size(const struct output *output)
{
	return atomic_load(&((struct output *)(uintptr_t)output)->log_size);
}

void output_stop(struct output *output)
{
	if (!output)
		return;
	pthread_mutex_lock(&output->lock);
	output->stopping = true;
	output->stop_asked_ns = clock_monotonic_ns();
	wake(output);
	pthread_mutex_unlock(&output->lock);
	pthread_join(output->thread, NULL);
	LOCK_SCOPE(&output->log_lock); /* other threads may still write notes */
	write_waiting(output);
	if (output->dropped || output->waiting.len)
		log_warn("cannot write the end of the run's log: its disk is full");
	fdatasync(output->log_fd);
	close(take_fd(output->log_fd));
}
