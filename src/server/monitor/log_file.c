#include "server/monitor/log_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/fs.h"

struct log_file {
	char *path;
	int fd; /* stays the same number when the file is reopened */
};

static int open_file(const char *path, struct penstock_error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);

	return fd < 0 ? error_errno(err, errno, "cannot open '%s'", path) : fd;
}

int log_file_open(struct log_file **out, const char *path, struct penstock_error *err)
{
	_cleanup_close_ int fd = open_file(path, err);
	struct log_file *log = fd < 0 ? NULL : calloc(1, sizeof(*log));

	if (fd < 0)
		return fd;
	if (!log || !(log->path = strdup(path))) {
		free(log);
		return error_memory(err);
	}
	log->fd = take_fd(fd);
	*out = log;
	return 0;
}

/* Other threads keep writing to the same descriptor. */
int log_file_reopen(struct log_file *log, struct penstock_error *err)
{
	_cleanup_close_ int fd = open_file(log->path, err);

	if (fd < 0)
		return fd;
	return dup3(fd, log->fd, O_CLOEXEC) < 0
		       ? error_errno(err, errno, "cannot reopen '%s'", log->path)
		       : 0;
}

void log_file_close(struct log_file *log)
{
	if (!log)
		return;
	close(log->fd);
	free(log->path);
	free(log);
}

void log_file_write(struct log_file *log, const struct buf *line)
{
	if (!buf_failed(line))
		(void)fs_write_all(log->fd, line->data, line->len);
}
