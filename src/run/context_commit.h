/*
 * The Git commit of a context directory, and what in it differs from that commit.
 *
 * A repository may be anybody's, and its configuration can name programs for nearly everything (filters, monitors, hooks, how
 * missing objects are fetched). So git is asked with that configuration only where HEAD and the objects are; it looks at the files
 * from a repository of ours, which is empty but for a copy of the index and the place of the objects.
 */
#ifndef RUN_CONTEXT_COMMIT_H
#define RUN_CONTEXT_COMMIT_H

#include <stdatomic.h>

struct penstock_error;

struct context_commit_spec {
	const char *context; /* absolute */
	const char *home;    /* of penstock; it may lie in the context, and is left out */
	const char *tmp;     /* a directory for files meanwhile */
	const char
		*diff; /* where the differences go, if there are any; secrets in them are masked */
	const atomic_int *cancel; /* its state is left unknown then */
};

/*
 * *json: an object with `commit`, and `diff`, the path, where something is changed, new or gone; what .gitignore names is not
 * looked at. `cut`: only its beginning was kept. `unknown`: why there is no `diff`. free() it; NULL where the directory is not of
 * a commit, or there is no git.
 */
int context_commit_describe(
	const struct context_commit_spec *spec, char **json, struct penstock_error *err);

#endif
