/*
 * Lists that a browser polls: a browser that has an earlier list gets only the changes.
 *
 *	GET /api/runs			[A, B, C]				ETag: "1"
 *	GET /api/runs?since=1		{"removed": [1], "changed": [[0, D]]}	ETag: "2"
 *
 * The browser removes the entries at the indices `removed` from its list, and then inserts the
 * entries of `changed` at their indices, one after the other. The result is [D, A, C]. An entry
 * that has changed in any byte is in both arrays. The reply is the whole list if the earlier list
 * is unknown.
 *
 *	struct changes *changes = changes_new();
 *
 *	if (changes_since(changes, "1", &list, "2", &out))
 *		...	// send `out` instead of `list`
 *	changes_free(changes);
 */
#ifndef UI_CHANGES_H
#define UI_CHANGES_H

#include <stdbool.h>

struct buf;
struct changes;

/* Returns NULL if out of memory. */
struct changes *changes_new(void);
void changes_free(struct changes *changes);

/* Remembers the list, the text of a JSON array, under its tag. Writes the changes since the list
 * with the tag `since`, which may be NULL. Returns false if that list is unknown, if unchanged
 * entries have changed their order, or if out of memory. Thread-safe. */
bool changes_since(struct changes *changes, const char *since, const struct buf *list,
	const char *tag, struct buf *out);

#endif
