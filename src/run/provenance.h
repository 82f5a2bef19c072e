/*
 * Provenance of a run's results, kept as JSON with the run's record: versions, host, kernel,
 * overrides, inputs, images, commit, trackers, price.
 */
#ifndef RUN_PROVENANCE_H
#define RUN_PROVENANCE_H

struct penstock_error;
struct run;

/* Adds to the caller's JSON the version of penstock, the machine, the price, the trackers, the
 * commit of the context, and the inputs and images staged so far. Records the result. */
int provenance_record(struct run *run, struct penstock_error *err);

#endif
