/* Copies of directories with what is below them: contents, permissions, times and links; no owners. */
#ifndef RUN_COPY_TREE_H
#define RUN_COPY_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

struct penstock_error;

/* What makes one copy another; every function may be NULL. `path` is relative to the top, "" for the top itself. */
struct copy_tree {
	bool replace; /* files and links that are there; directories are merged. Else they are an error */
	const char *what; /* is done: "copying the context" */
	const atomic_int *cancel;

	bool (*leave_out)(void *cookie, const char *path, const struct stat *st);
	/* Before and after the entries of a directory. */
	int (*enter)(void *cookie, int dir, const char *path, struct penstock_error *err);
	void (*leave)(void *cookie);
	/* Before a file is copied, and for each piece of it. */
	int (*file)(
		void *cookie, const char *path, const struct stat *st, struct penstock_error *err);
	int (*moved)(void *cookie, size_t bytes, struct penstock_error *err);
	/* A device, FIFO or socket, which is never copied. */
	int (*special)(void *cookie, const char *path, struct penstock_error *err);
	void *cookie;
};

/* From one open directory into another. */
int copy_tree(const struct copy_tree *how, int from, int to, struct penstock_error *err);

#endif
