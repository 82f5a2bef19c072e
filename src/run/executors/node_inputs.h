/*
 * Inputs of a run on a disk of the node where its tasks are: copied by the first task there, shared by all that come after it.
 *
 *	node_inputs_take(&inputs, &(struct node_inputs_spec){ ... }, err);	before the task; inputs.path is where they are
 *	node_inputs_release(&inputs);						after it
 *	node_inputs_sweep(where, id);						after the run, by one task on each node
 *
 * WHERE/penstock-UID/ID-ATTEMPT/ appears whole. Whoever uses it holds WHERE/penstock-UID/ID-ATTEMPT.lock shared; whoever copies or
 * removes holds it alone. A copy of an earlier attempt goes when the next one is made there.
 */
#ifndef RUN_EXECUTORS_NODE_INPUTS_H
#define RUN_EXECUTORS_NODE_INPUTS_H

#include <stdbool.h>

struct penstock_error;

#define NODE_INPUTS_SWEEP_WORD "--slurm-sweep"

struct node_inputs_spec {
	const char *from;  /* the inputs in the shared home */
	const char *where; /* "$SLURM_TMPDIR/x": variables are those of this process */
	const char *id;	   /* of the run */
	int attempt;
	/* Asked while it copies or waits; true: something else is more urgent. */
	bool (*hurry)(void *cookie);
	void *cookie;
};

struct node_inputs {
	char *path; /* owned */
	int lock;   /* -1: none */
};

int node_inputs_take(
	struct node_inputs *out, const struct node_inputs_spec *spec, struct penstock_error *err);
void node_inputs_release(struct node_inputs *inputs);

/* main() of the task that removes them. */
int node_inputs_sweep(const char *where, const char *id);

#endif
