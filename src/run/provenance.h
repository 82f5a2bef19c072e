/* Where a run's results come from, kept as JSON with its record: versions, host, overrides, inputs. */
#ifndef RUN_PROVENANCE_H
#define RUN_PROVENANCE_H

struct penstock_error;
struct run;

/* Adds `inputs` (a JSON array, as stage_inputs() gives it) to what the caller of the run brought, and records both. */
int provenance_record(struct run *run, const char *inputs, struct penstock_error *err);

#endif
