/*
 * The file that a download writes to before it has its name: beside it, so that it can be renamed, and ending in
 * OBJECT_PART_SUFFIX, so that nobody takes it for a file.
 *
 *	part_file_open(path, &fd, &part, err);
 *	write to fd, rename(part, path) or unlink(part), close(fd), free(part)
 */
#ifndef TRANSFER_PART_FILE_H
#define TRANSFER_PART_FILE_H

#include <stdbool.h>
#include <stddef.h>

struct penstock_error;

#define PART_FILE_NAMES 8 /* that are tried, where those before belong to somebody else */

/* "path" + middle + the suffix; a long name would not have room for its end and is cut. free() it. */
int part_file_name(const char *path, const char *middle, char **out, struct penstock_error *err);
/* One that nobody has or can foresee, and that part_file_is_marked() knows. */
int part_file_random_name(const char *path, char **out, struct penstock_error *err);
/* The one that part_file_open() makes first; always the same, and marked, too. */
int part_file_first_name(const char *path, char **out, struct penstock_error *err);

/* Whether a name (without its directory) is one of these two; `*stem`: how much of it is the name of the file itself. */
bool part_file_is_marked(const char *name, size_t *stem);
/*
 * Whether a name in an open directory is that of an unfinished download: a marked one, a journal, or what a journal
 * beside it tells of. A user's own file is not, whatever its name ends in.
 */
bool part_file_is_ours(int dir, const char *name);

/*
 * An empty file of ours alone, as long as `*fd` is open. The first name is taken over from a download that was
 * killed; where another process is at it, or it is not such a file, it stays untouched and a random one is made.
 */
int part_file_open(const char *path, int *fd, char **part, struct penstock_error *err);

#endif
