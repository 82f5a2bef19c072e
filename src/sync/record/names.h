/*
 * Names of files as text and as keys. A file name is any bytes but '/' and NUL; the journal and the
 * manifest hold it percent-encoded; an object's key must be UTF-8.
 */
#ifndef SYNC_RECORD_NAMES_H
#define SYNC_RECORD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Appends `path` with '%', '"', '\\', space, control characters and bytes that are not UTF-8 as
 * "%XX". */
void names_encode(struct buf *out, const char *path);
/* The reverse, appended to `out`. Returns -1 if names_encode() cannot have made the text. */
int names_decode(struct buf *out, const char *text);

/* Appends the key (below the prefix) of the file `path`: the path itself if it is UTF-8, else its
 * percent-encoded form. Returns whether it was encoded. */
bool names_key(struct buf *out, const char *path);
/* The reverse: returns `key`, or the name in `decoded` if that is not UTF-8. */
const char *names_of_key(struct buf *decoded, const char *key);

#endif
