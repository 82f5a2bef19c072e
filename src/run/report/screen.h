/*
 * A terminal that may be slow, or stopped by Ctrl-S: the terminal gets as much of the text as it
 * accepts at once, and the rest later. Text beyond LIMIT_SCREEN is skipped, and a line reports
 * the gap; the run's log has the whole text.
 *
 *	screen_open(&screen, fd);	// false if `fd` is not a terminal: write to it directly
 *	screen_put(&screen, data, len);
 *	... poll() with screen_poll(&screen), then screen_flush(&screen) ...
 *	screen_settle(&screen, 2000);	// waits for the rest
 *	screen_release(&screen);
 *
 * One thread calls these functions.
 */
#ifndef RUN_REPORT_SCREEN_H
#define RUN_REPORT_SCREEN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct screen {
	int fd; /* does not block; -1 if there is no terminal, or it was closed */
	struct buf text; /* not shown yet */
	uint64_t skipped; /* bytes */
	bool stuck; /* the last wait timed out */
};

bool screen_open(struct screen *screen, int fd);
void screen_put(struct screen *screen, const char *data, size_t len);
/* Writes as much as the terminal accepts now. */
void screen_flush(struct screen *screen);
struct pollfd screen_poll(const struct screen *screen);
/* Waits until all is shown, at most `ms`. Does not wait if the last wait timed out and nothing was
 * shown since. */
void screen_settle(struct screen *screen, int ms);
void screen_release(struct screen *screen);

#endif
