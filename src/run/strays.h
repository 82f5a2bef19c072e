/*
 * Processes that an earlier attempt left behind: penstock was killed, its steps may live on. Every
 * process of a run carries PENSTOCK_RUN_ID in its environment, however it was forked.
 */
#ifndef RUN_STRAYS_H
#define RUN_STRAYS_H

struct penstock_error;

#define STRAYS_GRACE_MS 5000 /* that they get, unless the user says otherwise */

/* SIGTERM, after `grace_ms` SIGKILL, for every process of the run but our own ancestors. `storage` is the
 * run's: the same workflow under another PENSTOCK_HOME has the same id, and is no business of ours.
 * Returns how many there were, or a negative code when some do not end. */
int strays_end(const char *run_id, const char *storage, int grace_ms, struct penstock_error *err);

#endif
