/*
 * The usage between two samples: rates, computed from counters, and the use of the GPUs.
 *
 *	struct usage_meter meter;
 *	struct usage_sample sample = {0};
 *
 *	usage_meter_begin(&meter, gpus, n_gpus, now_ms);
 *	...
 *	usage_meter_read(&meter, now_ms, cpu_ms, &sample);
 */
#ifndef RUN_REPORT_USAGE_METER_H
#define RUN_REPORT_USAGE_METER_H

#include <stddef.h>
#include <stdint.h>

#include "run/process/usage.h"
#include "run/report/usage_file.h"

struct usage_meter {
	const int *gpus; /* borrowed */
	size_t n_gpus;
	int64_t at_ms; /* time of the last sample; the next two are its values */
	uint64_t cpu_ms;
	struct usage_network network;
};

/* Begins to measure. `gpus` are numbers of GPUs, as for gpus_read(). Times are monotonic. */
void usage_meter_begin(struct usage_meter *meter, const int *gpus, size_t n_gpus, int64_t now_ms);
/* Sets all but `time_ms`, `name` and `memory` of the sample. `cpu_ms` is the processor time until
 * now. */
void usage_meter_read(
	struct usage_meter *meter, int64_t now_ms, uint64_t cpu_ms, struct usage_sample *sample);

#endif
