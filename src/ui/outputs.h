/*
 * Runs of other machines, whose states are next to outputs in a store (`penstock ps PLACE`).
 *
 *	GET /api/runs				the runs of this home, and of the places
 *	GET /api/runs?since=TAG			the changes of that list: changes.h
 *	GET /api/failures			places that could not be read: {"place", "error"}
 *	GET /api/run?run=ID&place=s3://…	one run, in the form of `penstock show`
 *	GET /api/files?run=ID&place=s3://…	the files of its output
 *
 * A place in a store other than the store of the environment is STORE:s3://…; verb.h has the
 * stores. A run of this home that another machine has continued is listed once, as `penstock ps` of
 * this home shows the run.
 */
#ifndef UI_OUTPUTS_H
#define UI_OUTPUTS_H

#include "ui/internal.h"

struct penstock_error;

/* Creates ui->outputs with a copy of the places. */
int outputs_init(struct ui *ui, const struct strlist *places, struct penstock_error *err);
/* `outputs` may be NULL. */
void outputs_free(struct outputs *outputs);

/* Returns true if the run of another machine was live when a request last read its state. */
bool outputs_is_live(struct ui *ui, const char *run);

/* Returns true if `place` is one of the places of --output, or below one of them. */
bool outputs_has(const struct ui *ui, const char *place);

enum MHD_Result outputs_runs(struct exchange *x);
enum MHD_Result outputs_failures(struct exchange *x);
enum MHD_Result outputs_run(struct exchange *x);
enum MHD_Result outputs_files(struct exchange *x);

#endif
