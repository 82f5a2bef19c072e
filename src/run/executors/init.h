/*
 * The first process of a container's namespaces: it lays the image's layers over each other, lets crun start the
 * task, waits for it, and takes everything with it when it ends or is killed: the kernel ends all processes of its
 * namespace, and the mounts go with the last of them.
 */
#ifndef RUN_EXECUTORS_INIT_H
#define RUN_EXECUTORS_INIT_H

#include <stdbool.h>
#include <sys/types.h>

#include <penstock/error.h>

#include "run/executors/network.h"

/* In memory that both have: what the parent is told until init_run() closes its report. */
struct init_told {
	pid_t task;	/* as the namespace knows it; 0: crun did not start it */
	char log[2048]; /* the beginning of what crun says about a failure */
};

/* All strings are made before the process is: it may not take memory. */
struct init_plan {
	struct init_told *told;
	const char *bundle; /* a directory: a file system in memory while the container lives */
	const char *config; /* the text of its config.json */
	const char *config_path;
	const char *log;
	const char *layers_dir; /* the options name layers relative to it */
	const char *
		overlay; /* options with the upper directory on disk, which is not synced in the end */
	const char *overlay_synced; /* and for kernels that know no other way */
	const char *overlay_memory; /* and in memory, where the disk's file system cannot do it */
	const char *rootfs;	    /* below the bundle, as are the files above and the next one */
	const char *pid_file;
	const char *program;	 /* where crun itself is mounted */
	const char *memory;	 /* the directory for that */
	const char *const *crun; /* argv */
	struct network_plan network;
	int last_pid; /* numbers of processes are above it; 0: it does not matter */
	bool rootless;
	char uid_map[32], gid_map[32]; /* of a user namespace */
};

/* The first process of a user namespace is seen as root within, and as the caller from outside. -1 and errno. */
int init_become_root(const char *uid_map, const char *gid_map);

/* The body for process_spawn(), with a plan as its cookie; body_fd gets the status of the task, as of waitpid(). */
int init_run(void *cookie, int report_fd, int body_fd);
int init_explain(void *cookie, int step, int errnum, struct penstock_error *err);
/* Of a plan: what the new process is the first one in. */
unsigned long init_namespaces(const struct init_plan *plan);

#endif
