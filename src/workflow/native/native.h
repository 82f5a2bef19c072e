/* Declarations that the parts of the native grammar share. */
#ifndef WORKFLOW_NATIVE_NATIVE_H
#define WORKFLOW_NATIVE_NATIVE_H

#include "workflow/native/reader.h"

extern const struct schema schema_env;
extern const struct schema schema_resources, schema_step_resources;
extern const struct schema schema_input, schema_output, schema_s3;
extern const struct schema schema_context, schema_python, schema_artifacts_of;
extern const struct schema schema_container, schema_mount;
extern const struct schema schema_interface, schema_virtual_network;
extern const struct schema schema_run, schema_use;
extern const struct schema schema_preemption, schema_checkpoints, schema_tracking;
/* The document at `use.source`; the record of a run has it at `use.module`. */
extern const struct schema schema_module;

/* Reads a whole workflow; `job` is without its wrapper. */
void read_native(struct reader *rd, struct node *job);

/* Replaces legacy forms in a workflow, without its `job:` wrapper, or in a module (legacy.c). */
void legacy_forms_normalize(struct reader *rd, struct node *job);
void legacy_module_normalize(struct reader *rd, struct node *module);

struct overrides {
	struct document_source from; /* `option` is the option that is being applied */
	struct node *job; /* without the `job:` wrapper */
};
/* Apply "PATH=VALUE" of --set, and "KEY=VALUE" of --env. */
void overrides_set(struct overrides *o, const char *path_and_value);
void overrides_env(struct overrides *o, const char *key_and_value);
/* Returns the node at the path `text`, which names a field as secrets_mark() does; NULL if there is
 * none. */
const struct node *overrides_find(
	struct workflow_arena *arena, const struct node *job, const char *text);

/* Reports a name that a variable cannot have, and returns false. */
bool check_variable_name(struct reader *rd, const char *key, const struct workflow_place *at);
/* Reads a list of `key` and `value` at `field` of the map. */
void read_variables(struct reader *rd, const struct node *map, const char *field,
	struct workflow_env_list *out);
/* Reads `secrets` of a job, after its `env` was read. */
void read_secrets(struct reader *rd, const struct node *job);

/* Reads `resources` of a step, which inherits from the job. */
void read_step_resources(struct reader *rd, const struct node *run, struct workflow_run *out);
/* Checks addresses, and keys that need a network of the step's own. */
void check_network(struct reader *rd, const struct node *map, const struct workflow_run *run);
/* Raises the number to at least `value`. */
static inline void take_larger(struct workflow_number *number, int64_t value)
{
	if (value > number->value)
		number->value = value;
}
void read_inputs(struct reader *rd, const struct node *job);
/* Checks a URL. The shown form has "***" instead of the user, and instead of a query with a
 * signature. */
void check_url(struct reader *rd, const char *key, struct workflow_text *url);
/* Returns true for a path below the output that the steps may use; "." is not such a path. */
bool is_below_output(const char *path);
/* Reports a path at `key` (NULL for the current path) that is not below the directory `where`, and
 * returns false. */
bool check_below(
	struct reader *rd, const char *key, const char *where, const struct workflow_text *path);
/* Reads `artifacts` of a job. */
void read_artifacts(struct reader *rd, const struct node *job);
/* Reads the map `use` of the step `rd->step`, and its module. */
void read_use(struct reader *rd, struct node *map, struct workflow_step *step);

/* Reads `steps`, `catch` or `finally`, at `key` of a map. */
void read_steps(
	struct reader *rd, const struct node *map, const char *key, struct workflow_steps *out);
/* Checks that each `dependsOn` names a handle in scope that was launched before, and that no handle
 * is used twice in one scope. */
void check_handles(struct reader *rd, const struct workflow_steps *steps);

#endif
