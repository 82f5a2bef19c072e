#include "run/report/usage_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "records/layout.h"

enum { FIRST_INTERVAL_MS = 1000, SAMPLES = 600, SHARE = 500 };
#define TITLES "time_ms,name,cpu,memory,received,sent,gpu,gpu_memory\n"

int64_t usage_file_interval_ms(struct usage_file *file, int64_t monotonic_ms)
{
	int64_t interval, paid_ms;

	if (!file->began_ms)
		file->began_ms = monotonic_ms;
	interval = (monotonic_ms - file->began_ms) / SAMPLES;
	/* Before this time, the samples so far have taken more than their share of a processor. */
	paid_ms = file->began_ms + file->spent_ns * SHARE / NS_PER_MS;
	if (interval < FIRST_INTERVAL_MS)
		interval = FIRST_INTERVAL_MS;
	return paid_ms - monotonic_ms > interval ? paid_ms - monotonic_ms : interval;
}

int64_t usage_file_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static void open_file(struct usage_file *file, const char *log)
{
	_cleanup_free_ char *path = run_log_usage(log);
	struct stat st;

	file->opened = true;
	file->fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (file->fd >= 0 && fstat(file->fd, &st) == 0 && st.st_size == 0 &&
		fs_write_all(file->fd, TITLES, strlen(TITLES)) < 0)
		close(take_fd(file->fd));
	if (file->fd < 0)
		log_warn("cannot record the usage of the steps in '%s': %s", path ? path : log,
			strerror(errno));
}

/* Quotes the name as in RFC 4180; line ends become blanks. */
static void add_name(struct buf *line, const char *name)
{
	buf_add_char(line, '"');
	for (; *name; name++) {
		if (*name == '"')
			buf_add_char(line, '"');
		buf_add_char(line, *name == '\n' || *name == '\r' ? ' ' : *name);
	}
	buf_add_char(line, '"');
}

void usage_file_add(struct usage_file *file, const char *log, const struct usage_sample *s)
{
	_cleanup_(buf_release) struct buf line = BUF_INIT(LIMIT_LOG_LINE);

	if (!file->opened)
		open_file(file, log);
	if (file->fd < 0)
		return;
	buf_printf(&line, "%" PRId64 ",", s->time_ms);
	add_name(&line, s->name);
	buf_printf(&line, ",%.3f,%" PRIu64 ",%.0f,%.0f,", s->cpu, s->memory, s->received, s->sent);
	if (s->has_gpus)
		buf_printf(&line, "%.2f,%" PRIu64 "\n", s->gpu, s->gpu_memory);
	else
		buf_add_str(&line, ",\n");
	/* If the disk is full, only the sample is lost: an incomplete line is not a sample. */
	if (!buf_failed(&line))
		(void)!write(file->fd, line.data, line.len);
}

void usage_file_close(struct usage_file *file)
{
	if (file->opened && file->fd >= 0)
		close(take_fd(file->fd));
}
