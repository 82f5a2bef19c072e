/*
 * The headers that are stored with an object: pairs "name\0value\0", names in lower case. Names
 * that begin with ':' are the store's own.
 *
 *	const char *p = NULL, *name, *value;
 *
 *	store_header_add(&headers, "Content-Type", "text/plain");
 *	while (store_header_next(headers.data, headers.len, &p, &name, &value))
 *		printf("%s: %s\n", name, value);
 */
#ifndef STORE_HEADER_H
#define STORE_HEADER_H

#include <stdbool.h>
#include <stddef.h>

struct buf;

/* Gets the next pair: start with *p = NULL. Returns false at the end. */
bool store_header_next(
	const char *headers, size_t len, const char **p, const char **name, const char **value);
/* Returns the value of a header, or NULL if it is missing. `name` is in lower case. */
const char *store_header_find(const char *headers, size_t len, const char *name);
/* Returns true for a token (RFC 9110, 5.6.2): names of headers are tokens. */
bool store_header_is_name(const char *name);
/* Returns false if the value has control characters other than tabs, such as a bare CR. */
bool store_header_is_value(const char *value);
/* Returns true for the header of a replication that waits for its event: with the prefix
 * STORE_REPLICATION_HEADER, and one of the two states in store.h. */
bool store_header_waits(const char *name, const char *value);
/* Appends a pair, with the name in lower case. */
void store_header_add(struct buf *out, const char *name, const char *value);
/* Appends all headers, with `value` as the value of the header `name`; leaves that header out if
 * `value` is NULL. */
void store_header_replace(
	struct buf *out, const char *headers, size_t len, const char *name, const char *value);

#endif
