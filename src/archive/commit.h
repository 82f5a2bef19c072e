/* Moves one directory's entries into another, merging directories of the same names. */
#ifndef ARCHIVE_COMMIT_H
#define ARCHIVE_COMMIT_H

struct penstock_error;

/*
 * Verifies that everything below `from` can be moved into `to`: no file onto a directory, no
 * directory onto anything else, nothing at the top onto `keep`. The error names the first conflict.
 */
int commit_check(int from, int to, const char *keep, struct penstock_error *err);

/* Moves the entries; `from` is empty afterwards. Both must be on one file system. */
int commit_move(int from, int to, struct penstock_error *err);

#endif
