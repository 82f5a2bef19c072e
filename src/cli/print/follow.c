#include "cli/print/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/print/util.h"
#include "records/layout.h"

enum { BLOCK = 64 * 1024 };
static char block[BLOCK];

/* Seeks to the beginning of the last `lines` lines. */
static int seek_to_last(int fd, int64_t lines)
{
	off_t end = lseek(fd, 0, SEEK_END);
	off_t at = end;

	while (lines > 0 && at > 0) {
		size_t len = at < BLOCK ? (size_t)at : BLOCK;

		if (fs_pread_all(fd, block, len, at - (off_t)len) != (ssize_t)len)
			return -1;
		for (size_t i = len; i-- > 0;) {
			off_t position = at - (off_t)len + (off_t)i;

			/* Skip a newline at the end of the log, which starts no other line. */
			if (block[i] == '\n' && position + 1 < end && lines-- == 1)
				return lseek(fd, position + 1, SEEK_SET) < 0 ? -1 : 0;
		}
		at -= (off_t)len;
	}
	return lseek(fd, lines > 0 ? 0 : end, SEEK_SET) < 0 ? -1 : 0;
}

/* ---- times ---- */

/* Reads the next line of the times, "OFFSET MS", into `log->next`. Skips a line that a full disk
 * has truncated. An incomplete line at the end is left for the next call. Returns false if there is
 * no line. */
static bool next_time(struct follow *log)
{
	_cleanup_free_ char *line = NULL;
	size_t room = 0;
	long before = ftell(log->times);
	ssize_t n;

	while ((n = getline(&line, &room, log->times)) > 0 && line[n - 1] == '\n') {
		char *space = strchr(line, ' ');

		line[n - 1] = '\0';
		before = ftell(log->times);
		if (!space)
			continue;
		*space = '\0';
		if (str_to_i64(line, log->next.offset, INT64_MAX, &log->next.offset) &&
			str_to_i64(space + 1, 0, INT64_MAX / NS_PER_MS, &log->next.ms))
			return true;
	}
	clearerr(log->times);
	fseek(log->times, before, SEEK_SET);
	return false;
}

/* Sets `log->now` to the time of the byte at `offset`. */
static void find_time(struct follow *log, int64_t offset)
{
	for (;;) {
		if (!log->has_next)
			log->has_next = next_time(log);
		/* Lines before the first recorded time get that time. */
		if (!log->has_next || (log->next.offset > offset && log->now.ms))
			return;
		log->now = log->next;
		log->has_next = false;
	}
}

static bool open_times(struct follow *log)
{
	_cleanup_free_ char *path = run_log_times(log->path);

	if (!log->times && path)
		log->times = fopen(path, "re");
	return log->times != NULL;
}

/* Skips the part of the log that was written before `since_ms`. Each recorded time applies to the
 * bytes of the following second, so printing starts at the first recorded time that is later than a
 * second before `since_ms`. */
static int skip_to_since(struct follow *log)
{
	off_t at = lseek(log->fd, 0, SEEK_CUR), end = lseek(log->fd, 0, SEEK_END);
	int64_t from = log->since_ms - 1000, offset = end;

	while (next_time(log)) {
		if (log->next.ms > from) {
			offset = log->next.offset;
			break;
		}
	}
	/* The last time may be for bytes that are not in the log yet, because a time is written
	 * before its bytes. */
	if (offset > end)
		offset = end;
	rewind(log->times);
	log->next.offset = 0;
	return lseek(log->fd, offset > at ? offset : at, SEEK_SET) < 0 ? -1 : 0;
}

static int print_stamped(struct follow *log, const char *data, size_t len, int64_t offset)
{
	char when[SHOW_TIME_SIZE];

	for (size_t done = 0; done < len;) {
		const char *newline = memchr(data + done, '\n', len - done);
		size_t n = newline ? (size_t)(newline + 1 - data) - done : len - done;

		if (!log->in_line) {
			if (log->times || open_times(log))
				find_time(log, offset + (int64_t)done);
			printf("%s  ", show_time(log->now.ms * NS_PER_MS, when));
		}
		if (fwrite(data + done, 1, n, stdout) != n)
			return -1;
		log->in_line = !newline;
		done += n;
	}
	return 0;
}

/* ---- printing ---- */

static int begin(struct follow *log, struct penstock_error *err)
{
	log->fd = open(log->path, O_RDONLY | O_CLOEXEC);
	if (log->fd < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "cannot open '%s'", log->path);
	if (log->lines >= 0 && seek_to_last(log->fd, log->lines) < 0)
		return error_errno(err, errno, "cannot read the log");
	if (log->since_ms && open_times(log) && skip_to_since(log) < 0)
		return error_errno(err, errno, "cannot read the log");
	return 0;
}

int follow_print(struct follow *log, struct penstock_error *err)
{
	if (log->fd < 0) {
		int r = begin(log, err);

		if (r < 0 || log->fd < 0)
			return r;
	}
	for (;;) {
		int64_t offset = log->stamped ? lseek(log->fd, 0, SEEK_CUR) : 0;
		ssize_t n = read(log->fd, block, sizeof(block));
		bool written;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the log");
		if (n == 0)
			return 0;
		written = log->stamped ? print_stamped(log, block, (size_t)n, offset) == 0
				       : fwrite(block, 1, (size_t)n, stdout) == (size_t)n;
		if (!written || fflush(stdout) != 0)
			return error_errno(err, errno, "cannot write to standard output");
	}
}

void follow_close(struct follow *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
	if (log->times)
		fclose(log->times);
	log->times = NULL;
	log->now = log->next = (struct follow_time){0};
	log->has_next = log->in_line = false;
}
