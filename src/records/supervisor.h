/*
 * The process that carries a run: it holds HOME/runs/ID/lock (fs_lock()) for its life, and has written its
 * number into that file.
 *
 *	r = supervisor_begin(path, id, &lock_fd, err);		the supervisor itself
 *
 *	r = supervisor_find(home, id, &supervisor, err);	1: there is one
 *	process_signal(&supervisor, SIGINT);
 *	poll(supervisor.pidfd) ...
 *	process_release(&supervisor);
 */
#ifndef RECORDS_SUPERVISOR_H
#define RECORDS_SUPERVISOR_H

#include <stdbool.h>

#include "base/process.h"

struct penstock_error;

/*
 * Takes the lock for this process; closing `lock_fd`, or dying, gives it back. PENSTOCK_E_EXISTS: somebody
 * has it; the message names the process.
 */
int supervisor_begin(const char *path, const char *id, int *lock_fd, struct penstock_error *err);

/*
 * 1: `out` holds it by a pidfd, and it was seen to have the lock's file open, so the number was not that of
 * a stranger. 0: nobody holds the lock. PENSTOCK_E_TIMEOUT: somebody does, but it cannot be found (another
 * pid namespace or machine).
 */
int supervisor_find(
	const char *home, const char *id, struct process *out, struct penstock_error *err);

/* Whether anybody holds the lock. */
bool supervisor_lives(const char *home, const char *id);

#endif
