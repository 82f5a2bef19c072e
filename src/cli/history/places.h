/*
 * Runs of any machine, by the states that they keep next to their outputs in a store:
 *
 *	r = places_each(cli, add_run, &listing, err);	// the operands of the verb are places
 *
 * A place is an output, or a prefix whose directories are outputs.
 */
#ifndef CLI_HISTORY_PLACES_H
#define CLI_HISTORY_PLACES_H

struct cli;
struct penstock_error;
struct records_run;

/* Receives a run with the id, name and last attempt of its state; `output` and `workflow` are its
 * place. `host` is the machine of that attempt. */
typedef int (*places_fn)(void *cookie, const struct records_run *run, const char *host);

/* Passes the runs of each operand, the newest run first. Invalid states are reported and
 * skipped. */
int places_each(const struct cli *cli, places_fn fn, void *cookie, struct penstock_error *err);

#endif
