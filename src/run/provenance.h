/* Where a run's results come from, kept as JSON with its record: versions, host, overrides, inputs, images. */
#ifndef RUN_PROVENANCE_H
#define RUN_PROVENANCE_H

struct penstock_error;
struct run;

/* Adds what was staged, and the images that are here by now, to what the caller of the run brought, and records all. */
int provenance_record(struct run *run, struct penstock_error *err);

#endif
