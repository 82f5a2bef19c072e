/*
 * Files of other runners. A dialect checks its own document by its tables and translates it into
 * the tree of a native workflow. Each value keeps its place, so that mistakes that the native
 * reader finds are reported at that place. `--set`, the record and the digest use the native tree.
 *
 * workflow/native/schema.h describes the tables. In a dialect, `note` is reported if the file has
 * the key, and `refused` is the reason why the key, or any number other than `min`, is not
 * supported.
 */
#ifndef WORKFLOW_DIALECTS_DIALECT_H
#define WORKFLOW_DIALECTS_DIALECT_H

#include "workflow/native/reader.h"

#define DIALECT_ONE_NODE                                                                           \
	"this file is run on one machine; --on slurm spreads the tasks of penstock's own "         \
	"workflows over several"

/*
 * Reports everything that differs from `schema` and removes it, so that the other parts can be read
 * and their mistakes are reported, too. The path of the reader must be the path of `node`. Returns
 * true if there was no mistake.
 */
bool dialect_check(struct reader *rd, struct node *node, const struct schema *schema);
/* Removes an invalid entry, which was reported, from a map or list. */
void dialect_remove(struct reader *rd, struct node *node, size_t i);
/* Returns true if the key was removed as invalid. */
bool dialect_was_invalid(const struct node *map, const char *key);
/* Returns true if the key is missing or null, and was not removed as invalid. */
bool dialect_is_missing(const struct node *map, const char *key);

struct dialect {
	const char *name;
	/* Keys that only this dialect has; NULL-terminated. The dialect with the most keys in a
	 * file is chosen. */
	const char *const *keys;
	/* For a dialect without `keys`: returns the number of its keys in `root`; INT_MAX if `root`
	 * certainly belongs to the dialect. */
	int (*recognise)(const struct node *root, const char *file);
	/* Returns the native tree, without the parts that have mistakes, which are reported; NULL
	 * if nothing can be translated. */
	struct node *(*translate)(struct reader *rd, struct node *root);
};

extern const struct dialect dialect_dstack;
extern const struct dialect dialect_determined;
extern const struct dialect dialect_skypilot;

/* Report a map, or a text that is not a document, if it is known not to be a workflow, such as a
 * Compose file or a program. Return false for other files. */
bool foreign_map(struct reader *rd, const struct node *root);
bool foreign_text(struct reader *rd, const char *data, size_t len);

/* Translates a file of current dstack with `type: task`. */
struct node *dstack_task(struct reader *rd, struct node *root);

/* Adds the names of the tasks of a file that has several documents; adds nothing for other
 * files. */
void skypilot_tasks(
	struct workflow_arena *arena, const char *data, size_t len, struct strlist *names);
/* Returns the file with only the chosen task, which keeps its line numbers; `data` if there is no
 * such task. */
const char *skypilot_pick(struct reader *rd, const char *data, size_t len);

/* Replaces each `${{ name }}` below a dstack workflow with the variable's value. Returns false
 * if a variable is unknown. */
bool dstack_expand(struct reader *rd, struct node *workflow);
/* Adds the variables of variables.yaml and of the command line to the environment. */
void dstack_put_variables(struct reader *rd, const struct node *workflow, struct node *env);
/* Adds the inputs for the dependencies of `map`, a workflow of `list`, which may be NULL. */
void dstack_put_deps(
	struct reader *rd, const struct node *list, const struct node *map, struct node *job);
/* Reports arguments of the command line that the workflow does not use, and returns false if there
 * are any. The workflow must not be expanded yet. If the options have `used`, marks the used
 * arguments and reports nothing. */
bool dstack_check_arguments(struct reader *rd, const struct node *workflow);

/* Returns true if the command starts one of Determined's launch layers. */
bool determined_is_launched(const char *text);
/* Returns the command `text` with Determined's launch layers replaced by the programs that do their
 * work; NULL after an error at `at`, which is reported. */
const char *determined_launch(
	struct reader *rd, const struct node *at, const char *text, int64_t slots);
/* Returns the command for a trial class, "model_def:Trial". */
const char *determined_trial(struct reader *rd, const char *class, int64_t slots);

/* ---- making the native tree; returns NULL if parent or value is NULL, or if out of memory ---- */

struct node *native_new(struct reader *rd, struct node *parent, const char *key,
	enum node_kind kind, const struct workflow_place *at);
/* Add an empty map or list; `key` is NULL in a list. */
#define native_map(rd, parent, key, at)	 native_new((rd), (parent), (key), NODE_MAP, (at))
#define native_list(rd, parent, key, at) native_new((rd), (parent), (key), NODE_LIST, (at))
void native_put(struct reader *rd, struct node *parent, const char *key, struct node *value);
void native_text(struct reader *rd, struct node *parent, const char *key, const char *text,
	const struct workflow_place *at);
