/*
 * The containers of a run's steps: their images, pulled before the steps, and the setup of a task
 * in a container.
 *
 *	containers_pull(&containers, err);	// images of registries; files are read when needed
 *	containers_task(&setup, &containers, what, gpus, n_gpus, err);
 *	... environment_build() with setup.environment
 *	containers_fill(&setup, &task);	// fills in the rest of the task
 *	container_setup_release(&setup);	// once the task was started
 */
#ifndef RUN_STEP_CONTAINERS_H
#define RUN_STEP_CONTAINERS_H

#include <stdatomic.h>

#include "base/str.h"
#include "run/step/environment.h"
#include "run/task/executor.h"
#include "workflow/model.h"

struct buf;
struct json_t;
struct attempt;
struct http_engine;
struct penstock_error;

/* An image that steps of the run use. */
struct container_image {
	const struct workflow_container *asked; /* borrowed from the workflow */
	struct image *image;
	struct container_image *next;
};

/* The containers of a run; everything that the members point to is borrowed, except for the
 * images. */
struct containers {
	const struct attempt *attempt;
	struct http_engine *engine;
	int64_t patience_ms; /* time to wait for an unavailable registry; 0 if pulls do not wait */
	const atomic_int *cancel; /* ends pulls */
	struct container_image *images;
	/* Called after an image was read from a file at the start of a step. May be NULL. */
	int (*pulled)(void *cookie, struct penstock_error *err);
	void *cookie;
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

/* Pulls all images of registries before the steps begin. Errors are of the class `image`. */
int containers_pull(struct containers *containers, struct penstock_error *err);
void containers_release(struct containers *containers);
/* Appends a JSON array of the images that were used: name and digest. */
int containers_describe(const struct containers *containers, struct buf *out);

/* Sets up a task that runs in a container with the GPUs `gpus`. The caller zeroes `setup`. */
int containers_task(struct container_setup *setup, struct containers *containers,
	const struct workflow_run *what, const int *gpus, size_t n_gpus,
	struct penstock_error *err);
/* Sets argv, cwd and the container of the task. */
void containers_fill(const struct container_setup *setup, struct task_spec *task);
void container_setup_release(struct container_setup *setup);

/* Splits a line into words as a shell does, with quotes and backslashes, without expanding
 * anything. */
int container_words(const char *line, struct strlist *out, struct penstock_error *err);

#endif
