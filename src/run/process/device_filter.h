/*
 * Closes character devices to the processes of a control group of version 2 and of the groups in
 * it: opening them, and making their files, fails with EPERM.
 *
 *	if (!device_filter_attach(group_fd, devices, n))	// of the group's directory
 *		...	// the processes can open them
 *
 * The filter is a BPF program (BPF_PROG_TYPE_CGROUP_DEVICE, Linux 4.15), which needs CAP_BPF or
 * CAP_SYS_ADMIN. The filter ends with the group. Filters of groups above keep their effect.
 */
#ifndef RUN_PROCESS_DEVICE_FILTER_H
#define RUN_PROCESS_DEVICE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DEVICE_FILTER_MAX = 64 };

/* Returns true if the kernel and our rights allow filters. */
bool device_filter_allowed(void);
/* Closes `n` devices, at most DEVICE_FILTER_MAX. Returns false if the kernel refuses the filter. */
bool device_filter_attach(int group_fd, const dev_t *devices, size_t n);

#endif
