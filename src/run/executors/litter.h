/*
 * Directories that nobody needs any more, removed by a thread behind the back of what goes on: what a container has
 * written is some twenty files and directories at least, and the next one need not wait for their end.
 *
 *	litter_remove(dir);	takes the string
 *	litter_finish();	once nothing is left, and so is the thread
 */
#ifndef RUN_EXECUTORS_LITTER_H
#define RUN_EXECUTORS_LITTER_H

/* Removes it at once where too many wait already, or no thread can be had. */
void litter_remove(char *dir);
void litter_finish(void);

#endif
