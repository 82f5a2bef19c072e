/*
 * A box is the directory of a container on disk, with the upper directory of an overlay and the
 * work directory of overlayfs. If one container follows another, the box of the next container is
 * made while the current one runs, because making it on a busy disk takes longer than the rest of a
 * start.
 *
 *	r = box_take(&box, tmp, err);
 *	...
 *	box_finish();	// after litter_finish(); removes an unused box
 */
#ifndef RUN_TASK_BOX_H
#define RUN_TASK_BOX_H

#include <stdbool.h>

struct penstock_error;

/*
 * Returns true if penstock can safely use files in `tmp` outside of a box. If other users can write
 * to `tmp`, they can replace a directory on which penstock has mounted a file system that they do
 * not see, and so put another program in place of the one that penstock is about to start.
 */
bool box_is_safe_in(const char *tmp);
/* Creates a directory for a task in `tmp`, with `infix` in its name; the caller frees the path. */
int box_make(char **out, const char *tmp, const char *infix, struct penstock_error *err);
/* Gets a new directory in `tmp` with "upper" and "work"; the caller frees the path. */
int box_take(char **out, const char *tmp, struct penstock_error *err);
void box_finish(void);

/*
 * Directories that are no longer needed are removed by a background thread: a container has written
 * at least some twenty files and directories, and the next container need not wait for their
 * removal.
 *
 *	litter_remove(dir);	takes ownership of the string
 *	litter_finish();	returns once everything is removed, and ends the thread
 */
/* Removes the directory at once if too many are waiting, or no thread can be started. */
void litter_remove(char *dir);
/* Makes the thread call `fn`, which frees `path`. Returns false and leaves `path` to the caller if
 * too many jobs are waiting, or no thread can be started. */
bool litter_hand_over(void (*fn)(char *path), char *path);
void litter_finish(void);

#endif
