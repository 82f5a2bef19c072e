/*
 * A command that is run again five seconds after it ended. Exit code 0 means that the machine is
 * about to end; another exit code withdraws that notice. The first line of output is the reason.
 */
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/process/process.h"
#include "base/process/run.h"
#include "run/notices/notice.h"

enum { POLL_MS = 5000, TIMEOUT_MS = 10000, LINE_BYTES = 159 };

/* Takes all output, so that the command never blocks, and keeps only the beginning. */
static int take_beginning(void *cookie, const char *data, size_t len, struct penstock_error *err)
{
	struct buf *line = cookie;
	size_t room = line->limit - line->len;

	(void)err;
	buf_add(line, data, len < room ? len : room);
	return 0;
}

static bool wait_for_command(struct notice_watch *watch, struct notice *out)
{
	bool reported = watch->state != NULL;
	_cleanup_(buf_release) struct buf line = BUF_INIT(LINE_BYTES);

	/* A command that could not be run, timed out or was killed has not withdrawn anything. */
	do {
		const char *const argv[] = {"/bin/sh", "-c", watch->value, NULL};
		int status = 0;
		int r;

		buf_clear(&line);
		r = process_run(
			&(struct process_spec){
				.argv = argv,
				.stdin_fd = -1,
				.stderr_fd = -1,
				.new_session = true,
				.die_with_parent = true,
			},
			&(struct process_run_options){.name = "it",
				.timeout_ms = TIMEOUT_MS,
				.cancel = watch->cancel,
				.out = {.take = take_beginning, .cookie = &line}},
			&status, NULL);
		buf_truncate(&line, strcspn(buf_str(&line), "\r\n"));
		/* -1 if the command could not be run, timed out or was killed */
		status = r == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;

		if (atomic_load(watch->cancel))
			return false;
		if (status < 0)
			log_debug("the command of `preemption.sources` failed or timed out");
		if (status < 0 || (status == 0) == reported)
			continue;
		notice_set(out, "command",
			line.len      ? buf_str(&line)
			: status == 0 ? "reported by the command"
				      : "withdrawn by the command");
		out->withdrawn = reported;
		watch->state = reported ? NULL : (void *)(uintptr_t)watch->value;
		return true;
	} while (notice_sleep(watch, POLL_MS));
	return false;
}

const struct notice_source_ops notice_command = {.name = "command", .wait = wait_for_command};
