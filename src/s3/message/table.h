/*
 * Parsing of documents by tables. One engine fills any of the structs of messages.h from a table of
 * paths: fields of the document itself, and fields of its repeated elements, which become an array
 * in the arena. For messages.c only.
 */
#ifndef S3_MESSAGE_TABLE_H
#define S3_MESSAGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/message/arena.h"

struct penstock_error;

enum field_type {
	TEXT,
	URL_TEXT, /* percent-encoded if the document's EncodingType is url */
	NUMBER, /* uint64_t */
	SMALL, /* unsigned */
	BOOLEAN,
	DATE, /* int64_t nanoseconds; 0 if invalid */
	PREFIX, /* one more common prefix of the document */
	URL_ENCODING,
	VERSION_2, /* its presence marks a V2 list */
};

struct field {
	const char *path; /* below the root, or below the item */
	enum field_type type;
	size_t offset;
};

struct table {
	const char *root; /* NULL for any root */
	const char *items[2]; /* paths of the repeated elements below the root */
	const struct field *fields;
	const struct field *item_fields; /* both end with a NULL path */
	size_t item_size, max_items;
	/* Offsets into the struct. A document without items has item_size 0; without common
	 * prefixes `prefixes` is 0 (they are never the first member). */
	size_t array, count, prefixes, n_prefixes, version;
};

struct parse {
	const struct table *table;
	const char *what;
	char *out; /* the struct */
	struct arena *arena;
	size_t root_len; /* of "/Root" */
	char root[64];
	size_t item_cap, prefix_cap;
	const char *item_path; /* the repeated element that is open */
	bool url_encoded;
};

#define END                                                                                        \
	{                                                                                          \
		NULL, TEXT, 0                                                                      \
	}
#define D(path, type, structure, member)                                                           \
	{                                                                                          \
		path, type, offsetof(struct structure, member)                                     \
	}

/* Parses a document into `p->out`. */
int table_parse(struct parse *p, const char *xml, size_t len, struct penstock_error *err);
/* Decodes the URL-encoded texts of a filled struct. */
int table_url_decode(const struct parse *p, struct penstock_error *err);
/* Sets a text field to a copy in the arena. */
int table_set_text(struct parse *p, const char **field, const char *text, size_t len,
	struct penstock_error *err);
/* Callbacks of table_parse() for xml_parse(); `cookie` is a struct parse. */
int table_on_start(void *cookie, const char *path, struct penstock_error *err);
int table_on_end(
	void *cookie, const char *path, const char *text, size_t len, struct penstock_error *err);

#endif
