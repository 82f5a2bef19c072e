#include "cli/print/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fs.h"

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

			/* A newline at the end of the log does not start another line. */
			if (block[i] == '\n' && position + 1 < end && lines-- == 1)
				return lseek(fd, position + 1, SEEK_SET) < 0 ? -1 : 0;
		}
		at -= (off_t)len;
	}
	return lseek(fd, lines > 0 ? 0 : end, SEEK_SET) < 0 ? -1 : 0;
}

int follow_print(struct follow *log, struct penstock_error *err)
{
	if (log->fd < 0) {
		log->fd = open(log->path, O_RDONLY | O_CLOEXEC);
		if (log->fd < 0)
			return errno == ENOENT
				       ? 0
				       : error_errno(err, errno, "cannot open %s", log->path);
		if (log->lines >= 0 && seek_to_last(log->fd, log->lines) < 0)
			return error_errno(err, errno, "cannot read the log");
	}
	for (;;) {
		ssize_t n = read(log->fd, block, sizeof(block));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the log");
		if (n == 0)
			return 0;
		if (fwrite(block, 1, (size_t)n, stdout) != (size_t)n || fflush(stdout) != 0)
			return error_errno(err, errno, "cannot write to standard output");
	}
}

void follow_close(struct follow *log)
{
	if (log->fd >= 0)
		close(log->fd);
	log->fd = -1;
}
