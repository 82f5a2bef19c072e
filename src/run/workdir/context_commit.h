/*
 * The Git commit of a context directory, and its differences from that commit.
 *
 * A repository may belong to any user, and its configuration can name programs for nearly
 * everything (filters, monitors, hooks, fetching missing objects). So git uses that configuration
 * only to find HEAD and the objects; it reads the files through our own repository, which has only
 * a copy of the index and the path of the objects.
 */
#ifndef RUN_WORKDIR_CONTEXT_COMMIT_H
#define RUN_WORKDIR_CONTEXT_COMMIT_H

#include <stdatomic.h>

struct penstock_error;

struct context_commit_spec {
	const char *context; /* absolute */
	const char *home; /* $PENSTOCK_HOME; excluded if it is in the context */
	const char *tmp; /* a directory for temporary files */
	/* path for the differences, if there are any; secrets in them are masked */
	const char *diff;
	const atomic_int *cancel; /* ends git; the state is then unknown */
};

/*
 * Sets *json to an object with `commit`, and `diff`, a path, if files were changed, added or
 * removed; files in .gitignore do not count. With `cut`, only the beginning of the differences was
 * kept; `unknown` is the reason why there is no `diff`. The caller frees `*json`, which is NULL if
 * no commit has files of the directory, or git is missing.
 */
int context_commit_describe(
	const struct context_commit_spec *spec, char **json, struct penstock_error *err);

#endif
