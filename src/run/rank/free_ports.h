/*
 * Free TCP ports of this machine, outside the range from which the kernel takes ports for
 * connections.
 */
#ifndef RUN_RANK_FREE_PORTS_H
#define RUN_RANK_FREE_PORTS_H

#include <stddef.h>

struct penstock_error;

/* Finds `n` different ports. */
int free_ports(int *ports, size_t n, struct penstock_error *err);

#endif
