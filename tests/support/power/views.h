/*
 * Requests whose replies show the state of a store, sent to a server in this process.
 *
 *	views_take(v, "keys ID SECRET");
 *	views_take(v, "view NAME REQUEST");
 *	if (views_look(v, 0, views_count(v), store, root, digests))
 *		...					digests has views_count(v) elements
 */
#ifndef POWER_VIEWS_H
#define POWER_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;
struct views;

/* Ends the process if out of memory. */
struct views *views_new(void);
/* Adds a view, or sets the keys of the server, from a line of the file that replay.c describes.
 * Returns false for any other line. */
bool views_take(struct views *v, const char *line);
size_t views_count(const struct views *v);
const char *views_name(const struct views *v, size_t i);
/* Sets the digests with the indices `first` to `end` - 1. A digest does not depend on the parts of
 * a reply that differ each time. Prints the problem and returns false if there is no reply. */
bool views_look(struct views *v, size_t first, size_t end, struct store *store, const char *root,
	uint32_t *digests);
/* Gets the number in the first row of the result of a database query. Returns false if there is no
 * row. */
bool views_query(const char *root, const char *sql, uint32_t *out);

#endif
