/*
 * Directories of containers on disk: the upper directory of an overlay, and the work directory of
 * overlayfs. If one container follows another, the directories of the next one are made while this
 * one runs, because on a busy disk that takes longer than the rest of a start.
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
 * Returns true if files outside of a box may be in this directory. If others can write to it, they
 * could replace our directory, below mounts that they do not see, and put another program in place
 * of the one that we are about to start.
 */
bool box_is_safe_in(const char *tmp);
/* Gets a new directory in `tmp` with "upper" and "work"; the caller frees the path. */
int box_take(char **out, const char *tmp, struct penstock_error *err);
void box_finish(void);

#endif
