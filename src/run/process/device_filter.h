/*
 * Forbids the processes of a control group of version 2, and of the groups in it, to open or create
 * (mknod) character devices: both fail with EPERM.
 *
 *	if (!device_filter_attach(group_fd, devices, n))	// group_fd: the group's directory
 *		...	// the processes can open them
 *
 * The filter is a BPF program (BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15), which needs CAP_SYS_ADMIN,
 * or CAP_BPF and CAP_NET_ADMIN. The filter ends with the group. Filters of groups above keep their
 * effect.
 */
#ifndef RUN_PROCESS_DEVICE_FILTER_H
#define RUN_PROCESS_DEVICE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DEVICE_FILTER_MAX = 64 };

/* Returns true if the kernel and the privileges of this process allow filters. */
bool device_filter_allowed(void);
/* Forbids `n` devices, at most DEVICE_FILTER_MAX. Returns false if the kernel refuses. */
bool device_filter_attach(int group_fd, const dev_t *devices, size_t n);

#endif
