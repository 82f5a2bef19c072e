/*
 * The lines of a batch, several at a time:
 *
 *	batch_lines_begin(&lines, jobs, fail_fast);
 *	while (batch_lines_add(&lines, line))	// waits for room; false if the batch is to end
 *		...
 *	batch_lines_end(&lines);	// waits for all; sets lines.n_failed, lines.code
 *
 * A line waits for each earlier line that uses the same place, if either of the two lines writes to
 * it. Output is printed in the order of the lines: the output of a line is held until the earlier
 * lines have ended. Lines with other verbs than cp, mv, rm and sync, lines with an operand "-", and
 * rm --uploads wait for all earlier lines.
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

/* A place that a line reads or writes. Two places overlap if they are equal, or if one is a tree
 * and a prefix of the other. */
struct batch_place {
	char *text;
	bool tree;
	bool write;
};

/* The output of a line on one of the standard streams. */
struct batch_tape {
	struct batch_line *line;
	FILE *file, *to;
	struct buf held; /* protected by the lock */
};

enum batch_state { BATCH_WAITS, BATCH_RUNS, BATCH_OVER };

struct batch_line {
	struct batch_lines *lines;
	struct batch_line *next;
	char *where; /* "jobs.txt:12: " */
	uint64_t number; /* 12 */
	struct cli *cli; /* NULL if the line runs no verb; `code` is then final */
	int code;
	bool empty; /* the line has no command, or its command was not run */
	bool unfinished; /* an interrupt ended the line, or kept it from running */
	enum log_level level;
	struct batch_tape out, err;

	/* set by batch_line_plan() */
	struct batch_place *places;
	size_t n_places;
	bool in_turn; /* runs after all earlier lines have ended */
	bool heavy; /* many objects: one such line runs at a time, to bound the memory */

	enum batch_state state; /* protected by the lock */
};

struct batch_lines {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	/* Protected by the lock. */
	struct batch_line *first, *last;
	size_t n;
	bool heavy_runs, closing, stop;
	uint64_t n_lines, n_failed;
	uint64_t n_unfinished; /* lines that an interrupt ended or kept from running */
	/* line number in the file of the first unfinished line; 0 if there is none */
	uint64_t first_unfinished;
	int code; /* the highest exit code so far */

	bool fail_fast;
	unsigned n_threads;
	pthread_t threads[LIMIT_BATCH_JOBS];
};

/* Creates a line; takes ownership of `where`. Returns NULL if out of memory. */
struct batch_line *batch_line_new(char *where);
void batch_line_free(struct batch_line *line);
/* Redirects the output of the calling thread to the line, until batch_line_let_go(). */
void batch_line_take(struct batch_line *line);
void batch_line_let_go(struct batch_line *line);
/* Fills in the places, `in_turn` and `heavy` of the line; in batch_places.c. */
void batch_line_plan(struct batch_line *line);
bool batch_places_clash(const struct batch_line *a, const struct batch_line *b);

void batch_lines_begin(struct batch_lines *lines, unsigned jobs, bool fail_fast);
/* Adds a line, which the batch then owns, and waits if too many lines have not ended. Returns false
 * if the batch is to end. */
bool batch_lines_add(struct batch_lines *lines, struct batch_line *line);
void batch_lines_end(struct batch_lines *lines);

#endif
