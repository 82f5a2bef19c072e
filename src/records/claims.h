/*
 * CPUs, memory and GPUs of this machine, shared among the runs of all its users.
 *
 *	struct machine_capacity machine;
 *	struct claim *claim = NULL;
 *
 *	machine_capacity(&machine);
 *	r = claim_check_fits(&machine, &request, NULL, err); // rejects what can never fit
 *	if (r == 0)
 *		r = claim_acquire(&claim, &machine, &request, &wait, err);	// waits in line
 *	if (r == 0)
 *		cpus = claim_cpus(claim, &n);
 *	claim_release(claim);
 *
 * Each claim is a file in a directory of this machine that all users see ($PENSTOCK_CLAIMS_DIR,
 * else /run/lock/penstock, else /tmp/penstock-claims). The holder keeps the file locked (flock) as
 * long as the holder lives, so the claim of a dead process is free at once. Waiting requests are
 * served in the order of their arrival. Links and files with other names are ignored: another user
 * can hold resources, but cannot make us write elsewhere.
 *
 * Children must not inherit the claim's descriptor: it is close-on-exec, and process_spawn() closes
 * it.
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

/* The resources of the machine that this process may use. */
struct machine_capacity {
	int cpus; /* usable CPUs by affinity and cgroup quota; at least 1 */
	/* CPUs in the affinity mask; `n_cpus` may exceed `cpus` under a quota */
	int cpu_list[CLAIMS_MAX_CPUS];
	int n_cpus;
	uint64_t memory; /* bytes: the smaller of physical memory and the cgroup's limit */
	int gpus; /* /dev/nvidia0, …; or $PENSTOCK_GPUS, for tests */
	int gpu_list[CLAIMS_MAX_GPUS];
};
void machine_capacity(struct machine_capacity *machine);

/* Limits of the total claims of one user; -1 if there is no limit. */
struct claim_limits {
	int64_t cpus;
	int64_t memory; /* bytes */
	int64_t gpus;
	int64_t runs; /* runs at a time */
};
#define CLAIM_NO_LIMITS                                                                            \
	{                                                                                          \
		-1, -1, -1, -1                                                                     \
	}

/* The request of a workflow. */
struct claim_request {
	const char *run_id;
	const char *name; /* name of the run, for the messages of waiting runs; may be NULL */
	int64_t tasks; /* at least 1 */
	int64_t cpus_per_task; /* at least 1 */
	int64_t mem_per_cpu; /* MB of 2^20 bytes; 0 if no memory is claimed */
	int64_t gpus; /* GPUs of the whole run */
	const struct claim_limits *limits; /* limits of the calling user; may be NULL */
	/* Keys of the workflow for the overrides in messages: the map of the resources, and the key
	 * of the GPUs in the map. "resources" and "gpus" if NULL. */
	const char *path; /* "resources", "steps.0.resources" */
	const char *gpus_key; /* "gpus", "gpusPerTask" */
};

/* Returns -PENSTOCK_E_INVALID if the machine, or the limits of the user, can never fit the request:
 * "the workflow asks for 8 CPUs, this machine has 2; run with --set resources.cpusPerTask=2".
 * `fitting` gets the request after these overrides; it may be NULL. */
int claim_check_fits(const struct machine_capacity *machine, const struct claim_request *request,
	struct claim_request *fitting, struct penstock_error *err);

struct claim_wait {
	const atomic_int *cancel; /* polled at least every 100 ms; may be NULL */
	/* Called once if the request has to wait: "waiting for 2 CPUs, held by run 3f2a… (cifar10)
	 * of user ann". */
	void (*on_wait)(void *cookie, const char *text);
	void *cookie;
};

/*
 * Blocks until all requested resources are free, and takes them. A request that would exceed the
 * limits of its user waits outside of the line, for other runs of that user, in the order of
 * arrival; outside of the line, a request may overtake earlier requests that wait for other
 * resources. `wait` may be NULL. Returns -PENSTOCK_E_CANCELLED, -PENSTOCK_E_INVALID (as
 * claim_check_fits()), or an error of the claims directory.
 */
int claim_acquire(struct claim **out, const struct machine_capacity *machine,
	const struct claim_request *request, const struct claim_wait *wait,
	struct penstock_error *err);
/* Releases everything. NULL is allowed. */
void claim_release(struct claim *claim);

/* Return the claimed CPUs and GPUs; valid until the release. A NULL claim has none. */
const int *claim_cpus(const struct claim *claim, size_t *n);
const int *claim_gpus(const struct claim *claim, size_t *n);

/* A holder of resources, or a waiting run. Strings are valid during the callback. */
struct claim_holder {
	const char *run_id;
	const char *name; /* "" if the run has no name */
	uid_t uid;
	pid_t pid;
	bool waiting;
	int cpus;
	uint64_t memory; /* bytes */
	int gpus;
	const int *gpu_list; /* `gpus` numbers; NULL if `waiting` */
};
/* Returns the name of the user, or the number of a user without a name; NULL if out of memory. The
 * caller frees it. */
char *claim_user_name(uid_t uid);
/* Lists the holders, then the waiting runs in their order. fn returns non-zero to stop. Without a
 * claims directory the list is empty. */
int claims_list(int (*fn)(void *cookie, const struct claim_holder *holder), void *cookie,
	struct penstock_error *err);

#endif
