/* A file that somebody makes; its first line is the reason. Taken away again, it is withdrawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/limits.h"
#include "run/notice.h"
#include "base/banned.h"

enum { POLL_MS = 250 };

static void describe(const char *path, struct notice *out)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * KIB);
	char line[160];

	if (fs_read(path, &text, NULL) < 0)
		buf_clear(&text);
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(buf_str(&text), "\r\n"), buf_str(&text));
	notice_set(out, "file", *line ? line : path);
}

static bool wait_for_file(struct notice_watch *watch, struct notice *out)
{
	bool told = watch->state != NULL;

	do {
		bool there = access(watch->value, F_OK) == 0;

		if (there == told)
			continue;
		if (there)
			describe(watch->value, out);
		else
			notice_set(out, "file", "it is gone again");
		out->withdrawn = !there;
		watch->state = there ? (void *)(uintptr_t)watch->value : NULL;
		return true;
	} while (notice_sleep(watch, POLL_MS));
	return false;
}

const struct notice_source_ops notice_file = {.name = "file", .wait = wait_for_file};
