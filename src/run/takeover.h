/*
 * A run that another machine may have, or has had.
 *
 *	r = run_take_lease(run, err);	// before anything of the output is used
 *	if (run->refused)
 *		...	another machine has the run or has ended it, or another run has the output
 */
#ifndef RUN_TAKEOVER_H
#define RUN_TAKEOVER_H

#include <stdbool.h>

struct attempt;
struct lease_found;
struct penstock_error;
struct run;

/* Takes the ownership of the run and of its output, or refuses the run. If another machine had the
 * run meanwhile, decides how the attempt continues. Does nothing if the output is not in a
 * store. */
int run_take_lease(struct run *run, struct penstock_error *err);
/* Takes the ownership for `penstock flush`, which uploads the output of the last attempt. Returns
 * -PENSTOCK_E_EXISTS if a newer output exists elsewhere. */
int run_take_lease_to_flush(struct run *run, struct penstock_error *err);
/* Records what another machine does with the run, for `ps` and `show`. */
void run_note_elsewhere(const struct run *run, const struct lease_found *found);
/* Returns true if another home's attempt is newer than the storage here, and not restored yet. */
bool run_is_superseded(const struct attempt *attempt);
/* Records what the next attempt needs if this one ends before its steps. */
int run_record_start(const struct attempt *attempt, struct penstock_error *err);

#endif
