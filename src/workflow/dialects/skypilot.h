/* Declarations that the files that read a SkyPilot task share. */
#ifndef WORKFLOW_DIALECTS_SKYPILOT_H
#define WORKFLOW_DIALECTS_SKYPILOT_H

#include "workflow/dialects/dialect.h"
#include "workflow/dialects/shell.h"

struct task {
	struct reader *rd;
	const struct node *root;
	const struct node *resources; /* the chosen resources; NULL if there are none */
	struct node *job, *env, *inputs;
	const struct node *image; /* image of the container; NULL if steps run on the host */
	/* shell code that fetches the working directory; NULL if it is not a repository */
	const char *clone;
	int64_t gpus; /* GPUs of each node */
	int64_t nodes;
	int64_t restarts;
	struct shell shell;
};

/* In skypilot_resources.c. */
extern const struct schema skypilot_resources;
/* Chooses the resources, and adds the resources of the run. */
void skypilot_put_resources(struct task *t);

/* In skypilot_files.c: inputs, the output, and their targets. */
void skypilot_put_files(struct task *t);
/* Returns `text` with the values of `$NAME` and `${NAME}` from the command line, `envs` and
 * `secrets`; NULL if a name is unknown, which is reported. */
const char *skypilot_expand(struct task *t, const struct workflow_place *at, const char *text);

#endif
