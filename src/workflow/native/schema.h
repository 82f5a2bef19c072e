/*
 * The keys of a workflow file as tables, one row for each key:
 *
 *	#include "base/limits.h"
 *	#include "workflow/model.h"
 *
 *	static const struct schema_key retry_keys[] = {
 *		{"max", NUMBER(workflow_retry, max, 1, LIMIT_WORKFLOW_RETRIES),
 *			.flags = KEY_REQUIRED, .says = "attempts after failures"},
 *	};
 *	const struct schema schema_retry = {SCHEMA("retry", "`retry`", retry_keys)};
 *
 * A row drives reading with its checks of type and range (fields.c), the nearest key in messages,
 * `--set`, the printed model (print.c), the JSON Schema (json_schema.c), the tables of the manual
 * and the shell completion. A new key is one row, one member of the model and one line of
 * tests/unit/workflow/every_key.yaml.
 *
 * The other runners' files have tables of the same kind, without members and documentation.
 */
#ifndef WORKFLOW_NATIVE_SCHEMA_H
#define WORKFLOW_NATIVE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct node;
struct reader;
struct schema;

/* Kinds of values; a row may allow several. */
enum {
	KEY_TEXT = 1 << 0, /* a scalar; in other runners' files it must not be empty */
	KEY_EMPTY = 1 << 1, /* the empty text, too */
	KEY_WHOLE = 1 << 2, /* a whole number from `min` to `max` */
	KEY_FLAG = 1 << 3, /* true or false */
	KEY_MAP = 1 << 4, /* a map of the keys of `below` */
	KEY_FREE = 1 << 5, /* a map of any names */
	KEY_LIST = 1 << 6, /* a list of maps of `below` */
	KEY_TEXTS = 1 << 7, /* a list of texts */
	KEY_ANY = 1 << 8,
	KEY_CREDENTIAL = 1 << 9,
	KEY_DURATION = 1 << 10, /* a duration from `min` to `max` milliseconds */
	KEY_WORD = 1 << 11, /* one of `words` */
	KEY_WORDS = 1 << 12, /* a list of `words` */
	KEY_WHOLES = 1 << 13, /* a list of whole numbers from `min` to `max` */
	KEY_VARIABLES = 1 << 14, /* a list of `key` and `value` */
};

enum {
	KEY_REQUIRED = 1 << 0,
	KEY_SHOWN = 1 << 1, /* the printed model has the key even if it was not given */
	KEY_NO_SECRET = 1 << 2, /* part of a command line, which every user can read */
	/* a scalar is short for a map that has the scalar as the value of its first key */
	KEY_SHORT = 1 << 3,
	KEY_NUMBERS = 1 << 4, /* numbers are read as text, even in JSON */
	KEY_OWN = 1 << 5, /* `check` of the schema reads it, not fields.c */
	KEY_LEGACY = 1 << 6, /* accepted with a note (legacy.c); only the JSON Schema has the key */
	KEY_MOVABLE = 1 << 7, /* legacy.c moves the key into its map from the surrounding map */
};

/* IS(), SET() or UNSET(). */
struct schema_condition {
	size_t member; /* one more than the offset of the member; 0 if there is no condition */
	size_t size;
	int value;
	bool differs;
};

struct schema_key {
	const char *name;
	unsigned kinds;
	const struct schema *below;
	unsigned flags;
	int64_t min, max; /* any number if both are 0 */
	/* unexpected effect of the key; reported when the key is used, a flag only if it is true */
	const char *note;
	/* Appended to the message about a number or word that is not allowed. In a dialect, the key
	 * is refused with any value, unless it allows exactly one number. */
	const char *refused;

	const char *const *words; /* NULL-terminated */
	int64_t preset; /* the default of a number, duration, flag, word or set of words */
	const char *preset_text; /* the default of a text */
	/* For the manual, in Markdown: the value if the kind does not say enough, the default if it
	 * is not a constant, and the meaning. A message about a missing key has `says` up to its
	 * first `;`. */
	const char *value;
	const char *otherwise;
	const char *says;

	/* One more than the offset of the member in the struct that the schema is read into; 0 if
	 * there is none. For a list, `member` is for its pointer, and `length` for its length. */
	size_t member, length;
	size_t size; /* size of the member */
	struct schema_condition shown[2]; /* the printed model omits the key unless both hold */
};

