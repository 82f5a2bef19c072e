/*
 * Reading a workflow: bytes in, a model and a list of diagnostics out. No I/O happens here.
 *
 *	struct diagnostics found = {0};
 *	struct workflow *wf = NULL;
 *
 *	r = workflow_read(&wf, "wf.json", bytes, len, &(struct workflow_options){
 *		.sets = &sets, .env = &env, .resolve = resolve, .cookie = &ctx }, &found, err);
 *	... print `found`: it may hold notes also where r is 0 ...
 *	diagnostics_release(&found);
 *	workflow_free(wf);
 *
 * The bytes are JSON where their first character other than space is `{`, else YAML. Files of dstack,
 * Determined and SkyPilot are known by their keys (docs/dialects.md).
 * -PENSTOCK_E_INVALID: at least one mistake, all of them in `found`, and `err` says how many.
 */
#ifndef WORKFLOW_WORKFLOW_H
#define WORKFLOW_WORKFLOW_H

#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"
#include "workflow/diagnostics.h"
#include "workflow/model.h"

struct penstock_error;

/*
 * Appends to `value` what `${{ env.NAME }}` (FROM_ENV), `${{ secrets.NAME }}` (FROM_SECRET), or, in
 * a copy made by workflow_write_record(), `${{ file.FIELD }}` and `${{ option.FIELD }}` stand for.
 * Returns true where there is such a value.
 */
typedef bool (*workflow_resolve_fn)(
	void *cookie, enum workflow_source source, const char *name, struct buf *value);

struct workflow_options {
	/* "PATH=VALUE" each, in order. PATH is keys and indices joined by dots:
	 * "resources.cpusPerTask", "steps[0].run.workDir", "steps.train.run.command" (a step by its
	 * name). VALUE is JSON or YAML: 2, true, text, {…}, […]; null removes the field. */
	const struct strlist *sets;
	/* "KEY=VALUE" each; added to the job's `env`. */
	const struct strlist *env;
	/* NULL: the process environment for env.NAME and PENSTOCK_SECRET_NAME for secrets.NAME. */
	workflow_resolve_fn resolve;
	void *cookie;
	/* Appends `module.yaml` of a module. 1: it was not looked at, and the steps that use it are not known;
	 * negative: `err` says why. NULL: none is looked at. */
	int (*module)(void *module_cookie, const char *source, struct buf *text,
		struct penstock_error *err);
	void *module_cookie;
	/* Whether there is such a file or directory where the workflow is to run; NULL: nobody knows yet. */
	bool (*is_here)(const char *path);
	/* Names are not resolved and their values are not needed: for `penstock validate`. */
	bool keep_references;
	/* Nothing is to be started: what is neither of an input nor of the output may lack its value, and is then
	 * the reference as it stands. */
	bool places_only;

	/* For files of other runners; all may be NULL. */
	const char *pick;		 /* the workflow of a file that has several */
	const struct strlist *arguments; /* "NAME=VALUE": dstack's variables */
	bool *used; /* one for each, set where it has that variable; NULL: it must have all */
	const char *run_args;  /* dstack's run.args */
	const char *context;   /* the directory to be sent along, absolute */
	const char *variables; /* the bytes of .dstack/variables.yaml */
	size_t variables_len;
	const char *variables_name;
	const char *defaults; /* the bytes of penstock.yaml, whose `output` is taken where a file
				 of another runner has none */
	size_t defaults_len;
	const char *defaults_name;
};

int workflow_read(struct workflow **out, const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct diagnostics *found,
	struct penstock_error *err);

/* The names of the workflows of a dstack file that has several; none for any other file. */
int workflow_names(const void *data, size_t len, struct strlist *out, struct penstock_error *err);

/* Appends the model with every default applied, as JSON with no secret in it; ends in a newline. */
int workflow_print_json(const struct workflow *wf, struct buf *out);

/*
 * Appends a copy of the workflow as JSON, overrides applied, that holds no credential: each inline
 * one is replaced by `${{ file.FIELD }}` or `${{ option.FIELD }}`. It is itself a workflow:
 * workflow_read() takes it back, and asks `resolve` for those fields. `digest` of what is read
 * back differs; keep the original one. For runs/ID/workflow.
 */
int workflow_write_record(const struct workflow *workflow, struct buf *out);

struct node;
struct workflow_arena;
/* Reads the value of `preemption` in a configuration file; what it holds lives as long as `arena`. */
void workflow_read_preemption(struct workflow_arena *arena, const char *file, struct node *map,
	struct workflow_preemption *out, struct diagnostics *found);

/*
 * Finds the string at FIELD ("output.s3.secretAccessKey") of a workflow file as it is now, for
 * `resolve` to answer FROM_FILE; appends it to `value`. -PENSTOCK_E_NOT_FOUND: it is gone.
 * Of `options` its `resolve` and dstack's `variables` say what references in it stand for; NULL: nothing does.
 */
int workflow_find_field(const char *name, const void *data, size_t len, const char *field,
	const struct workflow_options *options, struct buf *value, struct penstock_error *err);

#endif
