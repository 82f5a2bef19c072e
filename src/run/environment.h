/*
 * The environment of steps. From lowest to highest precedence: what penstock itself was started
 * with (without its own PENSTOCK_ settings), the credentials and endpoint of the output's or else the
 * input's store, the variables of a task's rank, the job's env, $DEEPSQUARE_ENV of earlier steps, the variables of DeepSquare and
 * penstock, what this execution adds, the step's env.
 */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include "base/str.h"
#include "run/layout.h"
#include "workflow/model.h"

struct penstock_error;

/* The store whose credentials steps get; all NULL where there is none. Borrowed. */
struct environment_store {
	const char *endpoint_url;
	const char *region;
	const char *access_key;
	const char *secret_key;
	const char *session_token; /* of temporary keys, else NULL */
};

/* Of a step in a container. All borrowed; the lists are NULL-terminated, or NULL. */
struct environment_container {
	const struct run_layout *seen; /* the places as the step sees them */
	const char *disk_tmp, *disk_world_tmp;
	const char *const *image;     /* what the image says */
	const char *const *inherited; /* instead of all that penstock was started with */
};

struct environment_spec {
	const struct workflow *workflow;
	const struct workflow_run *step;
	const char *const
		*defaults;	  /* "K=V" below what the workflow says; NULL-terminated, or NULL */
	const char *const *extra; /* "K=V" of this execution; NULL-terminated, or NULL */
	const char *env_file; /* $DEEPSQUARE_ENV of a module, after that of the run; NULL: none */
	const struct run_layout *layout;
	const struct environment_store *store;
	const char *run_id;
	int attempt;
	unsigned long serial;	      /* of the execution */
	const char *deadline;	      /* of $PENSTOCK_DEADLINE; NULL: none is known */
	const char *checkpoint_dir;   /* below the output, or "."; NULL: none is named */
	const char *checkpoint;	      /* below the output; NULL: there is none */
	const char *venv;	      /* of Python packages; its programs come first; NULL: none */
	const char *const *inherited; /* NULL-terminated; usually environ */
	const struct environment_container *container; /* NULL: on the machine itself */
};

int environment_build(
	const struct environment_spec *spec, struct strlist *env, struct penstock_error *err);

#endif
