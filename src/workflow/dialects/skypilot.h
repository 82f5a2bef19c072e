/* The parts of reading a SkyPilot task. Private to its files. */
#ifndef WORKFLOW_DIALECTS_SKYPILOT_H
#define WORKFLOW_DIALECTS_SKYPILOT_H

#include "base/buf.h"
#include "workflow/dialects/dialect.h"

struct task {
	struct reader *rd;
	const struct node *root;
	const struct node *resources; /* those that were chosen; NULL if there are none */
	struct node *job, *env, *inputs;
	const struct node *image; /* of the container; NULL on the host */
	int64_t gpus; /* of each node */
	int64_t nodes;
	int64_t restarts;
	const char *commands; /* of `setup` and `run`, to look for words in */

	/* Lines of shell that put files at their targets when a step starts. */
	struct buf links; /* by links, below the home and in a container */
	struct buf mounts; /* words FROM TO HOW for each mount on the host */
	bool own_home; /* the home is a directory of the run */
};

/* In skypilot_resources.c. */
extern const struct schema skypilot_resources;
/* Chooses the resources, and adds those of the run. */
void skypilot_put_resources(struct task *t);

/* In skypilot_files.c: inputs, the output, and their targets. */
void skypilot_put_files(struct task *t);
/* `text` with `$NAME` and `${NAME}` of `envs`; NULL if one is unknown, which is reported. */
const char *skypilot_expand(struct task *t, const struct workflow_place *at, const char *text);

/* In skypilot_shell.c. */
enum skypilot_how { SKYPILOT_COPY, SKYPILOT_MOUNT };
/* Puts `from`, which the shell expands, at `target` when a step starts. */
void skypilot_place(struct task *t, const char *from, const char *target, enum skypilot_how how);
/* The command of a step around `commands`. */
const char *skypilot_command(struct task *t, const char *commands);

#endif
