/*
 * Bringing a workflow to the verbs that need one: from a file, standard input, an S3 URL, or from the
 * copy that a run keeps. Diagnostics are printed to stderr here.
 */
#ifndef CLI_LOAD_H
#define CLI_LOAD_H

#include "base/buf.h"
#include "base/str.h"
#include "workflow/model.h"
#include "workflow/workflow.h"

struct penstock_error;
struct records_run;

/* The bytes of "path", "-" or "s3://bucket/key". `shown` gets the name for messages and records: an absolute
 * path, "<stdin>" or the URL; free() it. */
int load_bytes(const char *source, struct buf *bytes, char **shown, struct penstock_error *err);

/*
 * What the verbs that take a workflow are given: a file, or the name of a workflow in the .dstack/ of this
 * directory or of one above.
 */
struct load_given {
	const char *operand;
	const char *workflow; /* --workflow; NULL: not given */
	const char *context;  /* --context */
	const struct strlist *sets, *env, *variables;
	bool *used; /* of `variables`, see workflow_options; NULL: all must be */
	bool keep_references;
	bool here; /* it is to run on this machine */
};

/* The bytes of all that reading needs. */
struct load_source {
	struct buf bytes, variables, defaults;
	char *shown;	       /* as load_bytes() */
	char *pick, *run_args; /* NULL: none */
	char *context;
	char *variables_name, *defaults_name;
	bool dstack;	     /* it is .dstack/workflows.yaml */
	bool wrong_defaults; /* after reading failed: the workflow itself has no mistakes */
};
int load_source_find(
	struct load_source *out, const struct load_given *given, struct penstock_error *err);
void load_source_release(struct load_source *source);
/* For workflow_read(); both are borrowed. */
struct workflow_options load_source_options(
	const struct load_source *source, const struct load_given *given);
int load_source_read(struct workflow **out, struct load_source *source,
	const struct load_given *given, struct penstock_error *err);

/* Each key that stands in the file, but of stores only the first, and how they get out of there. */
void load_warn_of_keys(const struct workflow *wf);

/* Reads the workflow and prints what was found. -PENSTOCK_E_INVALID: mistakes, which were printed; `err` counts them. */
int load_workflow(struct workflow **out, const char *shown, const struct buf *bytes,
	const struct strlist *sets, const struct strlist *env, struct penstock_error *err);

/* dstack's variables, which stand beside its workflows; `name`, to be freed, is NULL where there are none. */
int load_variables(
	const char *workflows, struct buf *text, char **name, struct penstock_error *err);

/*
 * The workflow of a recorded run. Its credentials are looked up where they came from: the workflow
 * file as it is now (or `credentials_from`, another file of the same shape) and what that refers to, the environment, the
 * --set given.
 */
struct load_run_given {
	const char *credentials_from; /* NULL: the workflow file */
	const struct strlist *sets;
	bool places_only; /* see workflow_options: only its output, or its log, is wanted */
};
int load_run_workflow(struct workflow **out, const char *home, const struct records_run *run,
	const struct load_run_given *given, struct penstock_error *err);

#endif
