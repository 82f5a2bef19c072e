/*
 * Taking typed values out of a document tree: each function reports what is wrong where it stands,
 * leaves the default in the model, and lets the reading go on, so that all mistakes come at once.
 */
#ifndef WORKFLOW_READER_H
#define WORKFLOW_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workflow/arena.h"
#include "workflow/document.h"
#include "workflow/model.h"
#include "workflow/schema.h"
#include "workflow/workflow.h"

#define READER_MODULES 8 /* within one another */

struct reader {
	struct workflow *workflow;
	struct workflow_arena *arena;
	const struct workflow_options *options;
	struct diagnostics *found;
	struct buf path;	/* the field that is being read, "steps[0].run"; empty at the top */
	const struct node *job; /* all of it */
	const struct node *step; /* that is being read */
	bool partial; /* what was wrong in another runner's file is left out: nothing is missing */
	unsigned modules;		   /* that are being read, each used by the one before */
	const char *chain[READER_MODULES]; /* their sources */
	struct workflow_resources least; /* that they need, where the workflow has no `resources` */
	struct buf number;		 /* of the step that is being read, "2.1" */
};

void reader_error(struct reader *rd, const struct workflow_place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void reader_note(struct reader *rd, const struct workflow_place *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Extends the path by a key, or by an index for a NULL key; reader_leave() takes what this
 * returned. */
size_t reader_enter(struct reader *rd, const char *key, size_t index);
void reader_leave(struct reader *rd, size_t saved);
/* The whole name of `key` within the current path, for messages; owned by the arena. */
const char *reader_field(struct reader *rd, const char *key);

/* Checks that `node` is a map, and each of its keys. */
bool reader_check_map(struct reader *rd, const struct node *node, const struct schema *schema);
/* The map or list at `key`; NULL where it is missing, null, or of another kind (reported). */
struct node *reader_map(struct reader *rd, const struct node *map, const char *key);
struct node *reader_list(struct reader *rd, const struct node *map, const char *key);
/* Reports a required key that `map` lacks, unless a mistyped one stands for it; `hint` is added. */
void reader_missing(struct reader *rd, const struct node *map, const struct schema *schema,
	const char *key, const char *hint);

/* Each returns whether a usable value was there; what was not given stays as it is, but for the
 * place, which becomes the map's. References are resolved. The node becomes what it was taken for, so
 * that a record of the document says it without ambiguity. */
bool reader_text(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out);
bool reader_text_of(
	struct reader *rd, struct node *node, const char *field, struct workflow_text *out);
bool reader_number(struct reader *rd, const struct node *map, const char *key, int64_t min,
	int64_t max, struct workflow_number *out);
bool reader_flag(
	struct reader *rd, const struct node *map, const char *key, struct workflow_flag *out);
bool reader_credential(struct reader *rd, const struct node *map, const char *key,
	struct workflow_credential *out);

/* Whether the text holds references that were deliberately left as they are: nothing can be said
 * about its value then. */
bool reader_is_open(const struct reader *rd, const struct workflow_text *text);

/* The parts of a workflow. `map` is NULL where the file has none. */
void read_env(struct reader *rd, const struct node *map, struct workflow_env_list *out);
void read_inputs(struct reader *rd, const struct node *job);
void read_output(struct reader *rd, const struct node *job);
/* `context`, `python` and `artifacts`; after the inputs. */
void read_project(struct reader *rd, const struct node *job);
void read_artifacts_of(struct reader *rd, const struct node *map, struct workflow_input *input);
/* `link` of an input. */
void read_link(struct reader *rd, const struct node *map, struct workflow_input *input);
/* A relative path starts at the workflow's folder, also for a record that is read elsewhere. */
void reader_anchor(struct reader *rd, struct node *node, struct workflow_text *path);
/* Whether a segment of the path is "." or "..". */
bool reader_has_dots(const char *path);
/* `container` of the map of a `run`; `given` stays false where there is none. */
void read_container(
	struct reader *rd, const struct node *run, struct workflow_container *container);
/* `mounts` of a job; after its steps. */
void read_common_mounts(struct reader *rd, const struct node *job);
/* `timeout` and `hangTimeout` of a job or a `run`; `ports` and `notify` of a job. */
void read_timeouts(struct reader *rd, const struct node *map, struct workflow_timeouts *out);
void read_ports(struct reader *rd, const struct node *job);
void read_notify(struct reader *rd, const struct node *job);
/* `checkpoints` of a job. */
void read_checkpoints(struct reader *rd, const struct node *job);
/* The native dialect, DeepSquare's grammar and our own keys; `job` is without the wrapper. */
void read_native(struct reader *rd, const struct node *job);

#endif
