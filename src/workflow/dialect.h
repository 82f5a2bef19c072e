/*
 * Files of other runners. A dialect checks its own document, and makes of it the tree that the native
 * reader takes: each value keeps the place where it was written, so that what the native reader finds
 * wrong is told there, too. `--set`, the recorded copy and the digest are those of the native tree.
 *
 * What stands in a document is told by tables (`struct shape`): names, kinds, ranges, what is only
 * noted and what is refused.
 */
#ifndef WORKFLOW_DIALECT_H
#define WORKFLOW_DIALECT_H

#include "workflow/reader.h"

enum {
	SHAPE_TEXT = 1,	   /* any scalar that is not empty */
	SHAPE_EMPTY = 2,   /* the empty text, too */
	SHAPE_WHOLE = 4,   /* a whole number within `min` and `max` */
	SHAPE_FLAG = 8,	   /* true or false */
	SHAPE_MAP = 16,	   /* of `below` */
	SHAPE_FREE = 32,   /* a map of any names */
	SHAPE_LIST = 64,   /* of maps of `below` */
	SHAPE_TEXTS = 128, /* a list of texts */
	SHAPE_ANY = 256,
	SHAPE_NEEDED = 512,
};

struct shape_field {
	const char *name;
	unsigned kinds;
	const struct shape *below;
	int64_t min, max; /* both 0: any number */
	const char *note; /* what becomes of it, where that is nothing a user would expect */
	const char
		*refused; /* why it cannot be honoured; where min is max: why no other number can */
};

#define DIALECT_ONE_NODE                                                                           \
	"this file is run on one machine; --on slurm spreads the tasks of penstock's own "         \
	"workflows "                                                                               \
	"over several"

struct shape {
	const char *what; /* "`resources`", for messages */
	const struct shape_field *fields;
	size_t n;
};

#define SHAPE(name, text, table)                                                                   \
	static const struct shape name = {.what = (text), .fields = (table), .n = ARRAY_SIZE(table)}

/*
 * Reports all that is not as `shape` says, and takes it away, so that the rest can be read as if it were not
 * there and its mistakes are told, too; the path of the reader is that of `node`. Whether nothing was wrong.
 */
bool shape_check(struct reader *rd, struct node *node, const struct shape *shape);
/* Takes the entry out of a map or list; it was reported. */
void dialect_take_away(struct reader *rd, struct node *node, size_t i);
/* Whether it was there and taken away. */
bool dialect_was_wrong(const struct node *map, const char *key);
/* Whether the key was not given at all, or is null. */
bool dialect_is_missing(const struct node *map, const char *key);

struct dialect {
	const char *name;
	/* How many keys of `root` say that it is one of these; INT_MAX: it is. */
	int (*recognise)(const struct node *root, const char *file);
	/* The native tree, or NULL where that makes no sense; mistakes are reported, and what they are in is left
	 * out of the tree. */
	struct node *(*translate)(struct reader *rd, struct node *root);
};

extern const struct dialect dialect_dstack;
extern const struct dialect dialect_determined;
extern const struct dialect dialect_skypilot;

/* NULL: the native one. */
const struct dialect *dialect_of(const struct node *root, const char *file);

/* ---- for making the native tree; a NULL parent or value is passed on, lack of memory sticks ---- */

struct node *native_map(struct reader *rd, struct node *parent, const char *key,
	const struct workflow_place *at); /* an entry of a list for a NULL key */
struct node *native_list(
	struct reader *rd, struct node *parent, const char *key, const struct workflow_place *at);
void native_put(struct reader *rd, struct node *parent, const char *key, struct node *value);
void native_text(struct reader *rd, struct node *parent, const char *key, const char *text,
	const struct workflow_place *at);
void native_number(struct reader *rd, struct node *parent, const char *key, int64_t value,
	const struct workflow_place *at);
/* {key: NAME, value: VALUE} into a list. */
void native_variable(struct reader *rd, struct node *list, const char *name, struct node *value);
void native_variable_text(struct reader *rd, struct node *list, const char *name, const char *value,
	const struct workflow_place *at);
/* A map of names to values, or a list of "NAME=VALUE" and "NAME", into a list of variables. */
void native_variables(struct reader *rd, struct node *list, const struct node *from);
/* `image` as the container of a `run`: its registry apart from its name. */
struct node *native_container(struct reader *rd, struct node *run, const struct node *image);
/* An S3 or Google URL with its bucket, "s3://bucket/a/b", as a transport. False: it is neither. */
bool native_bucket(struct reader *rd, struct node *parent, const char *url,
	const struct workflow_place *at, struct node **transport);

/* ---- for reading values ---- */

/* The text of the scalar at `key`, or NULL. */
const char *dialect_text(const struct node *map, const char *key);
/* The whole number at `key`, or `fallback`. */
int64_t dialect_whole(const struct node *map, const char *key, int64_t fallback);
bool node_whole(const struct node *node, int64_t *out);
/* `text` in single quotes for a shell, where it needs them. */
const char *dialect_quoted(struct reader *rd, const char *text);
/* A name that a run can have: other characters become `-`; noted where that changes it. */
void native_name(struct reader *rd, struct node *job, const struct node *name);
/* What a place in a chain of commands that is one after the other has: each a line of a shell that ends
 * with the first that fails. */
const char *dialect_script(struct reader *rd, const struct node *first, const struct node *then);
/* Bytes of "32GB", "512 MiB", "16g" (decimal but for "i"); false: none. */
bool dialect_memory(const char *text, int64_t *bytes);
/* `node` as JSON, without what is secret in it. */
const char *dialect_json(struct reader *rd, const struct node *node);
/* The default output of the configuration, for what has none in its file; `below` are names added to
 * its path. */
void native_default_output(
	struct reader *rd, struct node *job, const char *project, const char *name);
/* The directory given on the command line, or NULL. */
const char *dialect_context(struct reader *rd);
/* The directory that the file's paths start from; for dstack the one above `.dstack`. */
const char *dialect_folder(struct reader *rd);

#endif
