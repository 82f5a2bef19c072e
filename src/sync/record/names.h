/*
 * Names of files as text and as keys. A file name has any bytes except '/' and NUL. Names are
 * percent-encoded in the journal and the manifest. The key of an object must be UTF-8.
 */
#ifndef SYNC_RECORD_NAMES_H
#define SYNC_RECORD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Appends `path` with '%', '"', '\\', space, control characters and bytes that are not UTF-8 as
 * "%XX". */
void names_encode(struct buf *out, const char *path);
/* Appends the path that names_encode() encoded as `text`. Returns -1 if an escape in the text is
 * invalid, or if `out` is full or out of memory. */
int names_decode(struct buf *out, const char *text);

/* Appends the key (below the prefix) of the file `path`: the path itself if it is UTF-8, else its
 * percent-encoded form. Returns true if the path was encoded. */
bool names_key(struct buf *out, const char *path);
/* Does the reverse of names_key(): returns the decoded name, which is in `decoded`, if that name is
 * not UTF-8, else `key`. */
const char *names_of_key(struct buf *decoded, const char *key);

#endif
