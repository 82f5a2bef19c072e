/*
 * The lines of a batch, several at a time:
 *
 *	batch_lines_begin(&lines, jobs, fail_fast);
 *	while (batch_lines_add(&lines, line))		waits for room; false: no more are wanted
 *		...
 *	batch_lines_end(&lines);			waits for all; lines.n_failed, lines.code
 *
 * A line waits for each one before it that touches what it touches, where one of the two writes it.
 * What lines print comes in their order: it is held until those before are over. Lines whose output
 * is what they are for, and those that read standard input, wait for all before them.
 */
#ifndef CLI_OBJECTS_BATCH_LINES_H
#define CLI_OBJECTS_BATCH_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "cli/command.h"

struct batch_lines;
struct batch_line;

/* What is touched. Places overlap where they are the same, or one is all that begins like it. */
struct batch_place {
	char *text;
	bool tree;
	bool write;
};

/* What a line prints on one of the standard streams. */
struct batch_tape {
	struct batch_line *line;
	FILE *file, *to;
	struct buf held; /* under the lock */
};

enum batch_state { BATCH_WAITS, BATCH_RUNS, BATCH_OVER };

struct batch_line {
	struct batch_lines *lines;
	struct batch_line *next;
	char *where; /* "jobs.txt:12: " */
	struct cli *cli; /* NULL: it is over, with `code` */
	int code;
	bool empty; /* there was no command */
	enum log_level level;
	struct batch_tape out, err;

	/* batch_line_plan() */
	struct batch_place *places;
	size_t n_places;
	bool in_turn; /* runs when those before it are over */
	bool heavy; /* many objects: one such line at a time, for the memory's sake */

	enum batch_state state; /* under the lock */
};

struct batch_lines {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	/* Under the lock. */
	struct batch_line *first, *last;
	size_t n;
	bool heavy_runs, closing, stop;
	uint64_t n_lines, n_failed;
	int code; /* the highest so far */

	bool fail_fast;
	unsigned n_threads;
	pthread_t threads[LIMIT_BATCH_JOBS];
};

/* NULL: no memory. */
struct batch_line *batch_line_new(char *where);
void batch_line_free(struct batch_line *line);
/* From here on, and until batch_line_let_go(), what the calling thread prints is the line's. */
void batch_line_take(struct batch_line *line);
void batch_line_let_go(struct batch_line *line);
/* batch_places.c: finds out what the line touches. */
void batch_line_plan(struct batch_line *line);
bool batch_places_clash(const struct batch_line *a, const struct batch_line *b);

void batch_lines_begin(struct batch_lines *lines, unsigned jobs, bool fail_fast);
/* Takes the line over. */
bool batch_lines_add(struct batch_lines *lines, struct batch_line *line);
void batch_lines_end(struct batch_lines *lines);

#endif
