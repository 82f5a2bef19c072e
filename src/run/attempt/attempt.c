#include "run/attempt/attempt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/str.h"

void run_end(struct attempt *attempt, enum run_state state, enum run_class class, int exit_code,
	const char *fmt, ...)
{
	_cleanup_(buf_release) struct buf raw = BUF_INIT(LIMIT_LOG_LINE),
					  text = BUF_INIT(2 * LIMIT_LOG_LINE);
	struct run_end *end = &attempt->end;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&raw, fmt, ap);
	va_end(ap);
	log_redact_into(&text, buf_str(&raw)); /* no secret may be recorded */
	/* the text may contain a file name that is not UTF-8, and may be cut within a character */
	if (text.data)
		str_make_utf8(text.data);
	if (end->decided) {
		run_event(&attempt->voice, RUN_EVENT_WARNING, buf_str(&text), 0, 0);
		return;
	}
	end->decided = true;
	end->state = state;
	end->class = class;
	end->exit_code = exit_code;
	end->message = buf_take(&text);
}

void run_end_reset(struct attempt *attempt)
{
	free(attempt->end.message);
	attempt->end = (struct run_end){.step_code = attempt->end.step_code};
}

int run_exit_code(enum run_class class, enum penstock_code code)
{
	if (code == PENSTOCK_E_PERMISSION)
		return 77;
	if (code == PENSTOCK_E_NO_SPACE || code == PENSTOCK_E_MEMORY)
		return 70;
	if (class == RUN_CLASS_INPUT || ((class == RUN_CLASS_IMAGE || class == RUN_CLASS_OUTPUT) &&
						code == PENSTOCK_E_NOT_FOUND))
		return 66;
	if (class == RUN_CLASS_WORKFLOW || (class == RUN_CLASS_IMAGE && code == PENSTOCK_E_INVALID))
		return 65;
	if (code == PENSTOCK_E_UNAVAILABLE || code == PENSTOCK_E_TIMEOUT ||
		code == PENSTOCK_E_EXISTS)
		return 69;
	return 70;
}

void attempt_reserve_space(struct attempt *attempt)
{
	const char *dir = attempt->layout.dir;
	_cleanup_free_ char *path = path_join(dir, "room-XXXXXX");
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && path) { /* not every file system has unnamed files */
		fd = mkostemp(path, O_CLOEXEC);
		if (fd >= 0)
			unlink(path);
	}
	if (fd >= 0 && posix_fallocate(fd, 0, LIMIT_RUN_RESERVE) != 0) {
		close(fd);
		fd = -1;
	}
	attempt->reserve_fd = fd;
}

bool attempt_free_space(struct attempt *attempt)
{
	int fd = attempt->reserve_fd;

	if (fd < 0)
		return false;
	attempt->reserve_fd = -1;
	close(fd);
	return true;
}

bool attempt_has_output(const struct attempt *attempt)
{
	const char *path = attempt->layout.output;
	_cleanup_closedir_ DIR *dir = path ? opendir(path) : NULL;

	/* A directory that cannot be read counts as output, because it may have the only copy. */
	return dir ? fs_next_entry(dir) || errno : path && errno != ENOENT;
}
