/* The limits of CPUs and memory set by the control groups of a process, versions 1 and 2. */
#ifndef RECORDS_CGROUP_H
#define RECORDS_CGROUP_H

#include <stdint.h>

struct cgroup_limits {
	double cpus; /* CPU seconds per second; 0 if unlimited */
	uint64_t memory; /* bytes; 0 if unlimited */
};

/* Sets `out` to the lowest limits of the process's groups and their parents. `mount` is
 * /sys/fs/cgroup and `membership` the text of /proc/self/cgroup. */
void cgroup_limits_read(const char *mount, const char *membership, struct cgroup_limits *out);

#endif
