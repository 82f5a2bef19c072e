/* Prints a log file from an offset on. */
#ifndef CLI_PRINT_FOLLOW_H
#define CLI_PRINT_FOLLOW_H

#include <stdint.h>

#include <penstock/error.h>

/* Seeks to the beginning of the last `lines` lines. */
int follow_seek_to_last(int fd, int64_t lines, struct penstock_error *err);

/* Prints everything from the descriptor's offset on. Fails if the log cannot be read or standard
 * output cannot be written. */
int follow_copy_rest(int fd, struct penstock_error *err);

#endif
