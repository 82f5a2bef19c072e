/*
 * Use of resources without a control group: the sum over the leaders of a step and their
 * descendants, and the traffic of the machine's network.
 */
#ifndef RUN_PROCESS_USAGE_H
#define RUN_PROCESS_USAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct usage {
	uint64_t cpu_ms; /* CPU time of living processes */
	uint64_t rss; /* bytes; shared memory is counted for each process */
};

void usage_read(const pid_t *leaders, size_t n, struct usage *out);
/* Returns the resident bytes, with shared memory divided among its users; slow. Processes that
 * cannot be read count as 0. */
uint64_t usage_pss(const pid_t *leaders, size_t n);

/* The bytes that the interfaces of this machine have received and sent, without loopback. */
struct usage_network {
	uint64_t received, sent;
};
void usage_network_read(struct usage_network *out);

#endif
