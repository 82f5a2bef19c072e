/* Network of a step according to its workflow. */
#ifndef RUN_STEP_NETWORK_H
#define RUN_STEP_NETWORK_H

#include "base/str.h"
#include "run/task/executor.h"
#include "workflow/model.h"

struct penstock_error;

struct step_network {
	struct task_network network;
	struct strlist dns;
	struct strlist texts;
	struct task_interface *interfaces;
};

/* Fills in `out`, which the caller has zeroed and which borrows from the workflow. */
int step_network_describe(
	struct step_network *out, const struct workflow_run *what, struct penstock_error *err);
void step_network_release(struct step_network *network);

#endif
