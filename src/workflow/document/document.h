/*
 * A document as it was written: a tree of maps, lists and scalars, each with its position. JSON and
 * YAML are both read into such a tree. Scalars are not interpreted yet, so that `no`, `1.10` and
 * `007` keep their text and get the type that the reader of a field asks for (the core schema of
 * YAML 1.2).
 */
#ifndef WORKFLOW_DOCUMENT_DOCUMENT_H
#define WORKFLOW_DOCUMENT_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "workflow/document/arena.h"
#include "workflow/document/diagnostics.h"

#define LETTERS_AND_DIGITS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* A limit as text, for a message. */
#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct node_entry {
	const char *key; /* NULL in a list */
	struct workflow_place key_at;
	struct node *value;
};

/* A key that was removed: a message about the missing key names the option that removed it. */
struct node_removed {
	const char *key;
	const char *option;
	struct node_removed *next;
};

struct node {
	enum node_kind kind;
	struct workflow_place at;

	/* NODE_SCALAR */
	const char *text; /* no NUL inside */
	bool quoted; /* a text, even if it looks like a number */
	bool literal; /* a JSON number, true or false, which cannot be read as another type */
	/* field of a secret in the file as written: "output.s3.secretAccessKey" */
	const char *field;

	/* NODE_MAP, NODE_LIST */
	struct node_entry *entries;
	size_t n;
	size_t cap;
	struct node_removed *removed;
};

enum scalar_type { SCALAR_NULL, SCALAR_BOOL, SCALAR_INT, SCALAR_FLOAT, SCALAR_TEXT };

/*
 * Reads `data` as JSON (if it begins with `{`) or YAML. Returns NULL if there is a mistake, which
 * is added to `found`, or if out of memory (`arena->no_memory`). `file` is the display name.
 */
struct node *document_read(struct workflow_arena *arena, const char *file, const char *data,
	size_t len, struct diagnostics *found);

/* The origin of a text. */
struct document_source {
	struct workflow_arena *arena;
	const char *file; /* the display name */
	/* the place of all its values ("--set x"); NULL if the text is a file */
	const char *option;
	struct diagnostics *found; /* mistakes are added to this list */
};
/* Returns the position in the file, or the option. */
struct workflow_place source_place(const struct document_source *from, size_t line, size_t column);
/* Adds a mistake. Returns NULL. */
void *source_fail(const struct document_source *from, struct workflow_place at, const char *fmt,
	...) __attribute__((format(printf, 3, 4)));
/* The readers of JSON and YAML; `data` is valid UTF-8 without a byte order mark. */
struct node *json_read(const struct document_source *from, const char *data, size_t len);
struct node *yaml_read(const struct document_source *from, const char *data, size_t len);
/* Checks that `data` is UTF-8 text without control characters; adds a mistake if not. */
bool text_check(const struct document_source *from, const char *data, size_t len);
/* Returns the length of the control character, or of another character that YAML does not allow, at
 * the beginning of the UTF-8 text, and stores its code in `*c`. Returns 0 if there is none. */
size_t text_control(const char *text, unsigned *c);

struct node *node_new(struct workflow_arena *arena, enum node_kind kind, struct workflow_place at);
struct node *node_scalar(
	struct workflow_arena *arena, const char *text, bool quoted, struct workflow_place at);
/* Adds a value to a map or list. Returns -1 if out of memory. `key` is NULL in a list; else it must
 * live as long as the arena. */
int node_add(struct workflow_arena *arena, struct node *parent, const char *key,
	struct workflow_place key_at, struct node *value);
void node_remove(struct node *parent, size_t index);
/* Returns the entry of `key`; NULL if `map` is NULL, is not a map, or lacks the key. */
struct node_entry *node_find(const struct node *map, const char *key);
/* Returns the value of `key`; NULL if it is missing or null. */
struct node *node_get(const struct node *map, const char *key);
/* Makes {key: NAME, value: VALUE}. Returns NULL if out of memory; `name` must live as long as the
 * arena. */
struct node *node_variable(struct workflow_arena *arena, const char *name, struct workflow_place at,
	struct node *value);
/* Records that `key` was removed from the map: by `option`, or as invalid if `option` is NULL. */
void node_forget(
	struct workflow_arena *arena, struct node *map, const char *key, const char *option);
/* Adds a mistake for each duplicate key of `map`. */
void node_check_duplicates(const struct node *map, const char *file, struct diagnostics *found);
/* Creates a deep copy and subtracts the number of nodes from `*left`. Returns NULL if there are
 * more than `*left`, or if out of memory. */
struct node *node_copy(struct workflow_arena *arena, const struct node *node, size_t *left);

/* Sets the file of a whole tree; `file` must live as long as the arena. */
void node_set_file(struct node *node, const char *file);

bool node_is_null(const struct node *node);
/* Stores the whole number of a scalar in the form of the core schema: 12, -3, +4, 0o17, 0xff.
 * Returns false for any other node and for NULL. */
bool node_whole(const struct node *node, int64_t *out);
bool is_one_of(const char *text, const char *const *words, size_t n);
/* Returns 1 for "true", "yes" and "on", 0 for "false", "no" and "off", in any case; -1 for other
 * texts. */
int flag_of_text(const char *text, size_t len);
/* Returns the type of a NODE_SCALAR by the core schema. */
enum scalar_type scalar_type(const struct node *node);
/* Returns "text", "a number", "a map", …, for messages. */
const char *node_kind_name(const struct node *node);

#define QUOTE_SIZE 128
/* Returns `text` shortened to 60 characters and without control characters, in backquotes. The
 * result is valid until the end of the block. */
#define quote(text) quote_into((text), (char[QUOTE_SIZE]){0})
const char *quote_into(const char *text, char out[static QUOTE_SIZE]);

/* Appends "parent.key", "key" at the top, "parent[index]" for a NULL key, or "parent["a.b"]" for an
 * empty key or a key with dots, brackets or quotes. */
void field_append(struct buf *path, const char *key, size_t index);

#endif
