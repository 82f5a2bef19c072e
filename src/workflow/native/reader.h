/*
 * Reads typed values from a document tree. Each function reports a mistake at its place, leaves the
 * default in the model and continues, so that one reading reports all mistakes.
 */
#ifndef WORKFLOW_NATIVE_READER_H
#define WORKFLOW_NATIVE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workflow/document/arena.h"
#include "workflow/document/document.h"
#include "workflow/model.h"
#include "workflow/native/schema.h"
#include "workflow/workflow.h"

#define READER_MODULES 8 /* levels of modules that use modules */

struct reader {
	struct workflow *workflow;
	struct workflow_arena *arena;
	const struct workflow_options *options;
	struct workflow_site site; /* facts that a file of another runner does not state */
	struct diagnostics *found;
	struct buf path; /* the field that is being read, "steps[0].run"; empty at the top */
	const struct node *job; /* the whole document */
	const struct node *step; /* the step that is being read */
	const struct workflow_use *use; /* the use of the module whose inputs are being read */
	/* Invalid parts of another runner's file were left out: do not report missing keys. */
	bool partial;
	const char *before; /* the documents before the chosen task; NULL if there are none */
	unsigned modules; /* nesting of the module that is being read */
	/* sources of the module that is being read and of the modules around it */
	const char *chain[READER_MODULES];
	size_t templates; /* bytes that the templates of modules have read and made */
	struct workflow_resources least; /* the needs of modules, if there is no `resources` */
	struct buf number; /* number of the step that is being read, "2.1" */
	size_t index; /* index of the member that reader_each() reads */
};

/* Adds a mistake or a note; if `field` is not NULL the message is "`FIELD` TEXT". */
void reader_report(struct reader *rd, enum diagnostic_severity severity,
	const struct workflow_place *at, const char *field, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
#define reader_error(rd, at, ...) reader_report((rd), DIAGNOSTIC_ERROR, (at), NULL, __VA_ARGS__)
#define reader_note(rd, at, ...)  reader_report((rd), DIAGNOSTIC_NOTE, (at), NULL, __VA_ARGS__)
/* Like reader_error() and reader_note(), about the field `key`, or about the current path if `key`
 * is NULL. */
#define reader_error_of(rd, at, key, ...)                                                          \
	reader_report((rd), DIAGNOSTIC_ERROR, (at), reader_field((rd), (key)), __VA_ARGS__)
#define reader_note_of(rd, at, key, ...)                                                           \
	reader_report((rd), DIAGNOSTIC_NOTE, (at), reader_field((rd), (key)), __VA_ARGS__)

/* Extends the path by `key`, or by [index] if `key` is NULL. Returns the argument for
 * reader_leave(). */
size_t reader_enter(struct reader *rd, const char *key, size_t index);
void reader_leave(struct reader *rd, size_t saved);
/* Returns the full name of `key` in the current path, for messages; the path itself if `key` is
 * NULL. */
const char *reader_field(struct reader *rd, const char *key);

/*
 * Reads `map` into `out`, the struct of `schema`: reports unknown and missing keys, sets defaults,
 * reads each row that has a member, and calls `check` of the schema. Returns false if `map` is not
 * a map, which it reports.
 */
bool reader_read(struct reader *rd, const struct node *map, const struct schema *schema, void *out);
/* Reads one row into its member of `out`. */
void reader_key(struct reader *rd, const struct node *map, const struct schema_key *key, void *out);
/* Calls `read` for each member of the list at `key` with a struct of `size` bytes, which is kept if
 * `read` returns true. Returns the array of `*n` structs; NULL if there is no list. */
void *reader_each(struct reader *rd, const struct node *map, const char *key, size_t size,
	size_t *n, bool (*read)(struct reader *rd, struct node *item, void *out));

/* Reports unknown keys of `node`. Returns false if `node` is not a map, which is also reported. */
bool reader_check_map(struct reader *rd, const struct node *node, const struct schema *schema);
/* Reports an unknown key. Returns the nearest known key, or NULL. */
const char *reader_unknown(
	struct reader *rd, const struct node_entry *entry, const struct schema *schema);
/* Returns the map or list at `key`; NULL if it is missing, null, or of another kind, which is
 * reported. */
struct node *reader_of_kind(
	struct reader *rd, const struct node *map, const char *key, enum node_kind kind);
#define reader_map(rd, map, key)  reader_of_kind((rd), (map), (key), NODE_MAP)
#define reader_list(rd, map, key) reader_of_kind((rd), (map), (key), NODE_LIST)
/* Reports that `map` lacks `key`, unless another key of `map` looks like a misspelling of `key`. */
void reader_missing(
	struct reader *rd, const struct node *map, const struct schema *schema, const char *key);

/*
 * Each of the next functions returns true if there is a usable value. Without a usable value `out`
 * keeps its value, except that a text becomes NULL if its reference has no value. The place of
 * `out` becomes the place of the node or, without a node, of the map. References are resolved. The
 * node gets the type that it was read as, so that a record of the document is unambiguous.
 */
bool reader_text(
	struct reader *rd, const struct node *map, const char *key, struct workflow_text *out);
bool reader_text_of(
	struct reader *rd, struct node *node, const char *field, struct workflow_text *out);
/* Reads a whole number or a duration within the bounds of `key`. */
bool reader_number(struct reader *rd, const struct node *map, const struct schema_key *key,
	struct workflow_number *out);
bool reader_flag(
	struct reader *rd, const struct node *map, const char *key, struct workflow_flag *out);
bool reader_credential(struct reader *rd, const struct node *map, const char *key,
	struct workflow_credential *out);
/* Reads a list of texts. A single text is read as a list of one, with a note; `numbers` also allows
 * JSON numbers. Returns true if all members were usable. */
bool reader_texts(struct reader *rd, const struct node *map, const char *key, bool numbers,
	struct workflow_texts *out);
/* Stores the index of `text` in the words of `key`. Returns false for any other text, which is
 * reported. */
bool reader_word(struct reader *rd, const struct workflow_text *text, const char *field,
	const struct schema_key *key, size_t *index);

/* Returns true if references in the text were left unresolved on purpose, so that its value is
 * unknown. */
bool reader_is_open(const struct reader *rd, const struct workflow_text *text);
/* Returns true if the text was given and its value is known. */
static inline bool reader_knows(const struct reader *rd, const struct workflow_text *text)
{
	return text->value && !reader_is_open(rd, text);
}
/* Returns the text in backquotes for a message: its value and its reference if the value comes from
 * the environment, else as written. */
const char *reader_quoted(struct reader *rd, const struct workflow_text *text);
/* Reports "`FIELD` must EXPECTED, not TEXT" for the text at `key`, or at the current path if `key`
 * is NULL. */
void reader_refuse(struct reader *rd, const struct workflow_text *text, const char *key,
	const char *expected, ...) __attribute__((format(printf, 4, 5)));
/* Reports a text that refers to a secret, and returns false: every user of the machine can read
 * command lines. */
bool reader_refuse_secret(struct reader *rd, const struct node *node, const char *field);
/* Makes a relative path absolute, starting at the folder of the workflow file, if the name of that
 * file is absolute. The tree also gets the new path, because the record of the tree is in
 * another folder. */
void reader_anchor(struct reader *rd, struct node *node, struct workflow_text *path);
/* Returns true if a segment of the path is "." or "..". */
bool reader_has_dots(const char *path);

#endif
