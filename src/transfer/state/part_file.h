/*
 * The file that a download writes before it has its final name. The file is next to the target, so
 * that it can be renamed, and its name ends in OBJECT_PART_SUFFIX, so that it is not taken for a
 * complete file.
 *
 *	part_file_open(path, &fd, &part, err);
 *	... write to fd
 *	rename(part, path);	// or unlink(part)
 *	close(fd);
 *	free(part);
 */
#ifndef TRANSFER_STATE_PART_FILE_H
#define TRANSFER_STATE_PART_FILE_H

#include <stdbool.h>
#include <stddef.h>

struct penstock_error;

#define PART_FILE_NAMES 8 /* attempts if earlier names belong to another process */

/* Makes `path`, `middle` and the suffix into a name; a digest replaces a file name that would be
 * too long. free() it. */
int part_file_name(const char *path, const char *middle, char **out, struct penstock_error *err);
/* Creates a random name that cannot be predicted, and that part_file_is_marked() recognises. */
int part_file_random_name(const char *path, char **out, struct penstock_error *err);
/* Computes the first name that part_file_open() tries; always the same for a path, and also
 * marked. */
int part_file_first_name(const char *path, char **out, struct penstock_error *err);

/* Returns true if a name (without its directory) was made by part_file_random_name() or
 * part_file_first_name(); `*stem` is the length of the target's name in it. */
bool part_file_is_marked(const char *name, size_t *stem);
/* Returns true for a regular file that this user owns and that has only one name, so that a write
 * does not also change a file of another name. */
bool part_file_is_private(int fd);
/* Returns true if a name in an open directory belongs to an unfinished download: a marked name,
 * also with ".json" after it, a journal, or a file that a journal next to it names. Returns false
 * for a user's own file, regardless of its suffix. */
bool part_file_is_ours(int dir, const char *name);

/*
 * Opens an empty file that no other process uses as long as `*fd` is open. A file of the first name
 * is taken over from a download that was killed; if another process uses the file, or the file is
 * not private, the file is left untouched and a random name is used.
 */
int part_file_open(const char *path, int *fd, char **part, struct penstock_error *err);

#endif
