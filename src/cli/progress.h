/*
 * Progress on stderr: bars on a terminal, plain lines elsewhere.
 *
 *	struct progress *p = progress_new(quiet);
 *
 *	progress_update(p, "cifar-10-python.tar.gz", done, total);	from any thread, as often as you like
 *	progress_note(p, "waiting for 2 CPUs");				a line above the bars
 *	progress_clear(p);						the bars go; before others write
 *	progress_free(p);
 *
 * A terminal gets one line for each item, redrawn at most ten times a second, with bytes, rate and
 * time to go. Elsewhere an item has a line at its begin and at its end, and one every ten seconds.
 */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress;

/* NULL (no memory) is fine everywhere: then there is none. */
struct progress *progress_new(bool quiet);
/* `total` 0: not known. An item whose `done` is its `total` is finished. */
void progress_update(struct progress *p, const char *name, uint64_t done, uint64_t total);
/* Also shown when quiet: the caller decides. Goes through log_info(). */
void progress_note(struct progress *p, const char *text);
/* Everything that was begun is done, whatever its last update said. */
void progress_complete(struct progress *p);
void progress_clear(struct progress *p);
void progress_free(struct progress *p);

#endif
