/* Moving one directory's entries into another, merging directories of the same names. */
#ifndef ARCHIVE_COMMIT_H
#define ARCHIVE_COMMIT_H

struct penstock_error;

/*
 * Whether everything below `from` can be moved into `to`: no file onto a directory, no directory
 * onto anything else, nothing at the top onto `keep`. Names the first entry that cannot.
 */
int commit_check(int from, int to, const char *keep, struct penstock_error *err);

/* Moves it. `from` is empty afterwards. Both on one file system. */
int commit_move(int from, int to, struct penstock_error *err);

#endif
