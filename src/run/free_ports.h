/* TCP ports of this machine that nobody uses now, and that the kernel gives to nobody who does not ask for them. */
#ifndef RUN_FREE_PORTS_H
#define RUN_FREE_PORTS_H

#include <stddef.h>

struct penstock_error;

/* Finds `n` different ones. */
int free_ports(int *ports, size_t n, struct penstock_error *err);

#endif
