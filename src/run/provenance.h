/* Where a run's results come from, kept as JSON with its record: versions, host, overrides, inputs, images, commit. */
#ifndef RUN_PROVENANCE_H
#define RUN_PROVENANCE_H

struct penstock_error;
struct run;

/* Below the run's state: there once the context was copied, and holds what context_commit_describe() told of it. */
#define PROVENANCE_CONTEXT "work"

/* Adds what was staged, the commit of the context, and the images that are here by now, to what the caller of the run brought, and records all. */
int provenance_record(struct run *run, struct penstock_error *err);

#endif