void native_number(struct reader *rd, struct node *parent, const char *key, int64_t value,
	const struct workflow_place *at);
void native_flag(struct reader *rd, struct node *parent, const char *key, bool value,
	const struct workflow_place *at);
/* Adds {key: NAME, value: VALUE} to a list. */
void native_variable_text(struct reader *rd, struct node *list, const char *name, const char *value,
	const struct workflow_place *at);
/* Adds a map of names to values, or a list of "NAME=VALUE" and "NAME", to a list of variables. */
void native_variables(struct reader *rd, struct node *list, const struct node *from);
/* Adds a container for `image`, split into registry and name, to a `run`. `auth`, a map with
 * `username` and `password`, may be NULL, and is ignored for an image of the command line. */
struct node *native_container(
	struct reader *rd, struct node *run, const struct node *image, const struct node *auth);
/* Returns the image of the command line, else `image` of the file, which may be NULL. */
const struct node *native_image(struct reader *rd, const struct node *image);
/* Adds the context: the directory of the command line, else `path`. Returns NULL if there is
 * none. */
struct node *native_context(struct reader *rd, struct node *job, const char *path,
	const char *ignore, const struct workflow_place *at);
/* Adds the transport for "s3://bucket/a/b" or "gs://…" to `parent`. Returns false for other
 * URLs. */
bool native_bucket(struct reader *rd, struct node *parent, const char *url,
	const struct workflow_place *at, struct node **transport);

/* ---- reading values ---- */

/* Returns the text of the scalar at `key`; NULL if there is none. */
const char *dialect_text(const struct node *map, const char *key);
/* Returns the whole number at `key`; `fallback` if there is none. */
int64_t dialect_whole(const struct node *map, const char *key, int64_t fallback);
/* Returns the flag at `key`; `fallback` if there is none. */
bool dialect_flag(const struct node *map, const char *key, bool fallback);
/* Returns `text` for a shell, in single quotes if it needs them. */
const char *dialect_quoted(struct reader *rd, const char *text);
/* Returns shell code that fetches a commit of a repository into the working directory; `ref` may be
 * NULL. */
const char *dialect_clone(struct reader *rd, const char *url, const char *ref);
/* Returns "~/x" as a path below the home of the caller; other paths unchanged. */
const char *dialect_home_path(struct reader *rd, const char *path);
/* Returns a number of `resources` that commands, variables and steps also use: the number of --set,
 * else `value`, the number of the file. */
int64_t dialect_set(const struct reader *rd, const char *field, int64_t value);
#define dialect_gpus(rd, value)	 dialect_set((rd), "resources.gpusPerTask", (value))
#define dialect_nodes(rd, value) dialect_set((rd), "resources.tasks", (value))
/* Returns the CPUs for a file that names none: the CPUs of the machine, or 1 if the machine is not
 * known. */
int64_t dialect_cpus(const struct reader *rd);
/* Adds the default CPUs of each task to `resources` of the job, if the file names none and the CPUs
 * of the machine are known. */
void native_default_cpus(struct reader *rd, struct node *job);

/* The resources of each node of a cluster. `cpu_at`, `memory_at` and `gpu_at` are the values in the
 * document that give them, or NULL. */
struct native_share {
	int64_t nodes, cpus, gpus;
	int64_t memory; /* MiB */
	const struct node *cpu_at, *memory_at, *gpu_at;
};
/* Adds `resources` to the job, with one task for each node. Adds nothing for one node if the file
 * gives no resource. */
void native_resources(struct reader *rd, struct node *job, const struct workflow_place *at,
	const struct native_share *share);
/* Adds the transport for files of this machine, which are not unpacked. */
void native_local(
	struct reader *rd, struct node *input, const char *path, const struct workflow_place *at);
/* Returns true, and adds a note, if the kind of an accelerator is not a GPU but, for example, a
 * TPU. */
bool dialect_other_device(struct reader *rd, const struct node *at, const char *kind);
/* Names the run: characters that a name cannot have become `-`, with a note. */
void native_name(struct reader *rd, struct node *job, const struct node *name);
/* Stores the bytes of "32GB", "512 MiB", "16g"; units without "i" are decimal. Returns false if
 * `text` is not a size. */
bool dialect_memory(const char *text, int64_t *bytes);
/* Returns `node` as JSON, with null for secrets. */
const char *dialect_json(struct reader *rd, const struct node *node);
/* Adds the default output of the configuration; the names become part of its path. */
void native_default_output(
	struct reader *rd, struct node *job, const char *project, const char *name);
/* Returns the directory that paths of the file are relative to; for dstack the parent of `.dstack`;
 * NULL for <stdin>. */
const char *dialect_folder(struct reader *rd);

#endif
