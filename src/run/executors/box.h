/*
 * The directories of containers on disk: the upper one of an overlay, and that which overlayfs works in. Where one container follows
 * another the next one's is made while this one runs, as a directory takes a disk that is busy longer than anything else
 * that is done before the start.
 *
 *	box_take(&box, tmp, err);
 *	box_finish();		after litter_finish(): the one that nobody took is removed
 */
#ifndef RUN_EXECUTORS_BOX_H
#define RUN_EXECUTORS_BOX_H

#include <stdbool.h>

struct penstock_error;

/*
 * Whether what is not in a box of its own may be in this directory. Where others can write, they could put another
 * directory in the place of ours, below mounts that they do not see, and in it the program that we are about to start.
 */
bool box_is_safe_in(const char *tmp);
/* A new directory in `tmp` with "upper" and "work"; free() it. */
int box_take(char **out, const char *tmp, struct penstock_error *err);
void box_finish(void);

#endif
