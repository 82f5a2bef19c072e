/*
 * Processes left by an earlier attempt: if penstock was killed, its steps may still run. Every
 * process of a run has PENSTOCK_RUN_ID in its environment, inherited from its parent.
 */
#ifndef RUN_PROCESS_STRAYS_H
#define RUN_PROCESS_STRAYS_H

struct penstock_error;
struct run_layout;

#define STRAYS_GRACE_MS 5000 /* grace period, unless the user sets another */

/*
 * Sends SIGTERM (not if `grace_ms` is 0), and after `grace_ms` SIGKILL, to every process of the run
 * except this one and its ancestors; then kills the processes in the run's control groups, because
 * processes can hide their environment. The same workflow under another PENSTOCK_HOME has the same
 * id, but is not affected. Returns the number of processes, or a negative code if some do not end.
 */
int strays_end(const char *run_id, const struct run_layout *layout, int grace_ms,
	struct penstock_error *err);

#endif
