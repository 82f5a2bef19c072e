/*
 * Lists of hosts as Slurm writes them: "n[1-3,7]-ib[01-04],login" is 17 names. Numbers keep the width of the
 * first of their range; of several brackets the last one turns fastest.
 *
 *	_cleanup_(strlist_release) struct strlist hosts = {0};
 *
 *	hostlist_expand("n[01-03]", &hosts, err);	"n01", "n02", "n03"
 */
#ifndef BASE_HOSTLIST_H
#define BASE_HOSTLIST_H

#include "base/str.h"

struct penstock_error;

/*
 * Adds the names to `out`, in the order of the text. PENSTOCK_E_INVALID: it is no such list; PENSTOCK_E_LIMIT: it names
 * more than LIMIT_HOSTLIST hosts, or one that is too long. On failure `out` is as it was.
 */
int hostlist_expand(const char *text, struct strlist *out, struct penstock_error *err);

/* How many tasks the node with this number has by a list such as "2(x3),1"; -1: it does not say. */
int hostlist_count(const char *text, size_t node);

/* The first name alone, for whoever needs no more; free() it. NULL: none, or no memory. */
char *hostlist_first(const char *text);

#endif
