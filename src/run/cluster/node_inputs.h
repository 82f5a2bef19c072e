/*
 * Inputs of a run on a disk of each node: the first task on a node copies them, and the other tasks
 * of the node share the copy.
 *
 *	r = node_inputs_take(&inputs, &(struct node_inputs_spec){ ... }, err);
 *	... inputs.path ...			before and during the task
 *	node_inputs_release(&inputs);	// after the task
 *	node_inputs_sweep(where, id);	// after the run, by one task on each node
 *
 * WHERE/penstock-UID/ID-ATTEMPT/ appears only when it is complete. Users of the copy hold
 * WHERE/penstock-UID/ID-ATTEMPT.lock shared; copying and removing need it exclusively. When
 * an attempt makes its copy, the copies of other attempts that no task uses are removed.
 */
#ifndef RUN_CLUSTER_NODE_INPUTS_H
#define RUN_CLUSTER_NODE_INPUTS_H

#include <stdbool.h>

struct penstock_error;

#define NODE_INPUTS_SWEEP_WORD "--slurm-sweep"

struct node_inputs_spec {
	const char *from; /* the inputs in the shared home */
	const char *where; /* "$SLURM_TMPDIR/x", with variables of this process */
	const char *id; /* the run's ID */
	int attempt;
	/* Called during the copy or the wait for the copy; returns true to stop. May be NULL. */
	bool (*hurry)(void *cookie);
	void *cookie;
};

struct node_inputs {
	char *path; /* owned */
	int lock; /* -1 if not locked */
};

int node_inputs_take(
	struct node_inputs *out, const struct node_inputs_spec *spec, struct penstock_error *err);
void node_inputs_release(struct node_inputs *inputs);

/* main() of the task that removes the copies. */
int node_inputs_sweep(const char *where, const char *id);

#endif
