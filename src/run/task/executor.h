/*
 * Running a step's tasks, behind one interface for processes, containers and clusters.
 *
 *	struct task *task = NULL;
 *
 *	r = executor->start(&task, &(struct task_spec){ .argv = argv, .envp = envp, ... }, err);
 *	if (r < 0)
 *		return r;
 *	... poll task->event_fd, then executor->ended(task, &end) ...
 *	executor->signal(task, SIGTERM);	// the processes that handle it, else all
 *	executor->kill(task);	// all of its processes
 *	executor->free(task);	// after it has ended
 */
#ifndef RUN_TASK_EXECUTOR_H
#define RUN_TASK_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/str.h"

struct image;
struct json_t;
struct key_server;
struct penstock_error;
struct usage_sample;

/* Directory next to the directory of the layers: the lowest layer of every container, which
 * provides the mount points. run/step/containers.c makes the directory; its last entry is
 * CONTAINER_PLACES_LAST. */
#define CONTAINER_PLACES      "places"
#define CONTAINER_PLACES_LAST "deepsquare"

struct container_mount {
	const char *source; /* a file or directory of this machine */
	const char *place; /* in the container; created if missing */
	bool read_only;
	bool slave; /* later mounts below `source` are visible at `place`, too */
};

enum task_network_kind {
	TASK_NETWORK_HOST,
	TASK_NETWORK_SLIRP4NETNS,
	TASK_NETWORK_PASTA,
};

enum task_interface_kind {
	TASK_INTERFACE_WIREGUARD,
	TASK_INTERFACE_BORE,
};

/* An interface of a step's own network. */
struct task_interface {
	enum task_interface_kind kind;
	const char *config; /* wireguard: the input of wg-quick, with its keys */
	const char *server; /* bore: "host:port" */
	const char *secret; /* bore; may be NULL */
	int port; /* bore: the port on which the step listens */
};

struct task_network {
	enum task_network_kind kind;
	/* addresses of DNS servers, NULL-terminated, or NULL; unused for the host's network */
	const char *const *dns;
	const struct task_interface *interfaces; /* unused for the host's network */
	size_t n_interfaces;
};

/* Requirements of a task in a container; all borrowed until start() has returned. */
struct task_container {
	const struct image *image;
	/* a directory on a local disk, for the files that the task writes to its root */
	const char *tmp;
	const struct container_mount *mounts;
	size_t n_mounts;
	bool read_only_root;
	int64_t uid, gid; /* the ids that the task sees */
	/* The task's pid in its namespace is above this number. MPI ranks that communicate through
	 * shared memory use their pid to identify themselves. */
	int last_pid;
	/* edits for its devices, an array of `containerEdits`; may be NULL */
	const struct json_t *cdi;
};

/* Several tasks of one step on the nodes of a cluster, which form one task for the caller; all
 * borrowed. */
struct task_cluster {
	size_t n; /* tasks */
	size_t n_nodes;
	/* resources of each task; memory in MB, 0 if all memory of the job */
	int64_t cpus, mem_per_cpu, gpus;
	bool no_binding;
	const char *mpi; /* srun's type of MPI; NULL for the default */
	const char *name; /* for display */
	/* Inputs in the shared home, and the directory on each node to which they are copied.
	 * `inputs` is NULL if they are not copied. */
	const char *inputs, *node_dir;
	const char *run_id;
	int attempt;
	const char *dir; /* shared with the nodes; receives the status of each task */
	/* Endpoint and region of a store: each node gets temporary keys for the store, and serves
	 * them to its task with this token. NULL if the environment has all keys, or there are
	 * none. */
	const char *keys_endpoint, *keys_region, *keys_token;
	/* a file in which a task notes that the cluster has asked the task to end; may be NULL */
	const char *notice;
};

struct task_spec {
	/* NULL-terminated; argv[0] is a path or, in a container, the name of a program on PATH */
	const char *const *argv;
	const char *const *envp; /* NULL-terminated; the complete environment */
	const char *cwd; /* NULL if the image's directory is used in a container */
	int stdout_fd; /* borrowed */
	int stderr_fd; /* borrowed */
	int handed_fd; /* as in base/process/process.h; for tasks outside of containers */
	const int *cpus; /* CPUs to bind the task to; NULL if it may use all */
	size_t n_cpus;
	const int *cgroups; /* the step's control groups to join; borrowed */
	size_t n_cgroups;
	const int *born_in; /* as in base/process/process.h */
	struct task_network network;
	/* keys to serve in the task's own network, too; NULL if there are none */
	const struct key_server *keys;
	const char *tmp; /* a directory on a local disk, if the task has its own network */
	const struct task_container *container; /* NULL if the task runs on the machine itself */
	const struct task_cluster *cluster; /* NULL if the task runs on this machine */
};

struct task_end {
	int code; /* exit status; meaningless if signal is set */
	int signal; /* the signal that ended the task; 0 if it exited */
	bool oom; /* killed by the kernel: out of memory */
	int rank; /* in a cluster: the first task that failed */
};

struct task {
	pid_t pid;
	int event_fd; /* readable once the task has ended */
};

struct executor {
	const char *name;
	int (*start)(struct task **out, const struct task_spec *spec, struct penstock_error *err);
	/* Returns false while the task runs. */
	bool (*ended)(struct task *task, struct task_end *end);
	void (*signal)(struct task *task, int signal);
	/* Sends a notice: signals leaders that handle the signal, and no others. Returns the number
	 * of signalled leaders. NULL for the behaviour of leaders_signal(). */
	unsigned (*notify)(struct task *task, int signal);
	/* Returns true if processes other than the leader are alive; NULL if that cannot happen. */
	bool (*left)(struct task *task);
	void (*kill)(struct task *task);
	/* Adds the last samples of the usage on other nodes to `sum`. Returns false before the
	 * first sample. NULL if the task runs on this machine. */
	bool (*use)(const struct task *task, struct usage_sample *sum);
	/* Adds the namespaces of the task (names as in /proc/PID/ns) that a command must join to
	 * run next to it; NULL if the task runs in the namespaces of the machine. */
	int (*enter)(const struct task *task, struct strlist *namespaces);
	void (*free)(struct task *task);
};

extern const struct executor executor_process;
/* Runs a task in a container as described by `spec->container`, through crun. */
extern const struct executor executor_container;
/* Runs a task as a process of this machine with its own network; needs `spec->tmp`. */
extern const struct executor executor_isolated;
/* Runs tasks on the nodes of the allocation, through srun, each by one of the executors above. */
extern const struct executor executor_slurm;

/* Waits for the cleanup. Call it after the last container of a run has ended. */
void executor_container_finish(void);

/* Removes the directories that containers of a killed supervisor left in `tmp`; call it only if no
 * container uses `tmp`. */
void executor_container_sweep(const char *tmp);

#endif
