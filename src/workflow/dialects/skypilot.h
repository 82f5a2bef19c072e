/* The parts of reading a SkyPilot task. Private to its files. */
#ifndef WORKFLOW_DIALECTS_SKYPILOT_H
#define WORKFLOW_DIALECTS_SKYPILOT_H

#include "workflow/dialects/dialect.h"
#include "workflow/dialects/shell.h"

struct task {
	struct reader *rd;
	const struct node *root;
	const struct node *resources; /* those that were chosen; NULL if there are none */
	struct node *job, *env, *inputs;
	const struct node *image; /* of the container; NULL on the host */
	const char *clone; /* shell to fetch the working directory; NULL if it is no repository */
	int64_t gpus; /* of each node */
	int64_t nodes;
	int64_t restarts;
	struct shell shell;
};

/* In skypilot_resources.c. */
extern const struct schema skypilot_resources;
/* Chooses the resources, and adds those of the run. */
void skypilot_put_resources(struct task *t);

/* In skypilot_files.c: inputs, the output, and their targets. */
void skypilot_put_files(struct task *t);
/* `text` with `$NAME` and `${NAME}` of `envs`; NULL if one is unknown, which is reported. */
const char *skypilot_expand(struct task *t, const struct workflow_place *at, const char *text);

#endif
