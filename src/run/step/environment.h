/*
 * The environment of steps. From lowest to highest precedence: penstock's own environment (without
 * the settings that a step must not inherit), the credentials and endpoint of the output's or else
 * the input's store, the variables of experiment trackers, the variables of a task's rank, the
 * job's env, $DEEPSQUARE_ENV of earlier steps, the variables of DeepSquare and penstock, the
 * variables of a container's image, the variables of this execution, the step's env.
 */
#ifndef RUN_STEP_ENVIRONMENT_H
#define RUN_STEP_ENVIRONMENT_H

#include "base/str.h"
#include "records/layout.h"
#include "workflow/model.h"

struct object_client;
struct penstock_error;
struct tracking;

/* For a step in a container. All borrowed; lists are NULL-terminated, or NULL. */
struct environment_container {
	const struct run_layout *seen; /* paths inside the container */
	const char *disk_tmp, *disk_world_tmp;
	const char *const *image; /* environment of the image */
	const char *const *inherited; /* replaces penstock's own environment */
};

struct environment_spec {
	const struct workflow *workflow;
	const struct workflow_run *step;
	/* "K=V" with less precedence than the workflow's variables; NULL-terminated, or NULL */
	const char *const *defaults;
	const char *const *extra; /* "K=V" of this execution; NULL-terminated, or NULL */
	/* $DEEPSQUARE_ENV of a module, read after the file of the run; NULL if there is none */
	const char *env_file;
	const struct run_layout *layout;
	const struct object_client *store; /* for the step's own clients; NULL if there is none */
	/* the endpoint of the store's temporary keys; NULL if the keys are in the environment */
	const char *keys_uri, *keys_token;
	const char *run_id;
	int attempt;
	unsigned long serial; /* number of the execution */
	const char *deadline; /* value of $PENSTOCK_DEADLINE; NULL if unknown */
	const char *checkpoint_dir; /* below the output, or "."; NULL if not configured */
	const char *checkpoint; /* below the output; NULL without a checkpoint */
	/* environment with the Python packages, first in PATH; NULL if there is none */
	const char *venv;
	const struct tracking *tracking; /* NULL without a tracker */
	const char *const *inherited; /* NULL-terminated; usually environ */
	const struct environment_container *container; /* NULL without a container */
};

int environment_build(
	const struct environment_spec *spec, struct strlist *env, struct penstock_error *err);

#endif
