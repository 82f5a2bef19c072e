/*
 * Progress on stderr: bars on a terminal, plain lines elsewhere.
 *
 *	struct progress *p = progress_new(quiet);
 *
 *	progress_update(p, "cifar-10-python.tar.gz", done, total);	// any thread, at any rate
 *	progress_note(p, "waiting for 2 CPUs");	// prints a line above the bars
 *	progress_clear(p);	// removes the bars, before other output
 *	progress_free(p);
 *
 * On a terminal, a thread redraws one line for each item ten times a second, with the bytes, and
 * with the rate and the remaining time, or the time of the last byte if the transfer has stalled.
 * Elsewhere a line is logged at the start and at the end of an item, and every ten seconds.
 */
#ifndef CLI_PRINT_PROGRESS_H
#define CLI_PRINT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress;

/* Returns NULL if out of memory. All functions accept NULL, and then show nothing, except that
 * progress_note() still logs its text. */
struct progress *progress_new(bool quiet);
/* `total` is 0 if unknown. An item with a known `total` is finished when `done` reaches `total`. */
void progress_update(struct progress *p, const char *name, uint64_t done, uint64_t total);
/* Logs a line with log_info(), even if `quiet` is true: the caller decides whether a note is
 * needed. */
void progress_note(struct progress *p, const char *text);
/* Marks all items as finished, regardless of their last update. */
void progress_complete(struct progress *p);
/* Ends the bars: finished bars stay on the terminal, unfinished bars and a single line are
 * removed. */
void progress_clear(struct progress *p);

/*
 * Shows a single line for many items, only on a terminal. A thread calls `look` ten times a second
 * until progress_free(); `look` calls progress_line().
 */
struct progress_line {
	const char *name; /* "3 of 17" */
	const char *note; /* at the end of the line: ", 2 failed" */
	uint64_t done, total;
	uint64_t before; /* bytes of `done` that an earlier, interrupted copy moved */
};
void progress_follow(struct progress *p, void (*look)(void *cookie), void *cookie);
void progress_line(struct progress *p, const struct progress_line *line);
/* Removes the bars, so that the caller can write other output before progress_resume(). */
void progress_suspend(struct progress *p);
void progress_resume(struct progress *p);
void progress_free(struct progress *p);

static inline void progress_freep(struct progress **p)
{
	progress_free(*p);
}

#endif
