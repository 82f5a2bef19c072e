/*
 * A file whose existence is the notice. The first line of the file is the reason. Removing the file
 * withdraws the notice.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "run/notices/notice.h"

enum { POLL_MS = 250 };

static bool wait_for_file(struct notice_watch *watch, struct notice *out)
{
	bool reported = watch->state != NULL;

	do {
		bool there = access(watch->value, F_OK) == 0;

		if (there == reported)
			continue;
		if (there) {
			/* The file may be of any kind: a FIFO without a writer must not block, and
			 * the beginning of a large file is enough. */
			_cleanup_close_ int fd = open(
				watch->value, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
			char line[160];
			struct stat st;
			ssize_t n = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
					    ? fs_pread_all(fd, line, sizeof(line) - 1, 0)
					    : 0;

			line[n > 0 ? n : 0] = '\0';
			line[strcspn(line, "\r\n")] = '\0';
			notice_set(out, "file", *line ? line : watch->value);
		} else {
			notice_set(out, "file", "the file was removed");
		}
		out->withdrawn = !there;
		watch->state = there ? (void *)(uintptr_t)watch->value : NULL;
		return true;
	} while (notice_sleep(watch, POLL_MS));
	return false;
}

const struct notice_source_ops notice_file = {.name = "file", .wait = wait_for_file};