struct schema {
	const char *name; /* in the manual and the JSON Schema: "resources" */
	const char *what; /* in messages: "`resources`", "a step" */
	const struct schema_key *keys;
	size_t n;
	size_t size; /* size of the struct; 0 if there is none */
	bool open; /* other keys are allowed */
	/* like `member`: `at` for the place of the map, and `given` for the flag that is true if
	 * the file has the map; 0 for no member */
	size_t at, given;
	/* Reads and checks what the rows cannot express. Called after all other keys were read,
	 * while the path of the reader is that of the map. May be NULL. */
	void (*check)(struct reader *rd, const struct node *map, void *out);
};

#define MEMBER_OF(s, m, type)                                                                      \
	(offsetof(struct s, m) + 1 +                                                               \
		0 * sizeof(char[__builtin_types_compatible_p(                                      \
					__typeof__(((struct s *)NULL)->m), type)                   \
					? 1                                                        \
					: -1]))
#define STORED(s, m, type) .member = MEMBER_OF(s, m, type), .size = sizeof(((struct s *)NULL)->m)

/* The kind of a row, and its member in `struct s`. */
#define TEXT(s, m) .kinds = KEY_TEXT, STORED(s, m, struct workflow_text)
#define NUMBER(s, m, low, high)                                                                    \
	.kinds = KEY_WHOLE, .min = (low), .max = (high), STORED(s, m, struct workflow_number)
#define FLAG(s, m)	 .kinds = KEY_FLAG, STORED(s, m, struct workflow_flag)
#define CREDENTIAL(s, m) .kinds = KEY_CREDENTIAL, STORED(s, m, struct workflow_credential)
#define DURATION(s, m, low, high)                                                                  \
	.kinds = KEY_DURATION, .min = (low), .max = (high), STORED(s, m, struct workflow_number)
#define TEXTS(s, m)	.kinds = KEY_TEXTS | KEY_TEXT, STORED(s, m, struct workflow_texts)
#define VARIABLES(s, m) .kinds = KEY_VARIABLES, STORED(s, m, struct workflow_env_list)
/* Stores the index of the word in a bool, an int or an enum, or the word itself in a text. */
#define WORD(s, m, list)                                                                           \
	.kinds = KEY_WORD, .words = (list), .member = offsetof(struct s, m) + 1,                   \
	.size = sizeof(((struct s *)NULL)->m)
/* Stores a bit for each word; the bit of the first word is 1. */
#define WORDS(s, m, list) .kinds = KEY_WORDS, .words = (list), STORED(s, m, unsigned)
/* MAP: a map whose keys are members of the struct `m` in `s`. MAP_OF: a map whose keys are members
 * of `s` itself. */
#define MAP(s, m, schema) .kinds = KEY_MAP, .below = (schema), .member = offsetof(struct s, m) + 1
#define MAP_OF(schema)	  .kinds = KEY_MAP, .below = (schema), .member = 1
/* LIST: an array of structs. WHOLES: an array of int. */
#define LIST(s, items, n, schema)                                                                  \
	.kinds = KEY_LIST, .below = (schema), .member = offsetof(struct s, items) + 1,             \
	.length = MEMBER_OF(s, n, size_t)
#define WHOLES(s, items, n, low, high)                                                             \
	.kinds = KEY_WHOLES, .min = (low), .max = (high), STORED(s, items, int *),                 \
	.length = MEMBER_OF(s, n, size_t)

#define SCHEMA(text, in_messages, rows)                                                            \
	.name = (text), .what = (in_messages), .keys = (rows), .n = ARRAY_SIZE(rows)
/* Conditions on a member. IS: an int or enum has the value `v`. SET: a value of any type is not 0.
 * UNSET: the value is 0. */
#define IS(s, m, v)                                                                                \
	{                                                                                          \
		offsetof(struct s, m) + 1, sizeof(((struct s *)NULL)->m), (v), false               \
	}
#define SET(s, m)                                                                                  \
	{                                                                                          \
		offsetof(struct s, m) + 1, sizeof(((struct s *)NULL)->m), 0, true                  \
	}
#define UNSET(s, m) IS(s, m, 0)
#define AT(s, m)    .at = offsetof(struct s, m) + 1

/* The keys of a workflow file, and of each of its steps. */
extern const struct schema schema_job, schema_step;

/* Returns true if a dialect refuses the key with any value. */
static inline bool schema_refuses(const struct schema_key *key)
{
	return key->refused && !key->member && !key->words && !(key->min && key->min == key->max);
}
/* Returns the row of the key `name`; NULL for an unknown key. */
const struct schema_key *schema_find(const struct schema *schema, const char *name);
/* Returns the key that is nearest to `name`, or NULL. A key that differs only in case, `_` or `-`
 * is the nearest. */
const char *schema_nearest(const struct schema *schema, const char *name);

#endif
