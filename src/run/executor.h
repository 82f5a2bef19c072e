/*
 * Running a step's tasks, behind one interface for processes, containers and clusters.
 *
 *	struct task *task = NULL;
 *
 *	executor->start(&task, &(struct task_spec){ .argv = argv, .envp = envp, ... }, err);
 *	... poll task->event_fd; executor->ended(task, &end) says whether and how it ended
 *	executor->signal(task, SIGTERM);   the leader only
 *	executor->kill(task);              everything of it
 *	executor->free(task);              after it ended
 */
#ifndef RUN_EXECUTOR_H
#define RUN_EXECUTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/str.h"

struct image;
struct json_t;
struct penstock_error;

/*
 * Beside the directory of layers: what lies below all of them in every container, so that there are places for its mounts
 * (run/containers.c makes it); and the last that is made of it.
 */
#define CONTAINER_PLACES      "places"
#define CONTAINER_PLACES_LAST "deepsquare"

struct container_mount {
	const char *source; /* a file or directory of this machine */
	const char *place;  /* in the container; made where it is missing */
	bool read_only;
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

/* One of a network of its own. */
struct task_interface {
	enum task_interface_kind kind;
	const char *config; /* wireguard: what wg-quick reads, with its keys */
	const char *server; /* bore: "host:port" */
	const char *secret; /* bore; NULL: none */
	int port;	    /* bore: that the step listens on */
};

struct task_network {
	enum task_network_kind kind;
	const char *const *dns; /* addresses, NULL-terminated, or NULL; not of the host's */
	const struct task_interface *interfaces; /* likewise */
	size_t n_interfaces;
};

/* What a task in a container needs; all borrowed until start() has returned. */
struct task_container {
	const struct image *image;
	const char *
		tmp; /* a directory on a local disk; what the task writes into its root goes below it */
	const struct container_mount *mounts;
	size_t n_mounts;
	bool read_only_root;
	int64_t uid, gid; /* whom the task sees itself as */
	/* The task's number in its namespace is above it. Ranks of MPI that talk to each other through memory take one with
	 * their own number for themselves. */
	int last_pid;
	const struct json_t
		*cdi; /* edits for its devices, an array of `containerEdits`; NULL: none */
};

/* Several tasks of one step on the nodes of a cluster, which are one task to whoever starts them; all borrowed. */
struct task_cluster {
	size_t n; /* tasks */
	size_t n_nodes;
	int64_t cpus, mem_per_cpu, gpus; /* of each; memory in MB, 0: whatever the job has */
	bool no_binding;
	const char *mpi;  /* of the launcher; NULL: its default */
	const char *name; /* for people */
	/* Inputs in the shared home that go to a disk of each node, and where there; NULL: they stay. */
	const char *inputs, *node_dir;
	const char *run_id;
	int attempt;
	const char *dir; /* shared with the nodes; what becomes of each task goes there */
	const char *
		notice; /* a file in which a task says that it was told to end by the cluster; NULL: none */
};

struct task_spec {
	const char *const
		*argv; /* NULL-terminated; argv[0] is a path, in a container also a name on PATH */
	const char *const *envp; /* NULL-terminated; the complete environment */
	const char *cwd;	 /* in a container NULL means what the image says */
	int stdout_fd;		 /* borrowed */
	int stderr_fd;		 /* borrowed */
	int handed_fd;		 /* as in base/process.h; for tasks that are in no container */
	const int *cpus;	 /* to be bound to; NULL: all */
	size_t n_cpus;
	const int *cgroups; /* of the step's control groups, to be joined; borrowed */
	size_t n_cgroups;
	const int *born_in; /* as in base/process.h */
	struct task_network network;
	const char *tmp; /* with a network of its own: a directory on a local disk */
	const struct task_container *container; /* NULL: on the machine itself */
	const struct task_cluster *cluster;	/* NULL: on this machine */
};

struct task_end {
	int code;   /* exit status; meaningless when signal is set */
	int signal; /* that ended it, 0: it exited */
	bool oom;   /* the kernel ended it for memory */
	int rank;   /* of a cluster's: which of them it was that failed first */
};

struct task {
	pid_t pid;
	int event_fd; /* readable once it ended */
};

struct executor {
	const char *name;
	int (*start)(struct task **out, const struct task_spec *spec, struct penstock_error *err);
	/* False while it runs. */
	bool (*ended)(struct task *task, struct task_end *end);
	void (*signal)(struct task *task, int signal);
	/* A notice: the signal to leaders that handle it, and to nobody else. Returns how many were told. NULL: as
	 * leaders_tell() does. */
	unsigned (*tell)(struct task *task, int signal);
	/* Whether anything of it lives but for the leader; NULL: nothing ever does. */
	bool (*left)(struct task *task);
	void (*kill)(struct task *task);
	/* Adds the namespaces of the task (names as in /proc/PID/ns) that a command joins to run where it does; NULL: it runs
	 * in those of the machine. */
	int (*enter)(const struct task *task, struct strlist *namespaces);
	void (*free)(struct task *task);
};

extern const struct executor executor_process;
/* In a container of `spec->container`, through crun. */
extern const struct executor executor_container;
/* As a process of this machine with a network of its own; `spec->tmp` is needed. */
extern const struct executor executor_isolated;
/* On the nodes of the allocation that we are in, through srun; each task by one of the two above. */
extern const struct executor executor_slurm;

/* Once the last container of a run has ended: until nothing is left of them. */
void executor_container_finish(void);

/* Removes what containers of a killed supervisor have left in their `tmp`; only while none lives there. */
void executor_container_sweep(const char *tmp);

#endif
