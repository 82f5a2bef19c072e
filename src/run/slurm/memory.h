/*
 * Whether Slurm says that a step had too little memory. Neither an exit code nor a signal tells that from other ends: the step
 * polled for its memory is killed as a whole, and the kernel kills one process of it. But slurmstepd and srun say so among what
 * the tasks print to stderr, since 20.11 in words that hardly change.
 *
 *	slurm_memory_read(&memory, data, len);    for all of it, in pieces of any size
 *	memory.over
 */
#ifndef RUN_SLURM_MEMORY_H
#define RUN_SLURM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slurm_memory {
	bool over;
	uint64_t used, limit; /* bytes, where it was polled; else 0 */
	/* The beginning of the last line. */
	char line[512];
	size_t len;
};

void slurm_memory_read(struct slurm_memory *memory, const char *data, size_t len);

#endif
