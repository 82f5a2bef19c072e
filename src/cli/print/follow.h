/*
 * Prints a log file as it grows:
 *
 *	struct follow log = { .path = path, .fd = -1, .lines = -1 };
 *
 *	while (live)
 *		follow_print(&log, err);
 *	follow_close(&log);
 */
#ifndef CLI_PRINT_FOLLOW_H
#define CLI_PRINT_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct penstock_error;

/* The bytes of a log from `offset` on were written at `ms`, or later. */
struct follow_time {
	int64_t offset;
	int64_t ms; /* 0 if unknown */
};

struct follow {
	const char *path;
	int fd; /* -1 until the file exists */
	int64_t lines; /* print only this number of last lines of the existing log; -1 for all */
	bool stamped; /* print the time of each line; see run_log_times() */
	int64_t since_ms; /* print only what was written since this time; 0 for all */

	FILE *times; /* NULL until the file exists */
	struct follow_time now, next;
	bool has_next, in_line;
};

/* Prints everything since the last call. Does nothing if there is no file yet. Fails if the file
 * cannot be read or standard output cannot be written. */
int follow_print(struct follow *log, struct penstock_error *err);
void follow_close(struct follow *log);

#endif
