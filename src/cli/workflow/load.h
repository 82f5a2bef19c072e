/*
 * Loads a workflow for the verbs that need one: from a file, standard input, an object, or the copy
 * that a run keeps. Prints the diagnostics on stderr.
 */
#ifndef CLI_WORKFLOW_LOAD_H
#define CLI_WORKFLOW_LOAD_H

#include "base/buf.h"
#include "base/str.h"
#include "workflow/document/diagnostics.h"
#include "workflow/model.h"
#include "workflow/workflow.h"

struct penstock_error;
struct records_run;

/* Arguments of the verbs that take a workflow. The operand is a file, or the name of a workflow in
 * the .dstack/ of this directory or of a directory above. */
struct load_given {
	const char *operand;
	const char *workflow; /* --workflow; NULL if not given */
	const char *context; /* --context */
	bool strict; /* --strict: notes are errors */
	bool here, on_cluster; /* the workflow is to run on this machine, or on a cluster */
	/* only sets, image, env, arguments, used and keep_references are set by the verb */
	struct workflow_options options;
};

/* The bytes of a workflow file, of its variables and of its defaults, with their names. */
struct load_source {
	struct buf bytes, variables, defaults;
	char *shown; /* the name for messages and records: an absolute path, "<stdin>" or the URL */
	char *pick, *run_args; /* `pick` is NULL if not given */
	char *context;
	char *variables_name, *defaults_name;
	/* the workflows of .dstack/workflows/, if the file is in that directory */
	struct strlist siblings;
	/* settings for `s3://`; NULL until a file of another runner needs them */
	char *endpoint_url, *region;
	/* set by load_source_read(): the file as JSON, without overrides; empty if a variable was
	 * given that may be a secret */
	struct buf as_written;
	/* the file belongs to dstack by its path (.dstack/workflows.yaml, a file in
	 * .dstack/workflows/, NAME.dstack.yml, NAME.dstack.yaml), and may have variables */
	bool dstack;
	/* set if reading failed only because of the configuration: the workflow itself has no
	 * errors */
	bool wrong_defaults;
};
int load_source_find(
	struct load_source *out, const struct load_given *given, struct penstock_error *err);
/* Appends the names of the tasks of a SkyPilot file with several documents; appends nothing for any
 * other operand. */
void load_tasks(const char *operand, struct strlist *out);
void load_source_release(struct load_source *source);
/* Returns the options for workflow_read(); borrows both arguments. */
struct workflow_options load_source_options(
	struct load_source *source, const struct load_given *given);
int load_source_read(struct workflow **out, struct load_source *source,
	const struct load_given *given, struct penstock_error *err);

/* Warns of plaintext keys in the file, with the command that stores each as a secret. Warns of at
 * most ten keys, and of only one key of a store. The warnings become notes in `found`, or go to the
 * log if `found` is NULL. */
void load_warn_of_keys(const struct workflow *wf, struct diagnostics *found);

/* Prints diagnostics on stderr. If stderr is a terminal, also prints the lines of `text`, the
 * content of `file`, to which the diagnostics refer. `text` may be NULL. */
void load_print_found(const struct diagnostics *found, const char *file, const struct buf *text);
/* On a terminal, prints the number of errors and notes, if there are any. */
void load_print_total(const struct diagnostics *found, const char *file);

/* Reads dstack's variables: variables.yaml or .yml in the .dstack/ that contains `workflows`, the
 * path of a workflow file. `name` gets the path of the variables, which the caller frees, or NULL
 * if there is no such file. */
int load_variables(
	const char *workflows, struct buf *text, char **name, struct penstock_error *err);

/*
 * Loads the workflow of a recorded run. Credentials are read again from their sources: the current
 * workflow file (or `credentials_from`, another file with the same fields) and its references, the
 * environment, and --set.
 */
struct load_run_given {
	const char *credentials_from; /* NULL for the workflow file */
	const struct strlist *sets;
	const struct strlist *env; /* see workflow_options; may be NULL */
	/* see workflow_options: only the output or the log of the run is needed */
	bool places_only;
	/* If not NULL, later changes of the file are applied, and `*again` is set to the new
	 * description of the file for runs/ID/source, which the caller frees, or to NULL if no
	 * changes were applied. If NULL, the workflow is loaded as recorded. */
	char **again;
};
int load_run_workflow(struct workflow **out, const char *home, const struct records_run *run,
	const struct load_run_given *given, struct penstock_error *err);

#endif
