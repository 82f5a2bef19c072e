/* Recursive copies of directories: contents, links, permissions (the owner always has access), and
 * times of files, but not owners. */
#ifndef RUN_STAGE_COPY_TREE_H
#define RUN_STAGE_COPY_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct penstock_error;

/* Options of a copy; every function may be NULL. `path` is relative to the copied directory, and ""
 * for that directory itself. */
struct copy_tree {
	/* replace existing files, links and directories without files, and merge directories; if
	 * not set, existing entries are an error */
	bool replace;
	const char *what; /* the activity, for messages: "copying the context" */
	const atomic_int *cancel;

	bool (*leave_out)(void *cookie, const char *path, const struct stat *st);
	/* Called before and after the entries of a directory. */
	int (*enter)(void *cookie, int dir, const char *path, struct penstock_error *err);
	void (*leave)(void *cookie);
	/* `file` is called before a file is copied, `moved` after each piece of the file. */
	int (*file)(
		void *cookie, const char *path, const struct stat *st, struct penstock_error *err);
	int (*moved)(void *cookie, size_t bytes, struct penstock_error *err);
	/* Called for each file or link that is not left out, before the copy; `name` is its name in
	 * the open directory `dir`. */
	int (*seen)(void *cookie, int dir, const char *name, const char *path,
		const struct stat *st, struct penstock_error *err);
	/* Called for a device, FIFO or socket, which is never copied. */
	int (*special)(void *cookie, const char *path, struct penstock_error *err);
	void *cookie;
};

/* Copies from one open directory to another. If `to` is -1, copies nothing, and calls only
 * `leave_out`, `enter`, `leave`, `seen` and `special`. */
int copy_tree(const struct copy_tree *options, int from, int to, struct penstock_error *err);

#endif
