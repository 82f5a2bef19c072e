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

#include <stdint.h>

struct penstock_error;

struct follow {
	const char *path;
	int fd; /* -1 until the file exists */
	int64_t lines; /* of the existing log, print only the last `lines`; -1 for all */
};

/* Prints everything since the last call. Does nothing if there is no file yet. Fails if it cannot
 * be read or standard output cannot be written. */
int follow_print(struct follow *log, struct penstock_error *err);
void follow_close(struct follow *log);

#endif
