/*
 * The containers of a run's steps: their images, brought while the run stages, and what a task in one is given.
 *
 *	containers_bring(run, err);               images of registries; those of files are brought when they are needed
 *	containers_task(&setup, run, what, err);  then setup.environment goes into environment_build()
 *	containers_fill(&setup, &task, err);      and the rest into the task
 *	container_setup_release(&setup);          once the task was started
 */
#ifndef RUN_CONTAINERS_H
#define RUN_CONTAINERS_H

#include "base/str.h"
#include "run/environment.h"
#include "run/executor.h"
#include "run/layout.h"
#include "workflow/model.h"

struct buf;
struct json_t;
struct penstock_error;
struct run;

/* An image that steps of the run use. */
struct run_image {
	const struct workflow_container *asked; /* borrowed from the workflow */
	struct image *image;
	struct run_image *next;
};

struct container_setup {
	struct task_container container;
	struct environment_container environment;
	struct strlist argv;
	struct strlist inherited;
	struct strlist image_env;
	struct container_mount *mounts;
	struct json_t *cdi;
	const char *cwd;
};

/* Brings what can be brought before the steps begin. Errors are of the class `image`. */
int containers_bring(struct run *run, struct penstock_error *err);
void containers_release(struct run *run);
/* Appends a JSON array of the images that were used: name and digest. */
int containers_describe(const struct run *run, struct buf *out);

/* `gpus` are those of the step. `setup` is zeroed. */
int containers_task(struct container_setup *setup, struct run *run, const struct workflow_run *what,
	const int *gpus, size_t n_gpus, struct penstock_error *err);
/* Sets argv, cwd and the container of the task. */
void containers_fill(const struct container_setup *setup, struct task_spec *task);
void container_setup_release(struct container_setup *setup);

/* Splits a line into words as a shell does, with quotes and backslashes, without expanding anything. */
int container_words(const char *line, struct strlist *out, struct penstock_error *err);

#endif
