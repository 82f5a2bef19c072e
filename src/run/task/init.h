/*
 * The first process of a container's namespaces: it mounts the image's layers, lets crun start the
 * task, and waits for the end of the task. When the first process ends or is killed, the kernel
 * ends all processes of its namespace, and the mounts vanish with the last of them.
 */
#ifndef RUN_TASK_INIT_H
#define RUN_TASK_INIT_H

#include <stdbool.h>
#include <sys/types.h>

#include <penstock/error.h>

#include "run/task/network.h"

/* The reports to the parent, in shared memory; complete once init_run() has closed its report
 * descriptor. */
struct init_report {
	pid_t task; /* the task's pid in the namespace; 0 if crun did not start the task */
	bool crun_failed;
	char log[2048]; /* the beginning of crun's error message */
};

/* All strings are made in advance, because the init must not allocate memory. */
struct init_plan {
	struct init_report *report;
	char *bundle; /* a directory with a file system in memory while the container lives */
	char *config; /* the text of the bundle's config.json */
	char *config_path;
	char *log;
	char *layers_dir; /* the mount options name layers relative to this directory */
	/* mount options with the upper directory on disk, not synced at the end */
	char *overlay;
	char *overlay_synced; /* the same for kernels that always sync */
	/* mount options with the upper directory in memory, if the disk's file system does not
	 * support one */
	char *overlay_memory;
	char *rootfs; /* in the bundle, as are config_path, log, pid_file and program */
	char *pid_file;
	char *program; /* mount point for crun itself */
	char *memory; /* the directory for overlay_memory */
	const char *const *crun; /* argv */
	struct network_plan network;
	int last_pid; /* pids are above this number; 0 if any */
	bool rootless;
	bool slave; /* later mounts of the machine are visible in the container */
	char uid_map[32], gid_map[32]; /* mappings of a user namespace */
};

/* Makes the first process of a user namespace root inside, and the calling user outside. Returns -1
 * and sets errno on failure. */
int init_become_root(const char *uid_map, const char *gid_map);

/* The body for process_spawn(), with a plan as its cookie; body_fd receives the status of the task,
 * in the form of waitpid(). */
int init_run(void *cookie, int report_fd, int body_fd);
int init_explain(void *cookie, int step, int errnum, struct penstock_error *err);
/* Returns the namespaces that the new process creates. */
unsigned long init_namespaces(const struct init_plan *plan);

#endif
