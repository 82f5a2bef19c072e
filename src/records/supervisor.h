/*
 * The supervisor of a run: it holds HOME/runs/ID/lock (fs_lock()) for its lifetime, and has written
 * its pid into that file.
 *
 *	r = supervisor_begin(path, id, &lock_fd, err);	// called by the supervisor
 *
 *	r = supervisor_find(home, id, &supervisor, err);	// 1 if there is one
 *	process_signal(&supervisor, SIGINT);
 *	... poll supervisor.pidfd ...
 *	process_release(&supervisor);
 */
#ifndef RECORDS_SUPERVISOR_H
#define RECORDS_SUPERVISOR_H

#include <stdbool.h>

#include "base/process/process.h"

struct penstock_error;

/* Takes the lock for the calling process, until `lock_fd` is closed or the process dies. Returns
 * -PENSTOCK_E_EXISTS if another process holds the lock; the message names the holder. */
int supervisor_begin(const char *path, const char *id, int *lock_fd, struct penstock_error *err);

/*
 * Returns 1 and the supervisor with its pidfd. The pid was not reused, because the process has the
 * lock file open or, if open files are not visible, because it has the recorded start time. Returns
 * 0 if the lock is free, -PENSTOCK_E_TIMEOUT if the lock is held by a process that cannot be found
 * (another pid namespace or machine).
 */
int supervisor_find(
	const char *home, const char *id, struct process *out, struct penstock_error *err);

/* Returns true if the lock is held, or if that cannot be determined. */
bool supervisor_lives(const char *home, const char *id);

#endif
