/*
 * Parsing of documents by tables. One engine fills any of the structs of messages.h from a table of
 * paths: fields of the document itself, and fields of its repeated elements, which become an array
 * in the arena. Internal to src/s3.
 */
#ifndef S3_MESSAGE_TABLE_H
#define S3_MESSAGE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3/message/messages.h"

struct penstock_error;

enum field_type {
	TEXT,
	URL_TEXT, /* percent-encoded if the document's EncodingType is url */
	NUMBER, /* uint64_t */
	SMALL, /* unsigned */
	PART_NUMBER, /* unsigned, 1 to LIMIT_S3_PARTS */
	BOOLEAN,
	DATE, /* int64_t nanoseconds; 0 if invalid */
	TEXTS, /* appended to a struct s3_texts */
	PREFIX, /* appended to the common prefixes of the document */
	URL_ENCODING, /* bool */
	VERSION_2, /* int: set to 2, because only a V2 list has the element */
	/* Only in a strict table: */
	/* allowed and ignored: the element has no effect, or the caller refuses its parent */
	UNUSED,
	REFUSED, /* asks for a feature of S3 that the store does not have */
};

struct field {
	const char *path; /* below the root, or below the item; "" is the root itself */
	enum field_type type;
	size_t offset;
	bool needed; /* each item must have this part number, or this text, which may be empty */
};

/* Describes a struct whose first member is its arena. */
struct table {
	const char *what; /* for messages */
	const char *roots[S3_REPLY_KIND_COUNT_]; /* the names that the root may have */
	const char *items[2]; /* paths of the repeated elements below the root */
	const struct field *fields;
	const struct field *item_fields; /* both end with a NULL path, or are NULL */
	size_t size, item_size, max_items;
	/* Offsets into the struct. A document without items has item_size 0; without common
	 * prefixes `prefixes` is 0. */
	size_t array, count, prefixes, n_prefixes;
	/* offset of the member that gets the index of the root's name; 0 if there is none */
	size_t kind;
	bool not_empty; /* there must be an item */
	/* True for requests: an element without a field, or a second element of a TEXT or a
	 * PART_NUMBER, is refused, because to skip the element would ignore a part of the request.
	 * Replies of later versions of S3 may have elements without a field. */
	bool strict;
};

#define END                                                                                        \
	{                                                                                          \
		NULL, TEXT, 0, false                                                               \
	}
#define D(path, type, structure, member)                                                           \
	{                                                                                          \
		path, type, offsetof(struct structure, member), false                              \
	}
/* A field of the types UNUSED and REFUSED. */
#define F(path, type)                                                                              \
	{                                                                                          \
		path, type, 0, false                                                               \
	}
#define NEEDED(path, type, structure, member)                                                      \
	{                                                                                          \
		path, type, offsetof(struct structure, member), true                               \
	}
/* The repeated elements are in an array that is a member of the struct. */
#define ITEMS(structure, member, counter, most)                                                    \
	.size = sizeof(struct structure), .array = offsetof(struct structure, member),             \
	.count = offsetof(struct structure, counter),                                              \
	.item_size = sizeof(*((struct structure *)NULL)->member), .max_items = (most)

/* Defines S_release(). */
#define RELEASE(document)                                                                          \
	void s3_##document##_release(struct s3_##document *message)                                \
	{                                                                                          \
		arena_release(&message->arena);                                                    \
		*message = (struct s3_##document){0};                                              \
	}
/* Defines S_parse() and S_release() of a document without checks beyond those of its table. */
#define DOCUMENT(document)                                                                         \
	int s3_##document##_parse(const char *xml, size_t len, struct s3_##document *out,          \
		struct penstock_error *err)                                                        \
	{                                                                                          \
		return table_parse(&document##_table, out, xml, len, err);                         \
	}                                                                                          \
	RELEASE(document)

/* The fields of struct s3_tag (tags.c). */
extern const struct field tag_fields[];

/* Parses a document into the zeroed struct `out`, which is released on failure. Fails with
 * PENSTOCK_E_UNSUPPORTED if the document has a REFUSED element. */
int table_parse(
	const struct table *t, void *out, const char *xml, size_t len, struct penstock_error *err);
/* The second half of table_parse(), for a struct that was filled in another way: decodes its
 * URL-encoded texts if `url_encoded` is set, and checks its items. */
int table_finish(const struct table *t, void *out, bool url_encoded, struct penstock_error *err);

#endif
