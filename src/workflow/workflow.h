/*
 * Reading a workflow: bytes in, a model and a list of diagnostics out. No I/O happens here.
 *
 *	struct diagnostics found = {0};
 *	struct workflow *wf = NULL;
 *
 *	r = workflow_read(&wf, "wf.json", bytes, len, &(struct workflow_options){
 *		.sets = &sets, .env = &env, .resolve = resolve, .cookie = &ctx }, &found, err);
 *	... print `found`: it may contain notes even if r is 0 ...
 *	diagnostics_release(&found);
 *	workflow_free(wf);
 *
 * The bytes are JSON if the first character other than space is `{`, else YAML. Files of dstack,
 * Determined and SkyPilot are recognised by their keys (docs/dialects.md). workflow_read() returns
 * -PENSTOCK_E_INVALID if there is a mistake; all mistakes are in `found`, and `err` has their
 * number.
 */
#ifndef WORKFLOW_WORKFLOW_H
#define WORKFLOW_WORKFLOW_H

#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"
#include "workflow/document/diagnostics.h"
#include "workflow/model.h"

struct penstock_error;

/*
 * Appends the value of `${{ env.NAME }}` (WORKFLOW_FROM_ENV), `${{ secrets.NAME }}`
 * (WORKFLOW_FROM_SECRET) or, in a copy made by workflow_write_record(), `${{ file.FIELD }}` and
 * `${{ option.FIELD }}`. Returns false if there is no such value.
 */
typedef bool (*workflow_resolve_fn)(
	void *cookie, enum workflow_source source, const char *name, struct buf *value);

/* Facts that files of other runners do not state. */
struct workflow_site {
	int cpus, gpus; /* CPUs and GPUs of the machine; `cpus` is 0 if unknown */
	bool nodes; /* the numbers are for each node of a cluster */
	const char *endpoint_url, *region; /* for `s3://BUCKET`; NULL for AWS */
};

struct workflow_options {
	/*
	 * "PATH=VALUE" each, in order. PATH is keys joined by dots, with an index in brackets or as
	 * a key: "resources.cpusPerTask", "steps[0].run.workDir" or "steps.0.run.workDir",
	 * "steps.train.run.command" (a step by its name). VALUE is JSON or YAML: 2, true, text,
	 * {…}, […]; null removes the field.
	 */
	const struct strlist *sets;
	/* "KEY=VALUE" each; added to the job's `env`. */
	const struct strlist *env;
	/* NULL to use the process environment: NAME for env.NAME, PENSTOCK_SECRET_NAME for
	 * secrets.NAME. */
	workflow_resolve_fn resolve;
	void *cookie;
	/*
	 * Appends `module.yaml` of a module. Returns 1 if the module was not fetched, so that its
	 * steps are unknown; negative if the module cannot be read, with the reason in `err`. If
	 * `module` is NULL, modules are not read.
	 */
	int (*module)(void *module_cookie, const char *source, struct buf *text,
		struct penstock_error *err);
	void *module_cookie;
	/* Returns true if the file or directory exists on the machine where the workflow will run.
	 * NULL if the machine is not known yet. */
	bool (*is_here)(const char *path);
	/* References are not resolved and their values are not needed: for `penstock validate`. */
	bool keep_references;
	/* No step will start: a field outside of the inputs and the output may lack the value of a
	 * reference, and then contains the reference itself. */
	bool places_only;

	/*
	 * Stores the facts that a file of another runner does not state; called only for such a
	 * file. The strings must last as long as the options. NULL if nothing is known.
	 */
	int (*site)(void *site_cookie, struct workflow_site *out, struct penstock_error *err);
	void *site_cookie;
	/* Receives the text of workflow_write_file(), if the file has no mistakes. May be NULL. */
	struct buf *as_written;

