/*
 * Utilization of NVIDIA's GPUs, from the driver's library NVML, which is loaded at the first call.
 *
 *	struct gpus_used used;
 *
 *	if (gpus_read(claimed, n, &used))
 *		printf("%.2f GPUs\n", used.busy);
 *
 * Source: NVML API reference. Only one thread may call these functions.
 */
#ifndef RUN_PROCESS_GPUS_H
#define RUN_PROCESS_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpus_used {
	double busy; /* GPUs: the sum of the shares of time in which a kernel ran */
	uint64_t memory; /* bytes */
};

/* Reads the use of the GPUs /dev/nvidiaN, whose numbers N are in `minors`. Returns false if there
 * is no library, or if the library cannot read one of these GPUs. */
bool gpus_read(const int *minors, size_t n, struct gpus_used *out);
/* Reads a list such as "0,2" into `minors`. Returns their number, at most `max`; 0 if `list` is
 * NULL or has a name that only the driver knows. */
size_t gpus_parse(const char *list, int *minors, size_t max);

#endif
