/*
 * Provenance of a run's results, kept as JSON with its record: versions, host, overrides, inputs,
 * images, commit, price.
 */
#ifndef RUN_PROVENANCE_H
#define RUN_PROVENANCE_H

struct penstock_error;
struct run;

/* Adds the inputs staged so far, the commit of the context and the images pulled so far to the
 * caller's JSON, and records all. */
int provenance_record(struct run *run, struct penstock_error *err);

#endif
