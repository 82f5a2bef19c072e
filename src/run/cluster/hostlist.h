/*
 * Host lists in Slurm's format: "n[1-3,7]-ib[01-04],login" is 17 names. Numbers have the width of
 * the first number of their range; if there are several brackets, the last one varies fastest.
 *
 *	_cleanup_(strlist_release) struct strlist hosts = {0};
 *
 *	r = hostlist_expand("n[01-03]", &hosts, err);	// "n01", "n02", "n03"
 */
#ifndef RUN_CLUSTER_HOSTLIST_H
#define RUN_CLUSTER_HOSTLIST_H

#include "base/str.h"

struct penstock_error;

/*
 * Adds the names to `out`, in the order of the text. Returns -PENSTOCK_E_INVALID if the list is
 * malformed, -PENSTOCK_E_LIMIT if it has more than LIMIT_HOSTLIST hosts or a name is too long. On
 * failure `out` is unchanged.
 */
int hostlist_expand(const char *text, struct strlist *out, struct penstock_error *err);

/* Returns the number of tasks on a node according to a list such as "2(x3),1", or -1 if the list is
 * invalid or does not contain the node. */
int hostlist_count(const char *text, size_t node);

/* Returns the first name of the list; the caller frees the name. Returns NULL if the list is
 * invalid, or out of memory. */
char *hostlist_first(const char *text);
/* Like hostlist_first(), but returns all names, separated by spaces. */
char *hostlist_words(const char *text);

#endif
