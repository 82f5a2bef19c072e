/*
 * Directories that are no longer needed are removed by a background thread: a container has written
 * at least some twenty files and directories, and the next one need not wait for their removal.
 *
 *	litter_remove(dir);	takes the string
 *	litter_finish();	returns once everything is removed, and ends the thread
 */
#ifndef RUN_TASK_LITTER_H
#define RUN_TASK_LITTER_H

#include <stdbool.h>

/* Removes the directory at once if too many are waiting, or no thread can be started. */
void litter_remove(char *dir);
/* Makes the thread call `fn` with a path, which it takes. Returns false if too many jobs are
 * waiting, or no thread can be started. */
bool litter_hand_over(void (*fn)(char *path), char *path);
void litter_finish(void);

#endif
