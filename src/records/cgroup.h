/* What the control groups of a process leave it of CPUs and memory, versions 1 and 2. */
#ifndef RECORDS_CGROUP_H
#define RECORDS_CGROUP_H

#include <stdint.h>

struct cgroup_limits {
	double cpus;	 /* CPU seconds per second; 0: not limited */
	uint64_t memory; /* bytes; 0: not limited */
};

/* `mount` is /sys/fs/cgroup and `membership` the text of /proc/self/cgroup. */
void cgroup_limits_read(const char *mount, const char *membership, struct cgroup_limits *out);

#endif
