/*
 * Directories that nobody needs any more, removed by a thread behind the back of what goes on: what a container has
 * written is some twenty files and directories at least, and the next one need not wait for their end.
 *
 *	litter_remove(dir);	takes the string
 *	litter_finish();	once nothing is left, and so is the thread
 */
#ifndef RUN_EXECUTORS_LITTER_H
#define RUN_EXECUTORS_LITTER_H

#include <stdbool.h>

/* Removes it at once where too many wait already, or no thread can be had. */
void litter_remove(char *dir);
/* Has the thread do something else with a path, which it takes. False: too much waits already, or no thread can be had. */
bool litter_hand_over(void (*fn)(char *path), char *path);
void litter_finish(void);

#endif