	/* For files of other runners; all may be NULL. */
	const char *pick; /* name of the chosen workflow of a file that has several */
	const struct strlist *arguments; /* "NAME=VALUE": dstack's variables */
	/* one for each argument; set if this workflow has the variable. NULL if the workflow must
	 * have all the variables */
	bool *used;
	const char *run_args; /* dstack's run.args */
	/* names of the workflows of all files in .dstack/workflows/; NULL if unknown */
	const struct strlist *siblings;
	const char *context; /* the directory to copy, absolute */
	const char *image; /* image of the container of each step, instead of the file's */
	const char *variables; /* the bytes of .dstack/variables.yaml */
	size_t variables_len;
	const char *variables_name;
	/* the bytes of penstock.yaml, whose `output` is the default for files of other runners */
	const char *defaults;
	size_t defaults_len;
	const char *defaults_name;
};

int workflow_read(struct workflow **out, const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct diagnostics *found,
	struct penstock_error *err);

/* Adds notes to a workflow of another runner about where it runs: steps that run on the host, their
 * commands that change the machine and, unless the run is on this machine (`here`), the default
 * CPUs. */
void workflow_note_host(const struct workflow *workflow, bool here, struct diagnostics *found);

/* Adds the names of the workflows of a dstack file that has several, or of the tasks of a SkyPilot
 * file of several documents; adds nothing for any other file. */
int workflow_names(const void *data, size_t len, struct strlist *out, struct penstock_error *err);

/* Adds the names of all workflows of a dstack file. Returns -1 if out of memory. */
int workflow_defined(const void *data, size_t len, struct strlist *out);
/* Adds only the names of the tasks of a SkyPilot file. */
void workflow_pipeline(const void *data, size_t len, struct strlist *out);

/* Returns the number of indices in the range of a loop, with both ends. Returns 0 if there are no
 * such indices, if the increment is 0, or if a value is beyond the limits of a workflow. */
uint64_t workflow_count_range(int64_t begin, int64_t end, int64_t increment);

/* Returns true if a failure with this exit code of a step is retried. */
bool workflow_retry_has_code(const struct workflow_retry *retry, int code);

/* Appends the model as JSON, with every default applied and no secret; ends in a newline. */
int workflow_print_json(const struct workflow *wf, struct buf *out);

/* Appends the JSON Schema (draft 7) of workflow files, for editors. Returns -1 if out of memory. */
int workflow_json_schema(struct buf *out);

/*
 * Appends a copy of the workflow as JSON, with overrides applied, for runs/ID/workflow. The copy
 * contains no credential: each inline credential is replaced by `${{ file.FIELD }}` or `${{
 * option.FIELD }}`. workflow_read() reads the copy back and asks `resolve` for those fields. The
 * `digest` of the copy differs; keep the original one.
 */
int workflow_write_record(const struct workflow *workflow, struct buf *out);

/*
 * Like workflow_write_record(), for the file itself: without overrides, and without a check of the
 * fields of a native workflow. Two versions of a file are compared by these texts
 * (workflow/changes.h).
 */
int workflow_write_file(const char *name, const void *data, size_t len,
	const struct workflow_options *options, struct buf *out, struct diagnostics *found,
	struct penstock_error *err);

struct node;
struct workflow_arena;
/* Reads the value of `preemption` in a configuration file. The result lives as long as `arena`. */
void workflow_read_preemption(struct workflow_arena *arena, const char *file, struct node *map,
	struct workflow_preemption *out, struct diagnostics *found);

/*
 * Appends the string at FIELD ("output.s3.secretAccessKey") of a workflow file in its current form,
 * for a `resolve` that is called with WORKFLOW_FROM_FILE. Returns -PENSTOCK_E_NOT_FOUND if the
 * field is gone. `resolve` and dstack's variables in `options` give the values of references in the
 * string; if `options` is NULL, no reference has a value.
 */
int workflow_find_field(const char *name, const void *data, size_t len, const char *field,
	const struct workflow_options *options, struct buf *value, struct penstock_error *err);

#endif
