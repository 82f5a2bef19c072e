/*
 * Detects Slurm's messages that a step was out of memory. Neither the exit code nor the signal
 * distinguishes that end from other ends: Slurm polls the memory of a step and kills the whole step
 * above its limit, and the kernel kills one process of a step. But slurmstepd and srun report the
 * end in the stderr of the tasks, in words that have hardly changed since Slurm 20.11.
 *
 *	slurm_memory_read(&memory, data, len);	// for all output, in pieces of any size
 *	if (memory.over)	// one of the messages was seen
 *		...
 */
#ifndef RUN_CLUSTER_MEMORY_H
#define RUN_CLUSTER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slurm_memory {
	bool over;
	uint64_t used, limit; /* bytes, if memory was polled; else 0 */
	/* The beginning of the last line. */
	char line[512];
	size_t len;
};

void slurm_memory_read(struct slurm_memory *memory, const char *data, size_t len);

#endif
