/*
 * CPUs, memory and GPUs of this machine, shared out among the runs of all its users.
 *
 *	struct machine_capacity machine;
 *	struct claim *claim = NULL;
 *
 *	machine_capacity(&machine);
 *	claim_check_fits(&machine, &request, err);		what can never fit
 *	claim_acquire(&claim, &machine, &request, &wait, err);	waits in line
 *	cpus = claim_cpus(claim, &n);
 *	claim_release(claim);
 *
 * Each claim is a file in a directory of this machine that all users see ($PENSTOCK_CLAIMS_DIR, else
 * /run/lock/penstock, else /tmp/penstock-claims). Its holder keeps it locked (flock) for as long as it
 * lives, so the claim of a process that died in whatever way is free at once. Those who wait are served
 * in the order in which they came. Files of other users are believed only where their owner wrote them
 * (no links, no foreign names); such a user can hold resources, but cannot make us write elsewhere.
 *
 * Children must not inherit the claim's descriptor: it is close-on-exec, and process_spawn() closes it.
 */
#ifndef RECORDS_CLAIMS_H
#define RECORDS_CLAIMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct penstock_error;
struct claim;

enum { CLAIMS_MAX_CPUS = 1024, CLAIMS_MAX_GPUS = 64 };

/* What this process may use of the machine at all. */
struct machine_capacity {
	int cpus; /* by affinity and cgroup quota; at least 1 */
	int cpu_list
		[CLAIMS_MAX_CPUS]; /* those of the affinity; `n_cpus` may exceed `cpus` under a quota */
	int n_cpus;
	uint64_t memory; /* bytes: MemTotal or the cgroup's limit, the smaller */
	int gpus;	 /* /dev/nvidia0, …; or $PENSTOCK_GPUS, for tests */
	int gpu_list[CLAIMS_MAX_GPUS];
};
void machine_capacity(struct machine_capacity *machine);

/* What the claims of one user may come to together; -1: not limited. */
struct claim_limits {
	int64_t cpus;
	int64_t memory; /* bytes */
	int64_t gpus;
	int64_t runs; /* at a time */
};
#define CLAIM_NO_LIMITS                                                                            \
	{                                                                                          \
		-1, -1, -1, -1                                                                     \
	}

/* As a workflow asks; what it does not limit is 0. */
struct claim_request {
	const char *run_id;
	const char *name;		   /* of the run, for those who wait; NULL: none */
	int64_t tasks;			   /* at least 1 */
	int64_t cpus_per_task;		   /* at least 1 */
	int64_t mem_per_cpu;		   /* MB of 2^20 bytes; 0: claims none */
	int64_t gpus;			   /* of the whole run */
	const struct claim_limits *limits; /* of the calling user; NULL: none */
	/* Where these stand, for the override in messages; NULL: "resources" and "gpus". */
	const char *path;     /* "resources", "steps.0.resources" */
	const char *gpus_key; /* "gpus", "gpusPerTask" */
};

/*
 * PENSTOCK_E_INVALID: the machine has less, whoever ends: "the workflow asks for 8 CPUs, this machine
 * has 2: run with --set resources.cpusPerTask=2".
 */
int claim_check_fits(const struct machine_capacity *machine, const struct claim_request *request,
	struct penstock_error *err);

struct claim_wait {
	const atomic_int *cancel; /* polled at least every 100 ms; may be NULL */
	/* Told once, when it has to wait: "waiting for 2 CPUs, held by run 3f2a… (cifar10) of user ann". */
	void (*on_wait)(void *cookie, const char *text);
	void *cookie;
};

/*
 * Blocks until everything asked for is free, and takes it. Who would exceed the limits of its user waits outside of
 * the line, for others of that user, in their order; who asks for nothing that those before it wait for passes them. `wait` may be NULL. PENSTOCK_E_CANCELLED,
 * PENSTOCK_E_INVALID (as claim_check_fits()), or what is wrong with the directory.
 */
int claim_acquire(struct claim **out, const struct machine_capacity *machine,
	const struct claim_request *request, const struct claim_wait *wait,
	struct penstock_error *err);
/* Gives everything back. NULL is fine. */
void claim_release(struct claim *claim);

/* The CPUs and GPUs that are ours; valid until the release. A NULL claim has none. */
const int *claim_cpus(const struct claim *claim, size_t *n);
const int *claim_gpus(const struct claim *claim, size_t *n);

/* One who holds resources, or waits for them. Strings belong to the caller of fn. */
struct claim_holder {
	const char *run_id;
	const char *name; /* "" : none */
	uid_t uid;
	pid_t pid;
	bool waiting;
	int cpus;
	uint64_t memory; /* bytes */
	int gpus;
};
/* Those who hold, then those who wait in their order. fn returns non-zero to stop. No claims directory: nobody. */
int claims_list(int (*fn)(void *cookie, const struct claim_holder *holder), void *cookie,
	struct penstock_error *err);

#endif
